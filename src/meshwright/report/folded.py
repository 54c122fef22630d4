"""Labels in a narrow column: broken between words, else behind a comma, semicolon or colon, and inside a word only at last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.text import Text

from meshwright.value import Value

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


def fold(label: str, width: int) -> list[str]:
    """The lines of a label.

    >>> fold("tp8 recompute=selective:layernorm,mlp", 22)
    ['tp8', 'recompute=selective:', 'layernorm,mlp']
    >>> fold("layers=[1,2,2,2]", 12)
    ['layers=[1,2,', '2,2]']
    """
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
            continue
        lines += [""] * bool(lines[-1])
        for piece in re.findall(r"[^,;:]*[,;:]|[^,;:]+", word):
            if lines[-1] and len(lines[-1]) + len(piece) > width:
                lines.append("")
            lines[-1] += piece
            while len(lines[-1]) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


class FoldedLabel(Value, frozen=True):
    """A label as a cell of a table."""

    label: str

    def __str__(self) -> str:
        return self.label

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines that there is room for."""
        yield Text("\n".join(fold(self.label, max(1, options.max_width))))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """From its longest piece to the whole label."""
        longest = max(map(len, re.split(r"(?<=[,;: ])", self.label)))
        return Measurement(min(longest, options.max_width), min(len(self.label), options.max_width))
