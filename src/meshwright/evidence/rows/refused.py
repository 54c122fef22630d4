"""Rows that are not predicted: what nothing can run, and what says too little."""

from __future__ import annotations


class ImpossibleError(Exception):
    """A row whose degrees no framework can run; it is predicted not to fit."""


class UnreadableError(Exception):
    """A row that this reader cannot turn into a case: the kind of reason, and what exactly."""

    def __init__(self, kind: str, detail: str = "") -> None:
        """Keep both; ``detail`` begins with the kind."""
        super().__init__(kind)
        self.detail = f"{kind}: {detail}" if detail else kind
