"""What one rank does in a run: builds its part, warms up, measures steps, and tells its figures."""

from __future__ import annotations

import os
import platform
import tempfile
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from meshwright.domain.label import label
from meshwright.engine.exposed import exposed_s
from meshwright.engine.memory import bytes_of, saved_bytes
from meshwright.engine.record.recorder import recording
from meshwright.engine.report import RankReport, StepReport
from meshwright.engine.step import build, clear_gradients, gradients_of, sample_of, train_step
from meshwright.errors import InputError, Message, NoAnswerError
from meshwright.outputs import Output, write

if TYPE_CHECKING:
    from meshwright.engine.record.recorder import Silent
    from meshwright.engine.request import Options, Request
    from meshwright.engine.step import Trainer

WAIT_FOR_RANKS_S = 600.0
"""For other ranks that write their traces into the same folder."""


def measure(request: Request) -> StepReport:
    """The whole run on this rank; every rank returns the same report.

    Errors:  NoAnswerError where a loss is no number, on all ranks alike; whatever PyTorch raises.
    """
    from meshwright.engine.refusals import refused

    options = request.options
    cuda = options.backend == "cuda"
    world = dist.get_world_size()
    one_node = os.environ.get("LOCAL_WORLD_SIZE", str(world)) == str(world)
    messages = refused(request, world=world, devices=torch.cuda.device_count() if cuda and one_node else None)
    if messages:
        raise InputError(messages)
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    trainer = build(request, device)
    with recording(request, trainer) as record:
        losses, memory = _warm_up(trainer, options, record)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        times = []
        for number in range(options.warmup_steps, options.warmup_steps + options.steps):
            loss, step_s = _step(trainer, number, record)
            losses.append(loss)
            times.append(step_s)
    own = (times, _own(trainer, memory, _profiled(trainer, options)))
    everybody = [own] * dist.get_world_size()
    dist.all_gather_object(everybody, own)
    return StepReport(
        label=label(request.layout), model=request.model.name, device=torch.cuda.get_device_name() if cuda else platform.machine(),
        torch=str(torch.__version__), world=dist.get_world_size(), tokens=request.tokens,
        steps_s=tuple(max(step) for step in zip(*(own for own, _ in everybody), strict=True)), losses=tuple(losses),
        flops_per_step=request.flops_per_step, flops_convention=request.flops_convention, peak_flops_per_s=request.peak_flops_per_s,
        ranks=tuple(report for _, report in everybody),
    )


def _step(trainer: Trainer, number: int, record: Silent) -> tuple[float, float]:
    """One step -> its loss, and its seconds without those that its data took."""
    with record.step(number):
        with record.part("data"):
            sample = sample_of(trainer, number)
        _wait(trainer.device)
        begin = perf_counter()
        loss = _finite(train_step(trainer, sample), number)
        _wait(trainer.device)
        step_s = perf_counter() - begin
        record.saw(sample, loss)
    return loss, step_s


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _finite(loss: float, step: int) -> float:
    if not isfinite(loss):
        template = "the loss of step {step} is {loss}: nothing after it means anything"
        raise NoAnswerError(Message("engine.nan", template, {"step": step, "loss": loss}))
    return loss


def _warm_up(trainer: Trainer, options: Options, record: Silent) -> tuple[list[float], dict[str, int | None]]:
    """The steps before the measured ones -> their losses, and memory by category, counted in one step more that updates nothing."""
    losses = [_step(trainer, step, record)[0] for step in range(options.warmup_steps)]
    activations = gradient_bytes = None
    if options.saved:
        with saved_bytes(trainer) as counted:
            gradients_of(trainer, sample_of(trainer, len(losses)))
        activations = counted.peak_bytes
        gradient_bytes = bytes_of(p.grad for part in trainer.parts for p in part.parameters())
        clear_gradients(trainer)
    parameters = bytes_of(trainer.own_parameters())
    return losses, {"parameters": parameters, "gradients": gradient_bytes, "optimizer": None, "activations": activations}


def _profiled(trainer: Trainer, options: Options) -> tuple[float, float] | None:
    """One step under the profiler -> seconds of communication, and of those exposed."""
    if not (options.profiled or options.trace):
        return None
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    sample = sample_of(trainer, 0)
    with profile(activities=activities) as recorded:
        train_step(trainer, sample)
        _wait(trainer.device)
    if options.trace:
        _keep(recorded, options.trace)
    return exposed_s(recorded.events() or [])


def _keep(recorded: profile, folder: str) -> None:
    """The trace of this rank in a folder; ranks write one after the other."""
    with tempfile.TemporaryDirectory(prefix="meshwright-trace-") as name:
        path = Path(name) / f"rank-{dist.get_rank()}.json"
        recorded.export_chrome_trace(str(path))
        output = Output(path=str(Path(folder) / path.name), text=path.read_text(encoding="utf-8"), folder=folder)
    write([output], force=True, wait_s=WAIT_FOR_RANKS_S)  # who started the ranks has asked for the user's leave


def _own(trainer: Trainer, memory: dict[str, int | None], talk: tuple[float, float] | None) -> RankReport:
    cuda = trainer.device.type == "cuda"
    memory = memory | {"optimizer": trainer.optimizer.states_bytes()}
    return RankReport(
        rank=dist.get_rank(), stage=trainer.ranks.place("pp"),
        parameters=sum(own.numel() for own in trainer.own_parameters()), memory_bytes=memory,
        memory_peak_bytes=torch.cuda.max_memory_allocated() if cuda else None,
        memory_reserved_bytes=torch.cuda.max_memory_reserved() if cuda else None,
        communication_s=talk[0] if talk else None, communication_exposed_s=talk[1] if talk else None,
    )
