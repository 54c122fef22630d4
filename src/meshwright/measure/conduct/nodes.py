"""Nodes that trials fail on: set aside, so that no other trial does."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.measure.outcome import Outcome

SUSPECT = 2
"""Failures in a row that the hardware may be to blame for, after which a node is set aside. Our judgement."""
HARDWARE = ("node", "nccl")


class Nodes:
    """What is known of the nodes that trials have run on."""

    def __init__(self) -> None:
        self._failed: Counter[str] = Counter()
        self.aside: dict[str, str] = {}
        """Node -> why."""

    def note(self, nodes: tuple[str, ...], outcome: Outcome) -> list[str]:
        """An outcome on some nodes -> those that are set aside by it.

        One that the evidence names is at once; of several that nobody tells apart each is a suspect until a trial runs well on it.
        """
        if outcome.status == "ok":
            for node in nodes:
                self._failed.pop(node, None)
            return []
        if outcome.status not in HARDWARE:
            return []
        found = []
        named = [node for node in nodes if _names(outcome.evidence, node)] if outcome.status == "node" else []
        for node in nodes:
            self._failed[node] += 1
            if node not in self.aside and (node in named or (not named and self._failed[node] >= SUSPECT)):
                self.aside[node] = outcome.evidence
                found.append(node)
        return found

    def take_back(self) -> list[str]:
        """Set no node aside any more, and begin to count anew -> those that were."""
        found = list(self.aside)
        self.aside.clear()
        self._failed.clear()
        return found


def _names(evidence: str, node: str) -> bool:
    """Whether a line names a node, and not one whose name begins or ends so."""
    return bool(node) and re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", evidence) is not None
