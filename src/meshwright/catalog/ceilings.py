"""Constants of a calibration that are at the most that physics allows: a ceiling that binds is a formula that is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.catalog.calibrations import priors
from meshwright.catalog.device_sheet import device
from meshwright.domain.calibration import Key
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.calibration import CalibrationTable

CLEAR = 1.005
"""Below its maximum by less than this a constant is as good as at it."""


class Ceiling(Value, frozen=True, kw_only=True):
    """A constant that its runs hold at its largest value."""

    constant: str
    cell: str
    """Device, framework and precision."""
    wanted: float
    """What its offsets add up to: a fit lets them pass the maximum by some thousandths at most."""
    maximum: float


def ceilings(table: CalibrationTable) -> tuple[Ceiling, ...]:
    """The constants at their maximum in every cell that has runs, the most pressed first.

    Holds:   what cluster and release add is left out: they are not part of a cell.
    """
    found = []
    for cell in table.seen.get("cell", {}):
        name, framework, precision = cell.split("|")
        own = device(name)
        key = Key(device=name, device_family=own.family, cluster="", framework=framework, release="", precision=precision)
        constants = priors(own).constants
        for constant, offsets in table.offsets.items():
            prior = float(getattr(constants, constant))
            wanted, most = prior * math.exp(sum(offsets.of(key).values())), max(prior, offsets.most(name))
            if prior < most and wanted > most / CLEAR:
                found.append(Ceiling(constant=constant, cell=cell.replace("|", " "), wanted=wanted, maximum=most))
    return tuple(sorted(found, key=lambda each: (-each.wanted / each.maximum, each.constant, each.cell)))
