"""Files of a framework, judged: what is wrong, what it costs, and what would be right."""

from meshwright.diagnose.check.claim import NAMES, Claim, claim
from meshwright.diagnose.check.context import Question
from meshwright.diagnose.check.figures import likely_models
from meshwright.diagnose.check.run import Checked, check

__all__ = ["NAMES", "Checked", "Claim", "Question", "check", "claim", "likely_models"]
