"""Files of a framework, judged: what is wrong, what it costs, and what would be right."""

from meshwright.check.claim import NAMES, Claim, claim
from meshwright.check.context import Question
from meshwright.check.figures import likely_models
from meshwright.check.run import Checked, check

__all__ = ["NAMES", "Checked", "Claim", "Question", "check", "claim", "likely_models"]
