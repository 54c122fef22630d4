"""A trial of the reference training step: ``meshwright step`` with a record of its steps as they go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from meshwright.measure.trial import RECORD, Limits, Trial

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
    )
