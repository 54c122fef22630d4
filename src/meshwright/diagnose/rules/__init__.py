"""What can be wrong with a run: one function for each kind of loss, each from a run to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.rules.communication import communication, network
from meshwright.diagnose.rules.compute import compute, devices, optimizer
from meshwright.diagnose.rules.counted import counted
from meshwright.diagnose.rules.host import data, host, idle
from meshwright.diagnose.rules.memory import memory, ran_out
from meshwright.diagnose.rules.phases import phases
from meshwright.diagnose.rules.pipeline import pipeline
from meshwright.diagnose.rules.ranks import hang, stragglers
from meshwright.diagnose.rules.recorded import recorded_rules
from meshwright.diagnose.rules.wall import complained, drift, ended, outside

if TYPE_CHECKING:
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.run import Run

    Rule = Callable[[Run], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    hang,
    ran_out,
    ended,
    data,
    host,
    idle,
    compute,
    optimizer,
    communication,
    network,
    phases,
    pipeline,
    stragglers,
    recorded_rules,
    memory,
    devices,
    counted,
    outside,
    drift,
    complained,
)
"""Every rule, in the order in which findings of equal weight are told."""

GUESSES: tuple[Rule, ...] = (host, idle, communication, stragglers)
"""Those that work out of sums what records of every exchange and every stop of the host tell."""


def rules_of(run: Run) -> tuple[Rule, ...]:
    """The rules that a run is asked by."""
    return RULES if run.recorded is None else tuple(each for each in RULES if each not in GUESSES)
