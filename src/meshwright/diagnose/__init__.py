"""Diagnose: from what was seen of a run to what it lost, to what, and what to change."""

from __future__ import annotations

from meshwright.diagnose.diagnosis import Diagnosis, diagnose
from meshwright.diagnose.finding import Evidence, Finding
from meshwright.diagnose.run import Run

__all__ = ["Diagnosis", "Evidence", "Finding", "Run", "diagnose"]
