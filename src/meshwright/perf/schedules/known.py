"""The schedules that Meshwright knows, by name."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from meshwright.perf.schedules.dualpipev import (
    bubble_dualpipev_s,
    exposed_hops_dualpipev,
    held_dualpipev,
    in_flight_dualpipev,
)
from meshwright.perf.schedules.dualpipev_order import order_dualpipev
from meshwright.perf.schedules.gpipe import (
    bubble_gpipe_s,
    exposed_hops_gpipe,
    in_flight_gpipe,
    order_gpipe,
)
from meshwright.perf.schedules.interleaved import (
    bubble_interleaved_s,
    exposed_hops_interleaved,
    in_flight_interleaved,
    order_interleaved,
)
from meshwright.perf.schedules.interleaved_held import held_interleaved
from meshwright.perf.schedules.messages import messages_loop, messages_v
from meshwright.perf.schedules.one_f_one_b import (
    bubble_1f1b_s,
    exposed_hops_1f1b,
    in_flight_1f1b,
    order_1f1b,
)
from meshwright.perf.schedules.operations import Order
from meshwright.perf.schedules.schedule import Schedule
from meshwright.perf.schedules.values import Bools, Count, ints
from meshwright.perf.schedules.zb1p import (
    bubble_zb1p_s,
    exposed_hops_zb1p,
    in_flight_until_weight_zb1p,
    in_flight_zb1p,
    order_zb1p,
)


def _one_chunk(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Bools:
    return np.asarray((ints(num_chunks) == 1) & (ints(num_microbatches) >= 1) & (ints(num_stages) >= 1))


def _interleaved(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Bools:
    p = ints(num_stages)
    return np.asarray((ints(num_chunks) >= 2) & (p >= 2) & (ints(num_microbatches) >= p))


def _two_chunks(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Bools:
    return np.asarray((ints(num_chunks) == 2) & (ints(num_microbatches) >= 2 * ints(num_stages)))


def _order_1f1b(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    _require_chunks("1f1b", num_chunks, 1)
    return order_1f1b(num_stages, num_microbatches)


def _order_gpipe(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    _require_chunks("gpipe", num_chunks, 1)
    return order_gpipe(num_stages, num_microbatches)


def _order_zb1p(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    _require_chunks("zb1p", num_chunks, 1)
    return order_zb1p(num_stages, num_microbatches)


def _order_dualpipev(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    _require_chunks("dualpipev", num_chunks, 2)
    return order_dualpipev(num_stages, num_microbatches)


def _require_chunks(name: str, num_chunks: int, wanted: int) -> None:
    if num_chunks != wanted:
        raise ValueError(f"schedule {name!r} has {wanted} chunk(s) per stage, not {num_chunks}.")


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        schedule.name: schedule
        for schedule in (
            Schedule(
                name="1f1b",
                splits_backward=False,
                accepts=_one_chunk,
                bubble_s=bubble_1f1b_s,
                in_flight=in_flight_1f1b,
                in_flight_until_weight=in_flight_1f1b,
                exposed_hops=exposed_hops_1f1b,
                messages=messages_loop,
                order=_order_1f1b,
            ),
            Schedule(
                name="interleaved",
                splits_backward=False,
                accepts=_interleaved,
                bubble_s=bubble_interleaved_s,
                in_flight=in_flight_interleaved,
                in_flight_until_weight=in_flight_interleaved,
                exposed_hops=exposed_hops_interleaved,
                messages=messages_loop,
                order=order_interleaved,
                held_until_weight=held_interleaved,
            ),
            Schedule(
                name="gpipe",
                splits_backward=False,
                accepts=_one_chunk,
                bubble_s=bubble_gpipe_s,
                in_flight=in_flight_gpipe,
                in_flight_until_weight=in_flight_gpipe,
                exposed_hops=exposed_hops_gpipe,
                messages=messages_loop,
                order=_order_gpipe,
            ),
            Schedule(
                name="zb1p",
                splits_backward=True,
                accepts=_one_chunk,
                bubble_s=bubble_zb1p_s,
                in_flight=in_flight_zb1p,
                in_flight_until_weight=in_flight_until_weight_zb1p,
                exposed_hops=exposed_hops_zb1p,
                messages=messages_loop,
                order=_order_zb1p,
            ),
            Schedule(
                name="dualpipev",
                splits_backward=True,
                accepts=_two_chunks,
                bubble_s=bubble_dualpipev_s,
                in_flight=in_flight_dualpipev,
                in_flight_until_weight=in_flight_dualpipev,
                exposed_hops=exposed_hops_dualpipev,
                messages=messages_v,
                order=_order_dualpipev,
                held_until_weight=held_dualpipev,
            ),
        )
    }
)
