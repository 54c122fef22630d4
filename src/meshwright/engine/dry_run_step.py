"""What happens inside the process of a dry run: a step on fake tensors, counted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from meshwright.engine import dry_run_subjects
from meshwright.engine.dry_run import Found
from meshwright.engine.fake import fake_tensors, fake_world
from meshwright.engine.tally import Tally
from meshwright.engine.whereabouts import Whereabouts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.engine.dry_run import Job
    from meshwright.engine.subject import Subject

STEPS = 2
"""The first makes the optimizer's states, the second is counted."""


def dry_step(job: Job) -> Found:
    """One step of one rank.

    Errors:  InputError where the user's function, the layout or this PyTorch is at fault.
    """
    begun = time.perf_counter()
    with fake_world(job.layout.world, job.rank), fake_tensors():
        found = _counted(subject_of(job), job.rank)
    return Found(seconds=time.perf_counter() - begun, **found)


def subject_of(job: Job) -> Subject:
    """What a job runs."""
    return dry_run_subjects.BUILDERS.get(job.builder, dry_run_subjects.own)(job)


def _counted(subject: Subject, rank: int) -> dict[str, Any]:
    """Fields of ``Found`` but the time."""
    parameters, where = subject.parameters(), Whereabouts(subject.modules)
    tally = Tally(where.now, lambda: [each.grad for each in parameters if each.grad is not None])
    gradients = 0
    with where, tally, tally.following():
        tally.assign(subject.inputs, "buffers")
        for _ in range(STEPS):
            tally.assign(subject.parameters(), "parameters")
            tally.restart()
            subject.ahead()
            with tally.update():
                gradients = tally.live["gradients"]
                subject.update()
            tally.assign(states(subject.optimizer), "optimizer")
    local = [each.to_local() if isinstance(each, DTensor) else each for each in parameters]
    peak = tally.peak
    return {
        "rank": rank, "parameters": sum(each.numel() for each in local), "peak_bytes": peak.total,
        "peak_by_purpose": peak.by_purpose, "peak_at": f"{peak.where}, {peak.operator}".strip(", "),
        "parameter_bytes": sum(each.numel() * each.element_size() for each in local), "gathered_bytes": tally.most["gathered"],
        "gradient_bytes": gradients, "optimizer_bytes": tally.live["optimizer"], "activation_bytes": tally.kept_bytes,
        "product_flops": tally.product_flops, "attention_flops": tally.attention_flops,
        "scan_flops": tally.scan_flops,
        "collectives": tally.collectives(),
    }


def states(optimizer: torch.optim.Optimizer) -> Iterable[Tensor]:
    """Tensors that an optimizer keeps for its parameters; numbers of steps, which lie on the host, are left out."""
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor) and value.dim()]
