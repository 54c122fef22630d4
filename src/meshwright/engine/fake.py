"""Everything that PyTorch must be talked into for a dry run: a world of one process, tensors without memory. All patches are here.

Each patch touches a name that PyTorch does not promise. A version that lacks one is refused in one line (``require``).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.nn.functional import all_to_all_single as exchange
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKED = "2.13.0"
"""The version of PyTorch that the tests run."""
PRIVATE = (
    "torch.testing._internal.distributed.fake_pg:FakeStore",
    "torch.distributed.device_mesh:DeviceMesh",
    "torch.distributed.tensor._sharding_prop:ShardingPropagator._propagate_tensor_meta_non_cached",
    "torch.utils._python_dispatch:_disable_current_modes",
    "torch.distributed.pipelining.schedules:_PipelineSchedule._warmup_p2p",
    "torch.distributed.pipelining.stage:InferenceMode.STATIC",
    "torch.distributed.distributed_c10d:_resolve_process_group",
    "torch._C:_current_graph_task_id",
    "torch.distributed.tensor.debug:_clear_sharding_prop_cache",
)
"""Names without promise that a dry run needs: ``module:attribute``."""


def require() -> None:
    """Refuse a version of PyTorch that lacks a name which a patch needs.

    Errors:  InputError with the first missing name and the version that is known to work.
    """
    for name in PRIVATE:
        module, _, path = name.partition(":")
        try:
            found: Any = import_module(module)
            for step in path.split("."):
                found = getattr(found, step)
        except (ImportError, AttributeError):
            raise fault(
                "dryrun.torch", "PyTorch {found} has no {name}, which a dry run needs; PyTorch {known} is known to work",
                found=torch.__version__, name=name.replace(":", "."), known=CHECKED,
            ) from None


@contextmanager
def fake_world(world: int, rank: int) -> Iterator[None]:
    """A process group of ``world`` ranks in which this process is one and the others answer at once with nothing.

    Holds:   one at a time in a process; groups and meshes are made inside and outside of the fake mode alike. What DTensor has
             learnt is forgotten with the world: it names groups, and meshes of another rank count as equal.
    Errors:  InputError where this PyTorch lacks what the patches need.
    """
    require()
    _patched()
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def fake_tensors() -> FakeTensorMode:
    """Tensors with shapes and types but no memory, on the processor.

    Holds:   the device is the processor, whatever the layout is for: backward on fake accelerators ends the process where PyTorch
             is built without them.
    """
    return FakeTensorMode(allow_non_fake_inputs=True)


def in_backward() -> bool:
    """Whether autograd is at work in this thread: what is made now is made by the backward, recomputation included."""
    return int(torch._C._current_graph_task_id()) != -1


@cache
def _patched() -> None:
    """All patches, once per process."""
    for patch in (_real_meshes, _silent_propagation, _fused_norms, _static_stages, _even_routing):
        patch()


def _real_meshes() -> None:
    """A mesh is a tensor of ranks whose values are read when it is made, sliced and asked for coordinates: all on real tensors."""
    from torch.distributed import device_mesh

    from meshwright.engine import step
    from meshwright.engine.mesh import ranks_of

    kinds = (staticmethod, classmethod)
    for name, attribute in list(vars(device_mesh.DeviceMesh).items()):
        function = attribute.__func__ if isinstance(attribute, kinds) else attribute
        if isinstance(function, FunctionType):
            wrapped: Any = _really(function)
            setattr(device_mesh.DeviceMesh, name, type(attribute)(wrapped) if isinstance(attribute, kinds) else wrapped)
    step.ranks_of = _really(ranks_of)  # type: ignore[attr-defined]
    plain = device_mesh.init_device_mesh
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and vars(module).get("init_device_mesh") is plain:
            module.init_device_mesh = _really(plain)  # type: ignore[attr-defined]


def _really(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on real tensors, also inside a fake mode."""

    @wraps(function)
    def wrapper(*args: Any, **more: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **more)

    return wrapper


def _silent_propagation() -> None:
    """DTensor runs operators at their whole shapes to learn about results: in our fake mode they would be counted as work."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    plain = ShardingPropagator._propagate_tensor_meta_non_cached

    @wraps(plain)
    def silent(*args: Any) -> Any:
        with _disable_current_modes():
            return plain(*args)

    ShardingPropagator._propagate_tensor_meta_non_cached = silent  # type: ignore[assignment, method-assign]


def _static_stages() -> None:
    """A pipeline's stages agree on shapes by messages whose values are read: there are none. Shapes are given instead."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining.stage import InferenceMode  # type: ignore[attr-defined]

    def static(_: Any, stages: Any, *__: Any, **___: Any) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    schedules._PipelineSchedule._warmup_p2p = static  # type: ignore[assignment, method-assign]


def _fused_norms() -> None:
    """RMSNorm on the processor is made of operators that keep two copies in FP32; accelerators have one that keeps its input."""
    functional.rms_norm = _rms_norm  # type: ignore[assignment]


def _rms_norm(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    out: Tensor = _FusedNorm.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


class _FusedNorm(torch.autograd.Function):
    """What the fused RMSNorm makes and keeps: its input, one FP32 number a row, its weight. Values are of no interest here."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        """``[..., width]`` -> the same."""
        scale = x[..., :1].float()
        context.save_for_backward(x, scale, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients of input and weight."""
        x, _, weight = context.saved_tensors
        return torch.empty_like(x), None if weight is None else gradient.flatten(0, -2).sum(0)


def _even_routing() -> None:
    """Which expert a token goes to is a matter of values: every expert gets as many as every other."""
    from meshwright.engine.experts import Routed

    def even_counts(chosen: Tensor, *, minlength: int = 0) -> Tensor:
        return chosen.new_empty(minlength)

    def forward(self: Routed, rows: Tensor, counts: Tensor) -> Tensor:
        local = self.up.shape[0]
        shares = [rows.shape[0] // local] * local
        if self.group is None:
            return self._local(rows, shares)
        size = self.group.size()
        dist.all_to_all_single(torch.empty_like(counts), counts, group=self.group)
        split = [rows.shape[0] // size] * size
        there = exchange(rows.new_empty(rows.shape), rows, split, split, group=self.group)  # type: ignore[no-untyped-call]
        order = torch.empty(rows.shape[0], dtype=torch.int64)
        done = self._local(there[order], shares)
        back = torch.empty_like(done).index_copy(0, order, done)
        arrived: Tensor = exchange(rows.new_empty(rows.shape), back, split, split, group=self.group)  # type: ignore[no-untyped-call]
        return arrived

    Tensor.bincount = even_counts  # type: ignore[method-assign, assignment]
    Routed.forward = forward  # type: ignore[method-assign]


def processor_as_accelerator() -> None:
    """megatron-core puts tables onto ``torch.cuda.current_device()`` whatever its tensors are on: that is the processor here."""
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
