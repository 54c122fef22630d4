"""Host time: of an operator, of a redistribution of DTensor, of a unit of FSDP2, of a pipeline's micro-batch, on tiny tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from meshwright.engine.optimizer import OwnedAdamW
from meshwright.engine.parallel import HALF
from meshwright.engine.profile.bench import LEAST_S, Bench, Call, Place, Timed, beyond, named, number, word
from meshwright.engine.profile.benches.kernels import gradients

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 16
"""Elements of a row of the tiny tensors."""
OPERATORS = 32
UNITS = 8
MICROBATCHES = 8


def operator(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """One small operator of a chain of them: products by elements, sums, SiLU; with autograd, or ``plain`` without."""
    kind = word(arguments, "kind")
    x, y = (place.filled(WIDTH, WIDTH, gradient=kind != "plain") for _ in range(2))

    def forward() -> Tensor:
        out = x
        for _ in range(OPERATORS // 4):
            out = functional.silu(out * y + x) * y
        return out

    call = gradients(forward(), (x, y)) if kind == "backward" else forward
    return Bench(parts={"one": Timed(copies=[call], units=OPERATORS)}, host=True)


def distributed(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """One redistribution around a product, beyond the product and the bare collective: rows gathered before one Linear, and
    scattered behind another, as sequence parallelism does (``engine.tensor``).
    """
    ranks, backward = number(arguments, "ranks"), word(arguments, "kind") == "backward"
    mesh = place.mesh(ranks)
    plan = {
        "0": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "0.0": ColwiseParallel(), "0.1": RowwiseParallel(output_layouts=Shard(1)),
    }
    split = nn.Sequential(_linear_pair(place, ranks))
    parallelize_module(split, mesh, plan, src_data_rank=None)
    plain = _linear_pair(place, 1)  # one rank's part
    own = place.filled(1, WIDTH, WIDTH, gradient=True)
    gathered = place.filled(1, WIDTH * ranks, WIDTH, gradient=True)
    calls: dict[str, Call] = {"sharded": lambda: _settled(split(own)), "local": lambda: plain(gathered)}
    if backward:
        back = gradients(split(own), (own, *split.parameters()))
        calls = {
            "sharded": lambda: _settled(back()), "local": gradients(plain(gathered), (gathered, *plain.parameters()))
        }
    calls["collective"] = _gather_and_scatter(place, mesh.get_group(), WIDTH * WIDTH, torch.bfloat16, torch.bfloat16)
    return Bench(
        parts={name: Timed(copies=[call]) for name, call in calls.items()},
        seconds=beyond("sharded", "local", "collective", units=2), values=named(), host=True,
    )


def _settled(result: Any) -> Any:
    """The same, once its messages have come: what uses a result next waits for them."""
    return tree_map_only(AsyncCollectiveTensor, lambda each: each.wait(), result)


def _linear_pair(place: Place, ranks: int) -> nn.Module:
    """Two Linears whose inner width may be split over ranks."""
    sizes = ((WIDTH, ranks * WIDTH), (ranks * WIDTH, WIDTH))
    return nn.Sequential(*(nn.Linear(*size, bias=False, device=place.device, dtype=torch.bfloat16) for size in sizes))


def _gather_and_scatter(
    place: Place, group: dist.ProcessGroup, own: int, gathered: torch.dtype, summed: torch.dtype, *, gathers: int = 1,
    scatters: int = 1,
) -> Call:
    """The bare collectives, for so many elements a rank."""
    whole, part = (torch.zeros(count, device=place.device, dtype=gathered) for count in (own * group.size(), own))
    sums, share = (torch.zeros(count, device=place.device, dtype=summed) for count in (own * group.size(), own))

    def both() -> None:
        for _ in range(gathers):
            dist.all_gather_into_tensor(whole, part, group=group)
        for _ in range(scatters):
            dist.reduce_scatter_tensor(share, sums, group=group)

    return both


def unit(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """One sharded unit of FSDP2 in one pass, beyond its module and the bare collectives; ``step``: in the update of AdamW.

    Units are gathered again in the backward pass, as under ZeRO-3.
    """
    ranks, kind = number(arguments, "ranks"), word(arguments, "kind")
    mesh = place.mesh(ranks)
    plain, sharded = (nn.Sequential(*(_linear(place, ranks) for _ in range(UNITS))) for _ in range(2))
    for module in (*sharded, sharded):
        one: FSDPModule = fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=HALF)
        one.set_gradient_divide_factor(1.0)
        one.set_force_sum_reduction_for_comms(True)
    half = plain.to(torch.bfloat16)
    x = place.filled(1, WIDTH, WIDTH * ranks)
    size = WIDTH * WIDTH * ranks
    if kind == "step":
        return _update(place, sharded, ranks)
    calls: dict[str, Call] = {"sharded": lambda: sharded(x), "local": lambda: half(x)}
    if kind == "forward":
        calls["collective"] = _gather_and_scatter(place, mesh.get_group(), size, torch.bfloat16, torch.float32, scatters=0)
    else:
        calls |= {"sharded_both": lambda: _backward(sharded, x), "local_both": lambda: _backward(half, x)}
        calls["collective"] = _gather_and_scatter(place, mesh.get_group(), size, torch.bfloat16, torch.float32)

    def seconds(parts: Mapping[str, float]) -> float:
        passes = parts["sharded"] - parts["local"]
        if kind == "backward":
            passes = parts["sharded_both"] - parts["local_both"] - passes
        return max(passes / UNITS - parts["collective"], LEAST_S)

    parts = {name: Timed(copies=[call]) for name, call in calls.items()}
    return Bench(parts=parts, seconds=seconds, values=named(units=float(UNITS)), host=True)


def _linear(place: Place, ranks: int) -> nn.Module:
    """One small Linear in FP32, whose rows split over ranks."""
    return nn.Linear(WIDTH * ranks, WIDTH * ranks, bias=False, device=place.device)


def _backward(module: nn.Module, x: Tensor) -> None:
    """Forward and backward; gradients are let go."""
    module(x).sum().backward()
    module.zero_grad()


def _update(place: Place, sharded: nn.Module, ranks: int) -> Bench:
    """The update of sharded parameters beyond that of plain ones."""
    plain = [nn.Parameter(place.filled(WIDTH, WIDTH * ranks, dtype="fp32")) for _ in range(UNITS)]
    _backward(sharded, place.filled(1, WIDTH, WIDTH * ranks))
    sharded(place.filled(1, WIDTH, WIDTH * ranks)).sum().backward()
    for parameter in plain:
        parameter.grad = place.filled(WIDTH, WIDTH * ranks, dtype="fp32")
    units = [[(str(place_in), parameter)] for place_in, parameter in enumerate(sharded.parameters())]
    one = OwnedAdamW(units, lambda _: None)
    other = OwnedAdamW([[(str(place_in), parameter)] for place_in, parameter in enumerate(plain)], lambda _: None)
    parts = {"sharded": Timed(copies=[one.step], units=UNITS), "local": Timed(copies=[other.step], units=UNITS)}
    return Bench(parts=parts, seconds=beyond("sharded", "local"), values=named(units=float(UNITS)), host=True)


class _Tiny(nn.Module):
    """One stage: next to nothing, for every element; the last one gives a loss."""

    def __init__(self, place: Place, *, last: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), device=place.device, dtype=torch.bfloat16))
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """``[sequences, elements]`` -> the same, or a loss."""
        out = x * self.scale
        return out.float().mean() if self.last else out


def message(place: Place, arguments: Mapping[str, Any]) -> Bench:
    """A micro-batch on one stage of PyTorch's 1F1B, beyond its computation: both messages and the schedule's own time.

    Formula: (step / (micro-batches + stages - 1)) - forward and backward of a stage; symbols as said; 1F1B fills and drains once.
    """
    from torch.distributed.pipelining import PipelineStage  # brings seconds of torch._dynamo
    from torch.distributed.pipelining.schedules import Schedule1F1B

    ranks, payload = number(arguments, "ranks"), number(arguments, "payload_bytes")
    mesh = place.mesh(ranks)
    index, elements = mesh.get_local_rank(), max(payload // 2, 1)
    hidden = torch.empty((1, elements), dtype=torch.bfloat16, device="meta", requires_grad=True)
    loss = torch.empty((), dtype=torch.float32, device="meta", requires_grad=True)
    last = index == ranks - 1
    part = _Tiny(place, last=last)
    stage = PipelineStage(
        part, index, ranks, place.device, group=mesh.get_group(), input_args=(hidden,), output_args=(loss if last else hidden,)
    )
    schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=lambda out, _: out * 1.0, scale_grads=False)
    whole = place.filled(MICROBATCHES, elements)
    targets = torch.zeros(MICROBATCHES, device=place.device)
    x, alone = place.filled(1, elements, gradient=True), _Tiny(place, last=True)

    def step() -> None:
        given = (whole,) if index == 0 else ()
        ending: dict[str, Any] = {"target": targets, "losses": []} if last else {}
        schedule.step(*given, return_outputs=False, **ending)
        part.zero_grad()

    def local() -> None:
        alone(x).backward()
        alone.zero_grad()
        x.grad = None

    slots = MICROBATCHES + ranks - 1
    return Bench(
        parts={"pipeline": Timed(copies=[step], units=slots), "local": Timed(copies=[local])},
        seconds=beyond("pipeline", "local"), values=named(microbatches=float(MICROBATCHES)), host=True,
    )
