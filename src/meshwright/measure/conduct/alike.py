"""First trials that all fail alike: what no layout can mend is not tried on all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.measure.conduct.verdict import LAST_LINE

if TYPE_CHECKING:
    from meshwright.measure.outcome import Outcome

ALIKE = 3
"""Trials from the first, after which no other is started where all failed by the user's doing and in the same words: a path, a
flag, a package. Our judgement."""
PLACE = re.compile(r"\bline \d+")
"""Where a script or a program said it: launch files of two layouts differ in length."""


class FirstFailures:
    """Why the first trials of a call failed, until one comes to something else."""

    def __init__(self) -> None:
        self._said: list[str] | None = []

    def note(self, outcome: Outcome, folder: str) -> str:
        """How a trial ended, in a folder of that name -> why more are not worth trying, in words; else empty."""
        if self._said is None or outcome.status != "user" or not outcome.evidence:
            self._said = None
            return ""
        said = PLACE.sub("line", outcome.evidence.replace(folder, "..."))
        status, mark, line = said.partition(LAST_LINE)
        self._said.append(line if mark and line else status)
        if len(set(self._said)) > 1:
            self._said = None
        elif len(self._said) >= ALIKE:
            return f"the first {ALIKE} trials failed alike: {self._said[-1]}"
        return ""
