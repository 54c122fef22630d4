"""What a dry run can run: the reference step, a function of the user's, megatron-core's GPTModel."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from meshwright.engine.subject import Subject
from meshwright.errors import InputError, fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.engine.dry_run import Job

CPU = torch.device("cpu")
PACKAGE = Path(__file__).resolve().parents[1]


def reference(job: Job) -> Subject:
    """The reference step: BF16 products, FP32 parameters and sums."""
    from meshwright.engine.data import Sample
    from meshwright.engine.request import Request
    from meshwright.engine.step import build, gradients_of

    assert job.model is not None, "the reference step is made from a model"
    layout = job.layout
    trainer = build(Request(model=job.model, layout=layout, sequence_tokens=job.sequence_tokens, bf16=True), CPU)
    sequences = layout.microbatch_sequences * layout.num_microbatches
    shape = (sequences, job.sequence_tokens // layout.context_parallel)
    tokens, targets = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    sample = Sample(tokens=tokens, targets=targets, documents=None)

    def update() -> None:
        trainer.optimizer.step()
        for part in trainer.parts:
            part.zero_grad()

    return Subject(trainer.parts, trainer.optimizer.inner, (tokens, targets), lambda: _quiet(gradients_of(trainer, sample)), update)


def _quiet(_: object) -> None:
    """Drop a result, so that nothing holds it."""


def own(job: Job) -> Subject:
    """The user's ``module:function``: it takes nothing and gives (model, step); ``step()`` gives the loss of one forward.

    Deliberately runs the user's code, in this process and nowhere else. It may return ``(model, step, optimizer)``; else AdamW.

    Errors:  InputError with the last frame of the user's own code where it raises.
    """
    module, _, name = job.builder.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(import_module(module), name)()
    except (Exception, SystemExit) as error:
        raise own_fault(job.builder, error) from None
    model, step, *more = made if isinstance(made, tuple) and len(made) in (2, 3) else (None, None)
    if not isinstance(model, nn.Module) or not callable(step):
        raise fault("dryrun.own-result", "{builder} must return (model, step): a module and a function", builder=job.builder)
    optimizer = more[0] if more else torch.optim.AdamW(model.parameters(), foreach=True)

    def ahead() -> None:
        try:
            loss = step()
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        except (Exception, SystemExit) as error:
            raise own_fault(job.builder, error) from None

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return Subject([model], optimizer, (), ahead, update)


def own_fault(builder: str, error: BaseException) -> InputError:
    """One line: what was raised, and where in the user's own code, as far as that can be told."""
    if isinstance(error, InputError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    inside = [
        frame for frame in frames
        if "site-packages" not in frame.filename and not frame.filename.startswith(("<frozen", str(PACKAGE)))
    ]
    place = (inside or list(frames))[-1] if frames else None
    where = f" at {place.filename}:{place.lineno} ({place.line})" if place else ""
    text = (str(error).strip().splitlines() or [""])[0]
    return fault("dryrun.own", "{builder} raised {kind}: {text}{where}",
                 builder=builder, kind=type(error).__name__, text=text, where=where)


def megatron(job: Job) -> Subject:
    """megatron-core's GPTModel, where it is installed."""
    if find_spec("megatron") is None or find_spec("megatron.core") is None:
        raise fault("dryrun.no-megatron", "megatron-core is not installed: pip install megatron-core")
    from meshwright.engine.dry_run_megatron import subject

    return subject(job)


BUILDERS: Mapping[str, Callable[[Job], Subject]] = {"reference": reference, "megatron": megatron}
"""Who builds the model of a dry run, by the word of ``Job.builder``; every other word is the user's own function."""
