"""Copies and collectives, called as the reference step calls them, alone and beside products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from meshwright.engine.profile.bench import Bench, Call, Place, Timed, named, number, word
from meshwright.engine.profile.benches.kernels import product

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.distributed import ProcessGroup

SIDES = {"cpu": 256}
ACCELERATOR_SIDE = 2048
"""Of the square products that are computed beside a collective, again and again; longer than their launches."""
DTYPE = {"all-gather": "bf16", "all-to-all": "bf16", "send": "bf16", "all-reduce": "fp32", "reduce-scatter": "fp32"}
"""What most bytes of the step travel in: parameters and hidden states, and sums of gradients."""


def transfer(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """A copy between host memory (pinned) and an accelerator, or on a device."""
    size, direction = number(arguments, "bytes"), word(arguments, "direction")
    host, device = torch.device("cpu"), place.device
    source, target = {"on_device": (device, device), "to_device": (host, device), "to_host": (device, host)}[direction]

    def build() -> Call:
        one, other = (
            torch.ones(size, dtype=torch.uint8, device=where, pin_memory=where != device and device.type != "cpu")
            for where in (source, target)
        )
        return lambda: other.copy_(one, non_blocking=True)

    return Bench(parts={"one": Timed(copies=place.copies(build, 2.0 * size))}, values=lambda _: {"bytes": float(size)})


def memory(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """A copy larger than any cache; ``bytes`` are those read and written together."""
    size = number(arguments, "bytes")
    one, other = (torch.ones(size // 2, dtype=torch.uint8, device=place.device) for _ in range(2))
    return Bench(
        parts={"one": Timed(copies=[lambda: other.copy_(one)])},
        values=lambda parts: {"bytes": float(size), "bytes_per_s": size / parts["one"]},
    )


def collective(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """One collective over groups that are all at it at once; of a ping-pong, one message."""
    operation, payload = word(arguments, "operation"), number(arguments, "payload_bytes")
    group = place.group(number(arguments, "ranks"), word(arguments, "tier"))
    copies = place.copies(lambda: _call(place, operation, payload, group), 2.0 * payload)
    return Bench(
        parts={"one": Timed(copies=copies, units=2 if operation == "send" else 1)},
        values=lambda _: {"bytes": float(payload)},
    )


def _call(place: Place, operation: str, payload: int, group: ProcessGroup) -> Call:
    start = _starting(place, operation, payload, group)
    if start is not None:
        return lambda: _finish(start())
    return _ping_pong(place, payload, group)


def _finish(work: Any) -> None:
    if work is not None:
        work.wait()


def _starting(place: Place, operation: str, payload: int, group: ProcessGroup) -> Callable[[], Any] | None:
    """A collective that is started and not waited for; the payload is what is gathered, or before it is scattered or reduced."""
    dtype, ranks = DTYPE[operation], group.size()
    own = max(payload // (2 if dtype == "bf16" else 4) // ranks, 1)
    whole, part = place.filled(own * ranks, dtype=dtype).zero_(), place.filled(own, dtype=dtype).zero_()
    other = torch.empty_like(whole)
    return {
        "all-reduce": lambda: dist.all_reduce(whole, group=group, async_op=True),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, part, group=group, async_op=True),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group, async_op=True),
        "all-to-all": lambda: dist.all_to_all_single(other, whole, group=group, async_op=True),
    }.get(operation)


def _ping_pong(place: Place, payload: int, group: ProcessGroup) -> Call:
    """To the neighbour and back; with an odd number of ranks the last one has none."""
    sent = place.filled(max(payload // 2, 1))
    received = torch.empty_like(sent)
    place_in = dist.get_rank(group)
    partner = place_in ^ 1
    if partner >= group.size():
        return lambda: None
    peer = dist.get_global_rank(group, partner)

    def send() -> None:
        _both(dist.P2POp(dist.isend, sent, peer, group))

    def receive() -> None:
        _both(dist.P2POp(dist.irecv, received, peer, group))

    order = (send, receive) if place_in % 2 == 0 else (receive, send)

    def there_and_back() -> None:
        for each in order:
            each()

    return there_and_back


def _both(operation: dist.P2POp) -> None:
    for work in dist.batch_isend_irecv([operation]):
        work.wait()


def beside(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """Products alone, a collective alone, and both: a loop twice as long as the collective, then one as long.

    The loop's time beside the collective says what that costs the products; the shorter one, which ends with the collective, how
    long that takes beside them. How many products are needed is measured here, by all ranks together.
    """
    operation, payload = word(arguments, "operation"), number(arguments, "payload_bytes")
    group = place.group(number(arguments, "ranks"))
    start = _starting(place, operation, payload, group)
    assert start is not None, "messages between two are not run beside products"
    side = SIDES.get(place.device.type, ACCELERATOR_SIDE)
    sizes = dict.fromkeys(("rows", "columns", "inner"), side)
    multiply = product(place, {**sizes, "dtype": "bf16", "direction": "forward"}).parts["one"].copies[0]

    def loop(count: int) -> None:
        for _ in range(count):
            multiply()

    def talk(count: int) -> None:
        work = start()
        loop(count)
        _finish(work)

    count = _as_long_as(place, lambda: talk(0), multiply)
    found: dict[str, Call] = {
        "alone": lambda: loop(2 * count), "collective_alone": lambda: talk(0),
        "beside": lambda: talk(2 * count), "collective_beside": lambda: talk(count),
    }
    parts = {name: Timed(copies=[call]) for name, call in found.items()}
    return Bench(parts=parts, seconds=lambda parts: parts["beside"], values=named(products=2.0 * count), host=True)


def _as_long_as(place: Place, long: Callable[[], None], short: Call) -> int:
    """How many of one call take as long as another, as all ranks agree."""
    repeats = 5

    def several(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(repeats):
                call()

        return run

    for call in (long, short):
        call()
    times = torch.tensor([place.clock.host_s(several(call)) for call in (long, short)], device=place.device)
    dist.all_reduce(times)
    return max(1, round(float(times[0] / times[1])))
