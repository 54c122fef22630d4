"""Every operation order that can be simulated, by name: those with closed forms, and more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from meshwright.perf.schedules.known import SCHEDULES
from meshwright.perf.schedules.less_memory import order_interleaved_less_memory
from meshwright.perf.schedules.operations import Order
from meshwright.perf.schedules.schedule import OrderBuilder
from meshwright.perf.schedules.seq1f1b import order_seq1f1b
from meshwright.perf.schedules.zbv import order_zbv


class NamedOrder(Protocol):
    """One order, spelled out; all are called alike."""

    def __call__(self, num_stages: int, num_microbatches: int, *, num_chunks: int = 1, num_splits: int = 1) -> Order:
        """Raise ValueError for counts that the schedule does not have; microbatches are counted in splits."""
        ...


def _whole(name: str, build: OrderBuilder) -> NamedOrder:
    """An order of whole sequences."""

    def built(num_stages: int, num_microbatches: int, *, num_chunks: int = 1, num_splits: int = 1) -> Order:
        if num_splits != 1:
            raise ValueError(f"schedule {name!r} does not split sequences, but got {num_splits=}.")
        return build(num_stages, num_microbatches, num_chunks=num_chunks)

    return built


def _order_zbv(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    if num_chunks != 2:
        raise ValueError(f"schedule 'zbv' has 2 chunk(s) per stage, not {num_chunks}.")
    return order_zbv(num_stages, num_microbatches)


ORDERS: Mapping[str, NamedOrder] = MappingProxyType(
    {
        **{name: _whole(name, schedule.order) for name, schedule in SCHEDULES.items()},
        "interleaved-less-memory": _whole("interleaved-less-memory", order_interleaved_less_memory),
        "seq1f1b": order_seq1f1b,
        "zbv": _whole("zbv", _order_zbv),
    }
)
