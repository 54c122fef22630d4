"""Fix: what a message, a bound or a broken rule asks of a configuration, and the smallest changes that give it."""

from __future__ import annotations

from meshwright.diagnose.fix.answer import Change, Fixed
from meshwright.diagnose.fix.asked import FixQuestion
from meshwright.diagnose.fix.classify import Kind, Verdict, classify
from meshwright.diagnose.fix.observed import Observed, observe
from meshwright.diagnose.fix.run import fix

__all__ = ["Change", "FixQuestion", "Fixed", "Kind", "Observed", "Verdict", "classify", "fix", "observe"]
