"""``balance --measured FILE``: what the stages of a run of the given layout took and held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields

TIMES, MEMORIES = "stage_time_s", "stage_memory_bytes"


class Measured(Value, frozen=True, kw_only=True):
    """Figures by stage; empty where the file has none."""

    times_s: tuple[float, ...] = ()
    """Forward and backward of one micro-batch through all chunks of a stage."""
    memories_bytes: tuple[float, ...] = ()
    """Peaks as the device's own tools show them (reserved)."""


def read_measured(path: str, stages: int | None) -> Measured:
    """The figures of a YAML or JSON file: ``stage_time_s`` and ``stage_memory_bytes``, lists by stage, one of them or both.
    ``stages`` None: their number is not known.

    Errors: ``InputError`` with every fault.
    """
    from meshwright.readers.fields import Fields
    from meshwright.readers.safe import require_mapping
    from meshwright.readers.safe_yaml import load_yaml
    from meshwright.readers.sapp.amounts import known_keys

    top = Fields(require_mapping(load_yaml(path), path), path)
    known_keys(top, (TIMES, MEMORIES))
    found = Measured(times_s=_figures(top, TIMES, stages), memories_bytes=_figures(top, MEMORIES, stages))
    if not top.data:
        top.fault(TIMES, "balance.measured", "neither this nor {other} is there", other=MEMORIES)
    if top.faults:
        raise InputError(top.faults)
    return found


def _figures(top: Fields, name: str, stages: int | None) -> tuple[float, ...]:
    """One positive number for each stage."""
    from meshwright.readers.sapp.amounts import number_fault
    from meshwright.text import shown

    if not top.has(name):
        return ()
    values = top.data[name]
    if not isinstance(values, list) or len(values) != (stages or len(values)):
        top.fault(name, "balance.measured-list", "{value} is no list of {stages} numbers, one for each stage", value=shown(values),
                  stages=stages or "as many")
        return ()
    for value in values:
        if (problem := number_fault(value)) or value <= 0:
            top.fault(name, "balance.measured-value", "{value} {problem}", value=shown(value), problem=problem or "is not above 0")
            return ()
    return tuple(map(float, values))
