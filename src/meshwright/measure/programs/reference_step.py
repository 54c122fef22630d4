"""A trial of the reference training step: ``meshwright step`` with a record of its steps as they go."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.engine.launch import Task
from meshwright.engine.request import Options
from meshwright.engine.run import TARGET, request_of
from meshwright.errors import InputError
from meshwright.measure.trial import RECORD, Limits, Resident, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.measure.chooser import Candidate


def reference_trial(case: Case, candidate: Candidate, words: Sequence[str], *, steps: int, limits: Limits) -> Trial:
    """``words``: the model and its options as ``meshwright step`` takes them, without layout and batch."""
    layout, cluster = candidate.layout, case.cluster
    command = (
        sys.executable, "-m", "meshwright", "step", *words, "--global-batch", str(case.batch.global_batch_sequences),
        "--sequence", str(case.batch.sequence_tokens), "--precision", case.training.precision.name, "--layout", candidate.label,
        "--steps", str(steps), "--record", RECORD,
    )
    return Trial(
        label=candidate.label, command=command, devices=layout.world, nodes=1, devices_per_node=layout.world,
        accelerators=cluster.device.family != "cpu", spreads=False, limits=limits, steps=steps,
        resident=_resident(case, candidate, steps) if cluster.device.family == "cpu" else None,
    )


def _resident(case: Case, candidate: Candidate, steps: int) -> Resident | None:
    """Ranks under one torchrun that take this layout and others of as many ranks; None of a layout that is refused anyway.

    Holds:   they do what ``meshwright step`` does: the same request, in the folder of the trial.
    """
    layout = candidate.layout
    try:
        request = request_of(case, layout, Options(steps=steps, record=RECORD))
    except InputError:
        return None
    task = Task(target=TARGET, payload=replace(request, peak_flops_per_s=None), backend="cpu")
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(layout.world), "-m",
               "meshwright.engine.company")
    return Resident(command=command, task=pickle.dumps(task))
