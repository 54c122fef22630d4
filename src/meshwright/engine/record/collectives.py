"""Every exchange between ranks, seen where PyTorch hands it to the communication library, whoever asks for it.

A kernel at the autograd key of each operator of ``c10d`` notes what is called and passes it on; compiled code and tensors that are
spread over ranks come by the same operators. Of a work that tells when it is done (gloo's), the end is the library's own;
else it is that of the wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.engine.record.spent import Spent

OPERATIONS = {
    "allreduce_": "all-reduce", "allreduce_coalesced_": "all-reduce", "allgather_": "all-gather", "_allgather_base_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather", "reduce_": "reduce", "reduce_scatter_": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter", "reduce_scatter_tensor_coalesced_": "reduce-scatter", "alltoall_": "all-to-all",
    "alltoall_base_": "all-to-all", "broadcast_": "broadcast", "send": "send", "recv_": "receive",
}
"""Operators of ``c10d`` -> what the field calls them."""
PASSED = (
    "all_reduce", "all_reduce_", "all_gather_into_tensor", "all_gather_into_tensor_out", "reduce_scatter_tensor",
    "all_to_all_single", "broadcast", "broadcast_",
)
"""Operators of ``_c10d_functional``, which reach those of ``c10d`` below autograd unless they are passed on from above."""


@dataclass(slots=True, eq=False)
class Call:
    """One exchange as this rank sees it; seconds on its clock."""

    group: str
    sequence: int
    operation: str
    payload_bytes: int
    start_s: float
    blocked_s: float = 0.0
    """Time in which the rank did nothing but call it and wait for it."""
    end_s: float | None = None


class Watched:
    """Exchanges as they come; active while it is entered, one at a time in a process."""

    def __init__(
        self, device: str, spent: Spent, begun: Callable[[Call], None], done: Callable[[Call], None], met: Callable[[Any], None]
    ) -> None:
        self._key = torch._C.DispatchKey.AutogradCUDA if device == "cuda" else torch._C.DispatchKey.AutogradCPU
        self._keyname = "AutogradCUDA" if device == "cuda" else "AutogradCPU"
        self._below = torch._C._dispatch_keyset_full_after(self._key)
        self._spent, self._begun, self._done, self._met = spent, begun, done, met
        self._counts: dict[str, int] = {}
        self._by_work: dict[int, tuple[Any, Call]] = {}
        self._by_result: dict[int, int] = {}
        self._libraries: list[Any] = []

    def __enter__(self) -> Watched:
        """Stand between the callers and the library."""
        for namespace, names in (("c10d", OPERATIONS), ("_c10d_functional", PASSED)):
            library: Any = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
            self._libraries.append(library)
            for name in names:
                operator: Any = getattr(getattr(torch.ops, namespace), name).default
                kernel: Any = self._noted(operator, OPERATIONS[name]) if namespace == "c10d" else self._passed(operator)
                library.impl(name, kernel, self._keyname, with_keyset=True)
        work_wait: Any = dist.Work.wait
        tensor_wait: Any = functional.wait_tensor

        def wait(work: Any, *given: Any, **more: Any) -> Any:
            return self._waited(id(work), lambda: work_wait(work, *given, **more))

        def wait_tensor(tensor: Any) -> Any:
            return self._waited(self._by_result.pop(tensor.data_ptr(), 0), lambda: tensor_wait(tensor))

        self._put(wait, wait_tensor)
        self._before = (work_wait, tensor_wait)
        return self

    def __exit__(self, *_: object) -> None:
        self._put(*self._before)
        for library in self._libraries:
            library._destroy()
        self._libraries.clear()

    @staticmethod
    def _put(wait: Any, wait_tensor: Any) -> None:
        """These two in place of PyTorch's, wherever they are called."""
        dist.Work.wait, functional.wait_tensor = wait, wait_tensor  # type: ignore[method-assign]

    def settle(self) -> None:
        """At the end of a step: what nobody waited for is told as far as it got."""
        for _, call in list(self._by_work.values()):
            if call.end_s is not None:
                self._done(call)
        self._by_work.clear()
        self._by_result.clear()

    def _passed(self, operator: Any) -> Any:
        return lambda keys, *given, **more: operator.redispatch(keys & self._below, *given, **more)

    def _noted(self, operator: Any, operation: str) -> Any:
        def kernel(keys: Any, *given: Any, **more: Any) -> Any:
            call = self._call(operation, given)
            result = None
            self._spent.begin("communication")
            try:
                result = hand_on(operator, keys & self._below, given, more, call)
            finally:
                self._spent.end()
                call.blocked_s += perf_counter() - call.start_s
            self._follow(call, result, given)
            return result

        return kernel

    def _call(self, operation: str, given: tuple[Any, ...]) -> Call:
        """What is called, and told before it is."""
        group = group_of(given)
        self._met(group)
        name, peer = str(group.group_name), next((each for each in given if isinstance(each, int)), 0)
        if operation in ("send", "receive"):
            here, there = dist.get_rank(), dist.get_global_rank(group, peer)
            name += f":{here}>{there}" if operation == "send" else f":{there}>{here}"
        self._counts[name] = self._counts.get(name, 0) + 1
        call = Call(name, self._counts[name], operation, sum(each.nbytes for each in _tensors(given)), perf_counter())
        self._begun(call)
        return call

    def _follow(self, call: Call, result: Any, given: tuple[Any, ...]) -> None:
        """Be told when it is done, and find it again when it is waited for."""
        work = dist.Work.unbox(result[-1] if isinstance(result, tuple | list) else result)
        self._by_work[id(work)] = (work, call)  # it is held, so that no other one has its identity
        for tensor in _tensors(given):
            self._by_result[tensor.data_ptr()] = id(work)
            break
        if self._keyname == "AutogradCUDA":  # a future of the device's is done when it is enqueued
            return

        def done(_: Any) -> None:
            call.end_s = perf_counter()

        try:
            work.get_future().add_done_callback(done)
        except RuntimeError:  # sends and receives have none
            return

    def _waited(self, work: int, wait: Callable[[], Any]) -> Any:
        _, call = self._by_work.pop(work, (None, None))
        if call is None:
            return wait()
        begin = perf_counter()
        self._spent.begin("communication")
        try:
            result = wait()
        finally:
            self._spent.end()
        now = perf_counter()
        call.blocked_s += now - begin
        call.end_s = call.end_s or now
        self._done(call)
        return result


def hand_on(operator: Any, keys: Any, given: tuple[Any, ...], more: dict[str, Any], _: Call) -> Any:
    """What the communication library does with a call."""
    return operator.redispatch(keys, *given, **more)


def group_of(given: Iterable[Any]) -> Any:
    """The process group among the arguments of an operator."""
    return next(dist.ProcessGroup.unbox(each) for each in given if isinstance(each, torch.ScriptObject))


def _tensors(given: Iterable[Any]) -> Iterable[torch.Tensor]:
    """Tensors of the first argument that has any: what is sent or summed in place, or what comes out."""
    for each in given:
        found = [each] if isinstance(each, torch.Tensor) else _flat(each) if isinstance(each, list | tuple) else []
        if found:
            return found
    return []


def _flat(items: Iterable[Any]) -> list[torch.Tensor]:
    return [tensor for each in items for tensor in ([each] if isinstance(each, torch.Tensor) else each)]
