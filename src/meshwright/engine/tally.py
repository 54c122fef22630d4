"""Counting what a step does, operator by operator: memory by purpose, FLOPs, collectives. On a rank's own tensors, real or fake."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

from meshwright.engine.dry_run import Collective
from meshwright.engine.fake import in_backward
from meshwright.engine.kernels import scanning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


PURPOSES = ("parameters", "gathered", "gradients", "optimizer", "activations", "temporaries", "buffers")
"""What memory is for. ``gathered``: whole parameters of a sharded module; ``activations``: made by a forward and still there;
``temporaries``: made by a backward (recomputed activations, too) or by the optimizer, and messages of sharded modules; what a
backward leaves behind counts as gradients; ``buffers``: there from step to step, tokens and received hidden states."""

SENT, RECEIVED = "send", "recv"
OPERATIONS = {
    "allgather": "all-gather", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "allreduce": "all-reduce",
    "all_reduce": "all-reduce", "alltoall": "all-to-all", "all_to_all": "all-to-all", "broadcast": "broadcast",
    "send": SENT, "recv": RECEIVED, "reduce": "reduce", "gather": "gather", "scatter": "scatter",
}
"""Beginnings of the names of PyTorch's operators -> collective; the first that fits, underscores in front aside."""


@dataclass(slots=True)
class Peak:
    """Live bytes by purpose where they were most together."""

    total: int = 0
    by_purpose: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0))
    operator: str = ""
    where: str = ""


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered. ``memory`` follows storages from their making to their end by weak references."""

    def __init__(self, where: Callable[[], str] = str, gradients: Callable[[], Iterable[Tensor]] = tuple) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: Counter[str] = Counter()
        self.peak = Peak()
        self.most: Counter[str] = Counter()
        """Greatest live bytes of a purpose, whenever that was."""
        self.kept_bytes = 0
        """Greatest bytes of activations when a backward begins: what forwards have left for backwards."""
        self.product_flops = self.attention_flops = self.scan_flops = 0
        self.messages: Counter[tuple[str, int]] = Counter()
        self.message_bytes: Counter[tuple[str, int]] = Counter()
        self._updating = self._was_backward = False
        self._where, self._gradients = where, gradients
        self._storages: dict[int, _Held] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count it; operators on distributed tensors come again as operators on local ones."""
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        namespace, name = function.namespace, function._schema.name.split("::")[-1]
        backward = in_backward()
        if backward != self._was_backward:
            self._turn(backward)
        made = function(*args, **kwargs)
        purpose = "temporaries" if self._updating or backward else "activations"
        if namespace in ("c10d", "_c10d_functional"):
            self._message(name, args, made)
        else:
            self._work(function, args, made)
        for tensor in _tensors((made, args, kwargs)):
            self._hold(tensor, purpose)
        if namespace == "fsdp":
            self._messages_of_sharding((args, kwargs))
        elif "reduce_scatter" in name and namespace == "c10d":
            self.assign(_tensors(args[0]), "gradients")
        self._see_peak(f"{namespace}.{name}")
        return made

    def assign(self, tensors: Iterable[Tensor], purpose: str) -> None:
        """Say what tensors are for, made here or before."""
        for tensor in tensors:
            for local in _locals(tensor):
                self._hold(local, purpose)
                self._move(self._storages[id(local.untyped_storage())], purpose)

    def restart(self) -> None:
        """Forget the peak, the work and the messages so far, not what lives: what a step has left behind stays for good."""
        self._turn(backward=False)
        for held in self._storages.values():
            if held.purpose in ("activations", "temporaries", "gradients"):
                self._move(held, "buffers")
        self.peak, self.kept_bytes = Peak(), 0
        self.product_flops = self.attention_flops = self.scan_flops = 0
        self.most.clear()
        self.messages.clear()
        self.message_bytes.clear()
        self._see_peak("start")

    def collectives(self) -> tuple[Collective, ...]:
        """All messages by sort and group size."""
        return tuple(
            Collective(operation=operation, ranks=ranks, calls=calls, payload_bytes=self.message_bytes[operation, ranks])
            for (operation, ranks), calls in sorted(self.messages.items())
        )

    @contextmanager
    def update(self) -> Iterator[None]:
        """While the optimizer is at work."""
        self._turn(backward=False)
        self._updating = True
        yield
        self._updating = False

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow storages that are given up and taken again in place: whole parameters of sharded modules, and nothing else."""
        plain = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            done = plain(storage, size)
            held = self._storages.get(id(storage))
            if held is not None:
                self.live[held.purpose] += size - held.bytes
                held.bytes = size
                self._move(held, "gathered")
                self._see_peak("resize")
            return done

        torch.UntypedStorage.resize_ = resize  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = plain  # type: ignore[method-assign]

    def _hold(self, tensor: Tensor, purpose: str) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._storages:
            self._storages[key] = _Held(purpose=purpose, bytes=storage.size(), end=ref(storage, lambda _: self._drop(key)))
            self.live[purpose] += storage.size()

    def _move(self, held: _Held, purpose: str) -> None:
        self.live[held.purpose] -= held.bytes
        self.live[purpose] += held.bytes
        held.purpose = purpose

    def _turn(self, backward: bool) -> None:
        """A backward begins, or has ended: then what is left of it are gradients."""
        self._was_backward = backward
        self.assign(self._gradients(), "gradients")
        if backward:
            self.kept_bytes = max(self.kept_bytes, self.live["activations"])
            return
        for held in self._storages.values():
            if held.purpose == "temporaries":
                self._move(held, "gradients")

    def _messages_of_sharding(self, tree: Any) -> None:
        """Buffers that sharded modules copy into and out of, also outside of forwards and backwards."""
        for tensor in _tensors(tree):
            held = self._storages.get(id(tensor.untyped_storage()))
            if held is not None and held.purpose == "activations":
                self._move(held, "temporaries")

    def _drop(self, key: int) -> None:
        held = self._storages.pop(key)
        self.live[held.purpose] -= held.bytes

    def _see_peak(self, operator: str) -> None:
        for purpose, size in self.live.items():
            self.most[purpose] = max(self.most[purpose], size)
        total = sum(self.live.values())
        if total > self.peak.total:
            by_purpose = {purpose: self.live[purpose] for purpose in PURPOSES}
            self.peak = Peak(total=total, by_purpose=by_purpose, operator=operator, where=self._where())

    def _message(self, name: str, args: Any, made: Any) -> None:
        operation = next((word for start, word in OPERATIONS.items() if name.lstrip("_").startswith(start)), None)
        if operation is None:
            return
        key = (operation, _ranks(args))
        self.messages[key] += 1
        self.message_bytes[key] += max((_bytes(tensor) for tensor in _tensors((args, made))), default=0)

    def _work(self, function: Any, args: Any, made: Any) -> None:
        name = function._schema.name.split("::")[-1]
        if scanning():
            self.scan_flops += _SCAN_PRODUCTS[name](args) if name in _SCAN_PRODUCTS else 0
        elif name in _PRODUCTS:
            self.product_flops += _PRODUCTS[name](args)
        elif name.startswith("_scaled_dot_product"):
            self.attention_flops += _attention_flops(name, args)


@dataclass(slots=True)
class _Held:
    """One storage: its bytes, their purpose, and the reference that tells of its end."""

    purpose: str
    bytes: int
    end: Any


def _product(left: Tensor, right: Tensor) -> int:
    """2 m n k of a product, batches included."""
    return 2 * int(prod(left.shape)) * int(right.shape[-1])


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "mm": lambda args: _product(args[0], args[1]),
    "bmm": lambda args: _product(args[0], args[1]),
    "addmm": lambda args: _product(args[1], args[2]),
    "baddbmm": lambda args: _product(args[1], args[2]),
    "_grouped_mm": lambda args: 2 * int(prod(args[0].shape)) * int(args[1].shape[-1]),
}

_SCAN_PRODUCTS: dict[str, Callable[[Any], int]] = {
    **_PRODUCTS, "linalg_solve_triangular": lambda args: _product(args[0], args[1]) // 2,
}
"""Of recurrences besides: half of a triangular matrix is zero."""


def _attention_flops(name: str, args: Any) -> int:
    """Whole squares, as the megatron convention counts: 2 products forward, 5 backward (scores again)."""
    backward = "backward" in name
    query, key, value = args[1:4] if backward else args[:3]
    pairs = int(prod(query.shape[:3])) * int(key.shape[2])
    each_key, each_value = 2 * pairs * int(query.shape[3]), 2 * pairs * int(value.shape[3])
    return 3 * each_key + 2 * each_value if backward else each_key + each_value


def _ranks(args: Any) -> int:
    """Size of the group among the arguments of a collective: a group itself, or its name."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return int(ProcessGroup.unbox(arg).size())
    names = [arg for arg in args if isinstance(arg, str)]
    for name in reversed(names):
        return int(_resolve_process_group(name).size())  # type: ignore[arg-type]
    return 0


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(tree: Any) -> Iterator[Tensor]:
    """Plain tensors among arguments or results."""
    for leaf in tree_iter(tree):
        if isinstance(leaf, Tensor):
            yield from _locals(leaf)


def _locals(tensor: Tensor) -> Iterator[Tensor]:
    """This rank's part of a tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        inner = getattr(tensor, name)
        if isinstance(inner, Tensor):
            yield from _locals(inner)
