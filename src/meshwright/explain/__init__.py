"""Why a layout is as fast as it is, where the rest goes, and what the guides have to say about it."""

from meshwright.explain.explanation import Explanation, explain
from meshwright.explain.sections import Section, sections
from meshwright.judging.finding import Disagreement, Figure, Judgement, Side
from meshwright.judging.guides import judge

__all__ = ["Disagreement", "Explanation", "Figure", "Judgement", "Section", "Side", "explain", "judge", "sections"]
