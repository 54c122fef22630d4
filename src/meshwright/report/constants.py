"""The constants behind an estimate: what each one is, what stands behind it, and what moved it from its prior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.api.views.constants import _grade
from meshwright.domain.measured import MEASURED
from meshwright.report.blocks import Run, Section, figure, line, table
from meshwright.units import GIB
from meshwright.words import gib, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.calibration import Calibration, Move
    from meshwright.domain.estimate import Estimate
    from meshwright.report.blocks import Block

MOVED = 0.005
"""Offsets of a log below it are not worth a word."""


def constants_section(calibration: Calibration, estimate: Estimate) -> Section:
    """The constants that runs moved, the farthest first; the others by name."""
    return Section(title="Constants", remark=calibration.label, blocks=tuple(constants_blocks(calibration, estimate)))


def constants_blocks(calibration: Calibration, estimate: Estimate) -> Iterator[Block]:
    """What stands below that heading."""
    moved = sorted((move for move in calibration.moved if _told(move)), key=lambda move: -_far(move))
    if not moved:
        yield line("priors of the device's family, data/constants.yaml; no run moved them", indent=2)
        return
    rows = [
        (move.name, _figure(move.name, move.value), _figure(move.name, move.prior), _grade(move, estimate), Run(_by(move), "dim"))
        for move in moved
    ]
    yield table(("constant", "value", "prior", "grade", "moved by"), rows, right=(1, 2), whole=(1, 2, 3))
    still = [move.name for move in calibration.moved if not _told(move)]
    if still:
        yield line(f"at their priors (analytic): {', '.join(still)}", kind="small", indent=2)


def _by(move: Move) -> str:
    """What moved a constant: the levels with their factors, the largest first."""
    parts = sorted(move.offsets.items(), key=lambda item: -abs(item[1]))
    factors = (f"{_LEVELS.get(level, level)} x{math.exp(offset):.2f}" for level, offset in parts if abs(offset) >= MOVED)
    return move.source or ", ".join(factors)


_LEVELS = {"all": "all runs", "own": "your runs"}
"""Level of pooling -> words, where its name is not enough."""


def _far(move: Move) -> float:
    """How far a constant is from its prior, or how far its levels pull it against each other."""
    return max((abs(offset) for offset in move.offsets.values()), default=0.0)


def _told(move: Move) -> bool:
    """Whether a constant is worth a line: it was measured, or runs moved it."""
    return MEASURED in move.offsets or _far(move) >= MOVED


def _figure(name: str, value: float) -> Run:
    """A constant by the unit in its name."""
    if name.endswith("bytes_per_s"):
        return Run(f"{value / GIB:.3g} GiB/s", value=value, unit="bytes/s")
    if name.endswith("_bytes"):
        return figure(value, gib)
    if name.endswith("_s"):
        return figure(value, seconds)
    if name.endswith("_ratio") and value < 1.0:
        return figure(value, percent)
    return Run(f"{value:.3g}", value=value)
