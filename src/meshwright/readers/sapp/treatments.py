"""The ways in which SAPP recomputes a layer, its keys for them, and MindFormers' cumulative lists.

Source of names and defaults: mindspore-ai/toolkits e0486ee, ``perftool/autoparallel/pipeline_balance/utils/recompute.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BACKWARD_OVER_FORWARD = 2.0
"""SAPP's backward time of a layer without recomputation, where none was measured."""


class Treatment(Value, frozen=True, kw_only=True):
    """One way of recomputing: our word for it and SAPP's keys of a layer file."""

    name: str
    memory_key: str
    time_key: str
    coefficient_key: str
    default_coefficient: float
    """Part of the backward that recomputation adds, where the file does not say."""


TREATMENTS = (
    Treatment(name="none", memory_key="memory_activation", time_key="backward_time",
              coefficient_key="backward_coef", default_coefficient=0.0),
    Treatment(name="selective", memory_key="memory_select_rec", time_key="select_rec_time",
              coefficient_key="select_rec_coef", default_coefficient=0.04),
    Treatment(name="communication", memory_key="memory_select_comm", time_key="select_comm_time",
              coefficient_key="select_comm_coef", default_coefficient=0.125),
    Treatment(name="both", memory_key="memory_both_comm_select", time_key="both_comm_select_time",
              coefficient_key="both_comm_select_coef", default_coefficient=0.165),
    Treatment(name="full", memory_key="memory_recompute", time_key="recompute_time",
              coefficient_key="recompute_coef", default_coefficient=0.5),
)
"""From what keeps most to what keeps least, in SAPP's order."""
ORDER = tuple(treatment.name for treatment in TREATMENTS)


def backward_times(
    forward_time: float, treatments: Sequence[str], coefficients: Mapping[str, float] | None = None
) -> tuple[float, ...]:
    """Whole backward of one layer by treatment where none was measured.

        B_r = (1 + c_r) 2 t

    Symbols: t forward time; c_r what recomputation adds to the backward (SAPP's defaults where ``coefficients`` has none).
    Units:   those of t.
    Source:  SAPP ``utils/layer.py``, compute_internal_time.
    """
    given = coefficients or {}
    by_name = {each.name: given.get(each.name, each.default_coefficient) for each in TREATMENTS}
    return tuple((1.0 + by_name[name]) * BACKWARD_OVER_FORWARD * forward_time for name in treatments)


def cumulative(counts: Mapping[str, int]) -> dict[str, int]:
    """MindFormers' lists for the layers of one chunk: ``recompute``, ``select_recompute``, ``select_comm_recompute``.

        recompute = full;   select = selective + both + full;   comm = communication + both + full

    Source:  SAPP ``utils/recompute.py``, yaml_from_internal.
    """
    full, both = counts.get("full", 0), counts.get("both", 0)
    return {
        "recompute": full,
        "select_recompute": counts.get("selective", 0) + both + full,
        "select_comm_recompute": counts.get("communication", 0) + both + full,
    }


def alone(treatment: str, layers: int) -> dict[str, int]:
    """The lists of a chunk all of whose layers have one treatment, each layer in as few lists as say it.

        recompute = full;   select = selective + both;   comm = communication + both

    Holds:   ``separated`` reads them as ``cumulative``; each of the other lists and ``recompute`` together name no layer twice,
             which MindSpeed-Core-MS asks for (guide 002:179).
    """
    return {
        "recompute": layers * (treatment == "full"),
        "select_recompute": layers * (treatment in {"selective", "both"}),
        "select_comm_recompute": layers * (treatment in {"communication", "both"}),
    }


def separated(layers: int, *, full: int, select: int, comm: int) -> tuple[int, ...]:
    """Layers of one chunk by treatment (``ORDER``) from MindFormers' lists; negative where the lists claim too many.

    Both lists count from the chunk's first layer: where they overlap a layer has ``both``, so that ``selective`` and
    ``communication`` never stand in one chunk.

    Source:  SAPP ``utils/recompute.py``, internal_from_yaml.
    """
    both = max(min(select, comm) - full, 0)
    selective, communication = max(select - full - both, 0), max(comm - full - both, 0)
    return layers - selective - communication - both - full, selective, communication, both, full
