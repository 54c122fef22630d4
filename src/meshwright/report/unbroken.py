"""Text whose lines break at blanks, but never between a figure and its unit: ``11.3 %``, ``1.6M tokens/s``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from meshwright.words import BEFORE_UNIT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.containers import Lines

KEPT = "\ufdd0"
"""Stands for a blank that stays; no character, so that nobody's text has it."""


class Unbroken(Text):
    """A text that keeps figures and units together."""

    @classmethod
    def of(cls, text: Text) -> Text:
        """The same text, its spans and its layout."""
        if isinstance(text, Unbroken) or not BEFORE_UNIT.search(text.plain) or KEPT in text.plain:
            return text
        found = cls(
            text.plain, style=text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap, end=text.end,
            tab_size=text.tab_size, spans=list(text.spans),
        )
        found.plain = BEFORE_UNIT.sub(KEPT, found.plain)
        return found

    def wrap(self, console: Console, width: int, **more: Any) -> Lines:
        """Lines of a width."""
        lines = super().wrap(console, width, **more)
        for line in lines:
            line.plain = line.plain.replace(KEPT, " ")
        return lines
