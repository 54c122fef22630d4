"""Everything that there is to say about one layout of a case: a print-out of estimates, never a second calculation."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

from meshwright.estimate.launching import LaunchCost, launch_costs
from meshwright.explain.ladder import SpeedStep, speed_step
from meshwright.explain.memory_fit import FitStep, fit_step
from meshwright.explain.reach import BatchStep, batch_step
from meshwright.explain.sensitivity import Sensitivity, WhatIf, sensitivities, what_ifs
from meshwright.judging.contests import disagreements
from meshwright.judging.facts import ANYONE, Facts
from meshwright.judging.guides import judge_all
from meshwright.judging.losses import Cause, Loss, causes, losses
from meshwright.judging.start import GuidedStart, differences, guided_start
from meshwright.search.offloaded import first_of
from meshwright.search.result import SearchOptions
from meshwright.search.sizes import on
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.judging.finding import Disagreement, Judgement
    from meshwright.search.runner import Runner


class Fastest(Value, frozen=True, kw_only=True):
    """What ``plan`` would list first on the devices of the layout, or the layout itself where that is not expected to be slower."""

    label: str
    step_s: float
    memory_reserved_bytes: float
    step_change_ratio: float
    """Its step over that of the layout, minus one."""
    expected_change_ratio: float
    """The same of what plans are ranked by: the step with the risk of not running."""
    differences: tuple[str, ...]


class Explanation(Value, frozen=True, kw_only=True):
    """Why a layout is as fast as it is, where the rest goes, what a step of each knob would do, and what the guides say."""

    label: str
    fit: FitStep
    batch: BatchStep
    throughput: SpeedStep
    start: GuidedStart | None
    fastest: Fastest | None
    """None where nothing fits."""
    losses: tuple[Loss, ...]
    """Points of 100; ``ideal`` is the MFU."""
    causes: tuple[Cause, ...]
    sensitivities: tuple[Sensitivity, ...]
    what_ifs: tuple[WhatIf, ...]
    launch: tuple[LaunchCost, ...]
    """How the run is launched, and what each setting costs."""
    judgements: tuple[Judgement, ...]
    disagreements: tuple[Disagreement, ...]


def explain(
    case: Case, layout: Layout, features: Features, estimate: Estimate | None = None, runner: Runner = ANYONE, *,
    first: bool = False,
) -> Explanation:
    """Explain a layout.

    ``estimate``: that of the layout where it is known; one that carries its linearity saves computing it again. ``runner``: the
    framework that is to run what is proposed. ``first``: the layout is what ``plan`` lists first on its devices.
    Errors:  none for layouts that can be estimated; what the framework refuses is said, not raised.
    """
    facts = Facts(case, layout, features, estimate, runner)
    judged = judge_all(facts)
    return Explanation(
        label=facts.estimate.label,
        fit=fit_step(facts),
        batch=batch_step(facts),
        throughput=speed_step(facts),
        start=guided_start(facts),
        fastest=_fastest(facts, first=first),
        losses=losses(facts.estimate),
        causes=causes(facts.estimate),
        sensitivities=sensitivities(facts),
        what_ifs=what_ifs(facts),
        launch=launch_costs(case, layout),
        judgements=judged,
        disagreements=disagreements(facts, judged),
    )


def _fastest(facts: Facts, *, first: bool) -> Fastest | None:
    """The layout itself where it is known to be the first; else beside the first of its devices."""
    options = SearchOptions(top=1)
    own = on(facts.case, facts.layout.world)
    found = None if first else first_of(own, facts.features, options, facts.runner)
    trials = [facts.trial(facts.layout), *([] if found is None else [facts.trial(found.layout)])]
    fitting = [each for each in trials if each.estimate.fits and not each.refused_because]
    if not fitting:
        return None
    trial = min(fitting, key=lambda each: each.estimate.expected_step_s)
    return Fastest(
        label=facts.label(trial.layout),
        step_s=trial.step_s,
        memory_reserved_bytes=trial.reserved_bytes,
        step_change_ratio=trial.step_s / facts.step_s - 1.0,
        expected_change_ratio=_ratio(trial.estimate.expected_step_s, facts.estimate.expected_step_s),
        differences=differences(facts.layout, trial.layout),
    )


def _ratio(then_s: float, now_s: float) -> float:
    """The change between two times, of which what never runs is infinite; 0 where neither runs."""
    if isinf(now_s):
        return 0.0 if isinf(then_s) else -1.0
    return 1.0 if isinf(then_s) else then_s / now_s - 1.0
