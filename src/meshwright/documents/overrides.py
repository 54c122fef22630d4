"""A launch script whose overrides stand above something else: taking one out would bring back what is below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.source import NOTHING

if TYPE_CHECKING:
    from meshwright.documents.source import Document, Setting


class OverrideDocument(Struct, frozen=True, kw_only=True):
    """A script of ``key=value`` words; what may be empty is set to ``null`` instead of being taken out."""

    script: Document
    nullable: frozenset[str]
    """Keys that the framework takes as ``null``."""

    @property
    def path(self) -> str:
        """As the user gave it."""
        return self.script.path

    @property
    def text(self) -> str:
        """As it was read."""
        return self.script.text

    def settings(self) -> Mapping[str, Setting]:
        """Those of the script."""
        return self.script.settings()

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with the edits."""
        return self.script.changed(
            {key: "null" if value is NOTHING or (value is None and key in self.nullable) else value for key, value in edits.items()}
        )
