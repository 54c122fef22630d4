"""A sweep of the stand-in program: in this process, or ``python -m benchmarks.trial_faults.driver STORE EXECUTOR LABEL...``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.cli.ending import Signals
from meshwright.domain.layout import Layout
from meshwright.errors import MeshwrightError
from meshwright.measure.chooser import Candidate, Listed
from meshwright.measure.conduct.budget import Budget
from meshwright.measure.conduct.loop import Conductor, Plan
from meshwright.measure.executors import executor
from meshwright.measure.executors.base import Holds
from meshwright.measure.store import Store
from meshwright.measure.trial import Limits, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.measure.executors.base import Executor
    from meshwright.measure.store import Attempt

STAND_IN = Path(__file__).parent.parent / "stand_in.py"
LIMITS = Limits(first_step_s=6.0, step_s=1.6, silence_s=1.6, total_s=8.0, dying_s=0.3, grace_s=0.3)
"""Silence is twice what a keeper takes to end processes that ignore SIGTERM (``keeper.LEFT_S`` and the grace, 0.8 s): a trial that
has ended by itself is not taken for one that hangs. An interpreter may take seconds to start where tests run beside each other."""
QUEUED = Limits(first_step_s=5.0, step_s=3.0, silence_s=3.0, total_s=60.0, dying_s=1.0, grace_s=1.0)
"""Where output comes through a scheduler."""


def trial_of(candidate: Candidate, limits: Limits = LIMITS) -> Trial:
    """The stand-in program as a label says: a name, then its arguments; what stands behind ``#`` only tells two labels apart."""
    kind, *more = candidate.label.partition("#")[0].split()
    return Trial(label=candidate.label, command=("python3", str(STAND_IN), kind, *more), limits=limits,
                 steps=9 if kind != "slow" else None, spreads=False)


def _executor(name: str) -> Executor:
    """An executor by its name; with ``+reuse`` behind it one that holds allocations or ranks between trials."""
    name, _, reuse = name.partition("+")
    found = executor(name)
    if reuse:
        assert isinstance(found, Holds), "it holds nothing"
        found.reuse = True
    return found


def swept(
    store: Path, labels: Sequence[str], name: str = "local", *, at_once: int = 1, limits: Limits | None = None
) -> list[Attempt]:
    """Run them all -> the attempts of the store."""
    limits = limits or (QUEUED if name.startswith("slurm") else LIMITS)
    candidates = [Candidate(label=label, layout=Layout(data_parallel=1)) for label in labels]
    plan = Plan(subject="stand-in", trial_of=lambda each: trial_of(each, limits), tokens=64.0, budget=Budget(), at_once=at_once,
                candidates=candidates)
    with Store(store) as kept:
        Conductor(plan, Listed(candidates), _executor(name), kept).run()
        return kept.attempts()


def main(words: Sequence[str]) -> int:
    """A sweep that can be killed -> exit status."""
    store, name, *labels = words
    try:
        with Signals(for_good=True):
            swept(Path(store), labels, name, at_once=2 if name.startswith("slurm") else 1)
    except MeshwrightError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
