"""How long a trial may take, from what is predicted of it; whoever knows better says so."""

from __future__ import annotations

from dataclasses import replace

from meshwright.measure.trial import Limits

START_S, START_HERE_S = 1800.0, 300.0
"""For the first step on accelerators (loading, compilation, groups of thousands of ranks), and on processors. Our judgement."""
QUIET_S, QUIET_HERE_S = 600.0, 120.0
"""Without a step or a line, at least: the first is the time-out of a collective in PyTorch with NCCL, after which ranks say
themselves what they waited for; the second is our judgement."""
SLOWER = 20.0
"""Times a predicted step after which a trial is taken to hang: near full memory runs have been seen at 8 times their neighbours
(corpus, README: throughput collapses near capacity)."""
LONGER = 3.0
"""Times all predicted steps that a trial may last behind its start: a step that long has lost, and what takes longer all the same
is not a step. Our judgement."""


def limits_for(
    predicted_s: float | None, steps: int, *, accelerators: bool, start_s: float | None = None, quiet_s: float | None = None,
    total_s: float | None = None,
) -> Limits:
    """Limits of a trial of so many steps.

    Formula: quiet = max(least, 20 predicted steps); total = start + max(quiet, 3 x steps x predicted). What is given holds.
    """
    start = start_s if start_s is not None else START_S if accelerators else START_HERE_S
    predicted = predicted_s or 0.0
    quiet = quiet_s if quiet_s is not None else max(QUIET_S if accelerators else QUIET_HERE_S, SLOWER * predicted)
    total = total_s if total_s is not None else start + max(quiet, LONGER * steps * predicted)
    return replace(Limits(), first_step_s=start, step_s=quiet, silence_s=quiet, total_s=total)
