"""Trials of the stand-in program, run by the loop on this machine."""

import sys
import tempfile
from pathlib import Path

import pytest

from meshwright.domain.layout import Layout
from meshwright.measure.chooser import Candidate, Listed
from meshwright.measure.conduct.budget import Budget
from meshwright.measure.conduct.loop import Conductor, Plan
from meshwright.measure.executors import executor
from meshwright.measure.store import Store
from meshwright.measure.trial import Limits, Trial

STAND_IN = Path(__file__).parents[2] / "benchmarks" / "stand_in.py"
PATIENT = Limits(first_step_s=60.0, step_s=60.0, silence_s=60.0, total_s=120.0, dying_s=0.3, grace_s=0.3)
"""For what does not hang: nothing of it depends on how busy the machine is."""
HANG = ("silent", "stubborn", "hang", "alone")
"""Kinds that end by the limits, and need short ones."""
LIMITS = Limits(first_step_s=5.0, step_s=2.0, silence_s=2.0, total_s=20.0, dying_s=0.3, grace_s=0.3)  # also beside other tests


def candidates(*kinds):
    return [Candidate(label=kind, layout=Layout(data_parallel=1)) for kind in kinds]


def trial_of(candidate, limits=LIMITS):
    kind, _, more = candidate.label.partition(" ")
    return Trial(label=candidate.label, command=(sys.executable, str(STAND_IN), kind, *more.split()), limits=limits, steps=9)


def conducted(path, *kinds, told=None, budget=None, chooser=None, limits=LIMITS, runner=None, at_once=1, known=()):
    """The conductor, and the attempts of the store by label; ``known``: what may be chosen, where a chooser does not say."""
    def own(each):
        return PATIENT if limits is LIMITS and not each.label.startswith(HANG) else limits

    plan = Plan(subject="stand-in", trial_of=lambda each: trial_of(each, own(each)), tokens=64.0, budget=budget or Budget(),
                at_once=at_once, candidates=candidates(*(known or kinds)))
    with pytest.MonkeyPatch.context() as patch, Store(path) as store:
        patch.setattr(tempfile, "tempdir", str(path.parent))  # leases of its own: tests run beside each other
        conductor = Conductor(plan, chooser or Listed(candidates(*kinds)), runner or executor("local"), store, told)
        conductor.run()
        found = {}
        for each in store.attempts():
            found.setdefault(each.label, []).append(each)
    return conductor, found
