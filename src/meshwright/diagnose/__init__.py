"""Why a layout is as fast as it is, where the rest goes, and what the guides have to say about it."""

from meshwright.diagnose.explain import Explanation, explain
from meshwright.diagnose.finding import Disagreement, Figure, Judgement, Side
from meshwright.diagnose.guides import judge
from meshwright.diagnose.sections import Section, sections

__all__ = ["Disagreement", "Explanation", "Figure", "Judgement", "Section", "Side", "explain", "judge", "sections"]
