"""One training step of a layout on this rank: built once, then run as often as wanted."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import loss_parallel

from meshwright.engine.data import Sample, global_sample, own_sample
from meshwright.engine.decoder import Decoder
from meshwright.engine.mesh import ranks_of
from meshwright.engine.optimizer import OwnedAdamW, local, settle_gradients
from meshwright.engine.parallel import parallelize
from meshwright.engine.pipeline import schedule_of
from meshwright.engine.stages import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.engine.mesh import Ranks
    from meshwright.engine.request import Request

WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")
"""What PyTorch's wrappers put into names of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trainer:
    """Everything of this rank that a step needs."""

    model: Model
    layout: Layout
    sequence_tokens: int
    packed: bool
    device: torch.device
    ranks: Ranks
    parts: tuple[nn.Module, ...]
    schedule: Any
    """A pipeline schedule of PyTorch; None without a pipeline."""
    optimizer: OwnedAdamW

    @property
    def loss_scale(self) -> float:
        """What a micro-batch's mean loss counts in the mean over the whole batch."""
        return 1.0 / (self.layout.data_parallel * self.layout.context_parallel * self.layout.num_microbatches)

    def own_parameters(self) -> Iterator[Tensor]:
        """This rank's elements of every parameter."""
        return (local(parameter) for part in self.parts for parameter in part.parameters())


def build(request: Request, device: torch.device) -> Trainer:
    """This rank's parts of the model, its groups, schedule and optimizer; every rank calls it."""
    model, layout = request.model, request.layout
    ranks = ranks_of(layout, device.type, tied=model.tied_embeddings)
    parts = []
    for place in places(model, layout, ranks.place("pp")):
        with torch.device("meta"):
            part = Decoder(model, place.layers, first=place.first, last=place.last)
        parts.append(
            parallelize(
                part, layout, ranks, sequence_tokens=request.sequence_tokens, mixed_precision=request.bf16, chunk=place.chunk,
                seed=request.options.seed, device=device, compiled=request.options.compiled,
            )
        )
    scale = 1.0 / (layout.data_parallel * layout.context_parallel * layout.num_microbatches)
    schedule = None
    if layout.pipeline_parallel > 1:
        dtype = torch.bfloat16 if request.bf16 else torch.float32
        schedule = schedule_of(
            parts, model, layout, ranks, sequence_tokens=request.sequence_tokens, dtype=dtype, device=device, loss_scale=scale
        )
    return Trainer(
        model=model, layout=layout, sequence_tokens=request.sequence_tokens, packed=request.options.packed, device=device,
        ranks=ranks, parts=tuple(parts), schedule=schedule, optimizer=OwnedAdamW(_units(parts), lambda name: _owner(name, ranks)),
    )


def named_parameters(part: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by their names in the whole model."""
    for name, parameter in part.named_parameters():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")  # noqa: PLW2901
        yield name, parameter


def _units(parts: list[nn.Module]) -> list[list[tuple[str, nn.Parameter]]]:
    """Parameters layer by layer, then those of the ends."""
    units: dict[tuple[int, str], list[tuple[str, nn.Parameter]]] = {}
    for number, part in enumerate(parts):
        for name, parameter in named_parameters(part):
            head, *rest = name.split(".")
            units.setdefault((number, rest[0] if head == "blocks" else head), []).append((name, parameter))
    return list(units.values())


def _owner(name: str, ranks: Ranks) -> dist.ProcessGroup | None:
    owners = ranks.expert_owners if ".routed." in name and ranks.experts is not None else ranks.owners
    return None if owners is None else owners.get_group()


def sample_of(trainer: Trainer, step: int) -> Sample:
    """What this rank sees of the batch of one step."""
    layout = trainer.layout
    whole = global_sample(
        step, sequences=layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches,
        tokens=trainer.sequence_tokens, vocabulary=trainer.model.vocabulary, packed=trainer.packed, device=trainer.device,
    )
    return own_sample(whole, layout, replica=trainer.ranks.place("dp"), piece=trainer.ranks.place("cp"))


def train_step(trainer: Trainer, sample: Sample) -> float:
    """Forward, backward and update -> the mean loss over all ranks."""
    loss = gradients_of(trainer, sample)
    trainer.optimizer.step()
    clear_gradients(trainer)
    return mean_over_ranks(trainer, loss)


def clear_gradients(trainer: Trainer) -> None:
    """Free every gradient."""
    for part in trainer.parts:
        part.zero_grad()


def gradients_of(trainer: Trainer, sample: Sample) -> Tensor:
    """Forward and backward: gradients of the mean loss stand on the parameters -> this rank's share of the loss."""
    with loss_parallel() if trainer.layout.tensor_parallel > 1 else nullcontext():
        loss = _microbatches(trainer, sample) if trainer.schedule is None else _pipelined(trainer, sample)
    for part in trainer.parts:
        settle_gradients(part.parameters())
    if trainer.model.tied_embeddings and trainer.layout.pipeline_parallel > 1:
        _tie(trainer)
    return loss


def _microbatches(trainer: Trainer, sample: Sample) -> Tensor:
    """One micro-batch after another; gradients are summed, and reduced as late as sharding allows.

    Parameters that every rank has whole are cast to the type of products once; sharded ones are gathered by every micro-batch.
    """
    part, layout = trainer.parts[0], trainer.layout
    sharded = layout.gradient_shards > 1 or layout.parameter_shards > 1
    total = torch.zeros((), device=trainer.device)
    documents = [None] * layout.num_microbatches if sample.documents is None else sample.documents.chunk(layout.num_microbatches)
    cut = zip(sample.tokens.chunk(layout.num_microbatches), documents, sample.targets.chunk(layout.num_microbatches), strict=True)
    for number, (tokens, document, targets) in enumerate(cut):
        last = number == layout.num_microbatches - 1
        if isinstance(part, FSDPModule):
            part.set_requires_gradient_sync(last or sharded)
            part.set_requires_all_reduce(last)  # behind the line before, which says both
            part.set_reshard_after_backward(last or sharded)
        loss = part(tokens, document, targets) * trainer.loss_scale
        loss.backward()
        total += loss.detach()
    return total


def _pipelined(trainer: Trainer, sample: Sample) -> Tensor:
    """All micro-batches by the schedule."""
    here = places(trainer.model, trainer.layout, trainer.ranks.place("pp"))
    arguments = (sample.tokens,) if any(place.first for place in here) else ()
    known = {"targets": sample.targets} | ({} if sample.documents is None else {"documents": sample.documents})
    losses: list[Tensor] = []
    ending = {"target": sample.targets, "losses": losses} if any(place.last for place in here) else {}
    trainer.schedule.step(*arguments, return_outputs=False, **ending, **known)
    return sum((loss.detach() for loss in losses), torch.zeros((), device=trainer.device))


def _tie(trainer: Trainer) -> None:
    """Both ends of a pipeline have a copy of the embedding: each gets the sum of their gradients, so that they stay equal."""
    found = dict(pair for part in trainer.parts for pair in named_parameters(part))
    copies = [found[name] for name in ("embedding.tokens.weight", "head.output.weight") if name in found]
    given = [local(copy.grad) for copy in copies if copy.grad is not None]
    if len(given) == 2:
        given[0] += given[1]
        given[1].copy_(given[0])
    elif given and trainer.ranks.ends is not None:
        dist.all_reduce(given[0], group=trainer.ranks.ends.get_group())


def mean_over_ranks(trainer: Trainer, loss: Tensor) -> float:
    """The mean loss of the whole batch from every rank's share; ranks of a tensor-parallel group have the same."""
    total = loss.clone()
    dist.all_reduce(total)
    return float(total) / trainer.layout.tensor_parallel
