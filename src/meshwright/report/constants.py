"""The constants behind an estimate: what each one is, what stands behind it, and what moved it from its prior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.constants import _grade
from meshwright.domain.measured import MEASURED
from meshwright.units import GIB
from meshwright.words import gib, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.calibration import Calibration, Move
    from meshwright.domain.estimate import Estimate

MOVED = 0.005
"""Offsets of a log below it are not worth a word."""


def constants_table(calibration: Calibration, estimate: Estimate) -> Iterator[RenderableType]:
    """The constants that runs moved, the farthest first; the others by name."""
    moved = sorted((move for move in calibration.moved if _told(move)), key=lambda move: -_far(move))
    title = Text("Constants", style="bold").append(f"   {calibration.label}", style="not bold")
    yield Padding(title, (1, 0, 0, 0))
    if not moved:
        yield Text("  priors of the device's family, data/constants.yaml; no run moved them")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("constant", overflow="fold")
    for name in ("value", "prior"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("grade", no_wrap=True)
    table.add_column("moved by", overflow="fold", style="dim")
    for move in moved:
        parts = sorted(move.offsets.items(), key=lambda item: -abs(item[1]))
        factors = (f"{_LEVELS.get(level, level)} x{math.exp(offset):.2f}" for level, offset in parts if abs(offset) >= MOVED)
        words = Text(move.source or ", ".join(factors))
        table.add_row(
            Text(move.name), _figure(move.name, move.value), _figure(move.name, move.prior), _grade(move, estimate), words
        )
    yield Padding(table, (0, 0, 0, 2))
    still = [move.name for move in calibration.moved if not _told(move)]
    if still:
        yield Padding(Text(f"at their priors (analytic): {', '.join(still)}", style="dim"), (0, 0, 0, 2))


_LEVELS = {"all": "all runs", "own": "your runs"}
"""Level of pooling -> words, where its name is not enough."""


def _far(move: Move) -> float:
    """How far a constant is from its prior, or how far its levels pull it against each other."""
    return max((abs(offset) for offset in move.offsets.values()), default=0.0)


def _told(move: Move) -> bool:
    """Whether a constant is worth a line: it was measured, or runs moved it."""
    return MEASURED in move.offsets or _far(move) >= MOVED


def _figure(name: str, value: float) -> str:
    """A constant by the unit in its name."""
    if name.endswith("bytes_per_s"):
        return f"{value / GIB:.3g} GiB/s"
    if name.endswith("_bytes"):
        return gib(value)
    if name.endswith("_s"):
        return seconds(value)
    return percent(value) if name.endswith("_ratio") and value < 1.0 else f"{value:.3g}"
