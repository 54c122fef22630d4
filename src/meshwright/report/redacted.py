"""A report with hosts, keys and paths blanked in every text of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.diagnose.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType


def blanked(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The parts of a report, texts redacted; tables hold figures and stay."""
    for part in parts:
        if isinstance(part, Text):
            yield Text(redacted(part.plain), style=part.style)
        elif isinstance(part, Padding) and isinstance(part.renderable, Text):
            whole = part.renderable
            yield Padding(Text(redacted(whole.plain), style=whole.style), (part.top, part.right, part.bottom, part.left))
        else:
            yield part
