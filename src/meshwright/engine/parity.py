"""Does a layout give the losses and gradients of one process? Runs inside ranks; each compares with its own plain run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from meshwright.engine.data import global_sample
from meshwright.engine.decoder import Decoder
from meshwright.engine.initial import TIED, fill
from meshwright.engine.optimizer import BETAS, LEARNING_RATE, WEIGHT_DECAY, local
from meshwright.engine.step import build, clear_gradients, gradients_of, mean_over_ranks, named_parameters, sample_of, train_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.engine.request import Request
    from meshwright.engine.step import Trainer

STEPS = 3
LOSS_TOLERANCE = 5e-6
GRADIENT_TOLERANCE = 1e-4
BF16_LOSS_TOLERANCE = 2e-3
BF16_GRADIENT_TOLERANCE = 5e-2
BF16_ROUTED_TOLERANCE = 0.4
"""Rounding sends some tokens to other experts, and there are few tokens here."""
FLOOR = 1e-4
"""Share of the norm of all gradients under which a parameter's own norm is noise: keys' biases have no gradient but rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How far one layout is from one process."""

    name: str
    loss: float
    """Largest difference of a step's loss."""
    gradient: float
    """Largest norm of a difference over the norm of the gradient, over parameters."""
    parameter: str
    """The parameter with that gradient."""
    parameters: int
    """Parameters compared."""
    bf16: bool = False
    routed: bool = False
    """Whether the model has experts."""

    @property
    def equal(self) -> bool:
        """Whether both are within tolerance. False for what is no number."""
        if not self.bf16:
            return self.loss <= LOSS_TOLERANCE and self.gradient <= GRADIENT_TOLERANCE
        return self.loss <= BF16_LOSS_TOLERANCE and self.gradient <= (
            BF16_ROUTED_TOLERANCE if self.routed else BF16_GRADIENT_TOLERANCE
        )


def compare_all(cases: Sequence[tuple[str, Request]]) -> list[Parity]:
    """Every case in turn; ranks must be as many as each case's layout wants."""
    known: dict[Request, tuple[list[float], dict[str, Tensor]]] = {}
    results = []
    for name, request in cases:
        print(name, flush=True)
        key = _plain_key(request)
        if key not in known:
            known[key] = plain_run(key)
        results.append(compare(name, request, *known[key]))
        print(results[-1], flush=True)
    return results


def _plain_key(request: Request) -> Request:
    """The request of one process with the same batch: the layout matters for nothing else."""
    sequences = request.tokens // request.sequence_tokens
    layout = replace(type(request.layout)(), num_microbatches=sequences)
    return replace(request, layout=layout, bf16=False, options=replace(request.options, compiled=False))


def plain_run(request: Request) -> tuple[list[float], dict[str, Tensor]]:
    """Losses, and gradients of the first step, of plain PyTorch in FP32 on the whole batch at once: none of the layout's code."""
    model = request.model
    with torch.device("meta"):
        decoder = Decoder(model)
    fill(decoder, "", seed=request.options.seed, device=torch.device("cpu"), aliases=TIED if model.tied_embeddings else None)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, first = [], {}
    for step in range(STEPS):
        sample = global_sample(
            step, sequences=request.tokens // request.sequence_tokens, tokens=request.sequence_tokens, vocabulary=model.vocabulary,
            packed=request.options.packed, device=torch.device("cpu"),
        )
        loss = decoder(sample.tokens, sample.documents, sample.targets)
        loss.backward()
        if step == 0:
            first = {name: p.grad.clone() for name, p in decoder.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, first


def compare(name: str, request: Request, losses: Sequence[float], expected: dict[str, Tensor]) -> Parity:
    """One layout beside the plain run."""
    trainer = build(request, torch.device("cpu"))
    found = [mean_over_ranks(trainer, gradients_of(trainer, sample_of(trainer, 0)))]
    worst, which, count = _gradient_difference(trainer, expected)
    trainer.optimizer.step()
    clear_gradients(trainer)
    found += [train_step(trainer, sample_of(trainer, step)) for step in range(1, STEPS)]
    loss = max(abs(one - other) for one, other in zip(found, losses, strict=True))
    return Parity(
        name=name, loss=loss, gradient=worst, parameter=which, parameters=count, bf16=request.bf16, routed=request.model.is_moe
    )


def _gradient_difference(trainer: Trainer, expected: dict[str, Tensor]) -> tuple[float, str, int]:
    """The largest relative difference over all ranks' parameters, whose it is, and how many parameters were compared."""
    worst, which, seen = -1.0, "", set()
    floor = FLOOR * float(torch.stack([each.norm() for each in expected.values()]).norm())
    for part in trainer.parts:
        for name, parameter in named_parameters(part):
            if parameter.grad is None:
                return float("inf"), f"{name} has no gradient", 0
            whole = whole_tensor(trainer, name, parameter.grad)
            meant = TIED.get(name, name) if trainer.model.tied_embeddings else name
            wanted = expected[meant]
            difference = float((whole - wanted).norm()) / max(floor, float(wanted.norm()))
            seen.add(meant)
            if not difference <= worst:
                worst, which = difference, name
    everybody: list[tuple[float, str, set[str]]] = [(0.0, "", set())] * dist.get_world_size()
    dist.all_gather_object(everybody, (worst, which, seen))
    worst, which, _ = max(everybody, key=lambda each: (each[0] != each[0], each[0]))
    return worst, which, len(set().union(*(each[2] for each in everybody)))


def whole_tensor(trainer: Trainer, name: str, tensor: Tensor) -> Tensor:
    """A parameter or gradient as one process has it; all ranks of its stage call this."""
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else local(tensor)
    if ".routed." not in name or trainer.layout.expert_parallel == 1:
        return whole
    assert trainer.ranks.experts is not None, "experts are spread"
    pieces = [torch.empty_like(whole) for _ in range(trainer.layout.expert_parallel)]
    dist.all_gather(pieces, whole.contiguous(), group=trainer.ranks.experts["experts"].get_group())
    return torch.cat(pieces)
