"""Fix: what a message, a bound or a broken rule asks of a configuration, and the smallest changes that give it."""

from __future__ import annotations

from meshwright.fix.answer import Change, Fixed
from meshwright.fix.asked import FixQuestion
from meshwright.fix.observed import Observed, observe
from meshwright.fix.run import fix
from meshwright.judging.memory_messages import Kind, Verdict, classify

__all__ = ["Change", "FixQuestion", "Fixed", "Kind", "Observed", "Verdict", "classify", "fix", "observe"]
