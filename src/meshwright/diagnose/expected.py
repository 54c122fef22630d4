"""What should have been: each part of the step beside its prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from meshwright.diagnose.finding import HIGH, Evidence, Finding, severity_of
from meshwright.diagnose.intervals import part_interval
from meshwright.diagnose.remedies import remedies
from meshwright.errors import Message
from meshwright.words import integer, percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

Speed = Literal["normal", "slow", "unknown"]
LONGER = 1.5
"""How many times its prediction a part takes before it is told on its own, where it has no interval: our judgement."""
ALIKE = 0.05
"""Steps whose tokens differ by less are of one length: our judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One part, observed and predicted; seconds of a step."""

    part: str
    observed_s: float | None
    predicted_s: float
    interval: tuple[float, float] | None = None
    """Where nine of ten lie: of a step, runs; of a part, the cluster's own collectives (``intervals``); None where none tell."""


def expected(run: Run) -> tuple[Expected, ...]:
    """Every part that has a prediction; nothing without one.

    Holds:   observed parts are those of ``run.split``, so they are None where the files do not tell; of reinforcement learning
             there is one, an optimizer step of the actor's update.
    """
    predicted = run.predicted
    if predicted is None:
        return ()
    time, split = predicted.time, run.split
    if run.phases is not None:
        observed_s = comparable_s(run)
        interval = predicted.interval.step_s if predicted.interval is not None else None
        training = Expected(part="training", observed_s=observed_s, predicted_s=predicted.step_s, interval=interval)
        return () if observed_s is None else (training,)
    rows = [
        Expected(
            part="step",
            observed_s=run.step_s,
            predicted_s=predicted.step_s,
            interval=predicted.interval.step_s if predicted.interval is not None else None,
        )
    ]
    seen = dict(split.exposed) if split is not None else {}
    parts = (
        ("compute", _seconds(run, "compute_ratio"), time.compute_s + time.optimizer_s),
        ("bubble", _seconds(run, "bubble_ratio"), time.bubble_s),
        ("tp", seen.get("tp"), time.tensor_parallel_s),
        ("cp", seen.get("cp"), time.context_parallel_s),
        ("ep", seen.get("ep"), time.expert_parallel_s),
        ("pp", seen.get("pp"), time.pipeline_exposed_s),
        ("dp", seen.get("dp"), time.data_parallel_exposed_s),
        ("host", _seconds(run, "host_ratio"), time.host_s),
        ("data", _seconds(run, "data_ratio"), 0.0),
    )
    case, layout = run.case, run.layout
    assert case is not None and layout is not None, "what is predicted has a case and a layout"
    rows += [
        Expected(part=name, observed_s=observed, predicted_s=should, interval=part_interval(name, should, case.cluster, layout))
        for name, observed, should in parts
    ]
    return tuple(rows)


def comparable_s(run: Run) -> float | None:
    """Seconds of the training step that the prediction is of; None where nobody can say that it is of as many tokens."""
    if run.phases is None:
        return run.step_s
    training, case = run.training, run.case
    if training is None or training.tokens is None or case is None:
        return None
    return training.step_s if abs(training.tokens / case.batch.tokens - 1.0) <= ALIKE else None


def why_not(run: Run) -> str:
    """Why the prediction of a training step is not set beside a step of reinforcement learning; empty where it is."""
    if run.phases is None or run.predicted is None or run.case is None or comparable_s(run) is not None:
        return ""
    training = run.training
    if training is None:
        return "The log does not time the actor's update: nothing of a step is compared with the predicted training step."
    if training.optimizer_steps is None:
        return (
            "The actor's update is not compared with the predicted training step: how many optimizer steps it has is not known; "
            "the framework's files beside the log (--from) say it."
        )
    predicted = f"the predicted step is of {integer(run.case.batch.tokens)}"
    if training.tokens is None:
        return f"The actor's update is not compared with the predicted training step: the log counts no tokens, {predicted}."
    return (
        f"The actor's update is not compared with the predicted training step: an optimizer step of the log is of "
        f"{integer(training.tokens)} tokens, {predicted}; a plan of samples of "
        f"{integer(training.tokens / run.case.batch.global_batch_sequences)} tokens, their mean (plan --sequence), is of as many."
    )


def _seconds(run: Run, name: str) -> float | None:
    return None if run.split is None else run.split.seconds(getattr(run.split, name))


def speed(run: Run) -> Speed:
    """Whether the step is within the interval of its prediction; a faster one is normal, too.

    Of reinforcement learning: an optimizer step of the actor's update.
    """
    predicted, step_s = run.predicted, comparable_s(run)
    if predicted is None or predicted.interval is None or step_s is None:
        return "unknown"
    return "slow" if step_s > predicted.interval.step_s[1] else "normal"


def longer(run: Run) -> Iterator[Finding]:
    """Parts that take much longer than predicted, and a step that does without saying where."""
    told = False
    step = run.step_s
    for each in expected(run):
        if each.part in ("step", "training", "compute", "data", "bubble", "host") or each.observed_s is None or step is None:
            continue
        beyond = (each.observed_s - each.predicted_s) / step
        most = each.interval[1] if each.interval is not None else LONGER * each.predicted_s
        if each.observed_s > most and beyond >= HIGH:
            told = True
            yield Finding(
                message=Message(
                    f"expected.{each.part}",
                    "{part} communication takes {observed} of each step, expected {predicted}{why}",
                    {
                        "part": each.part.upper(),
                        "observed": seconds(each.observed_s),
                        "predicted": seconds(each.predicted_s),
                        "why": _why(run, each.part),
                    },
                ),
                severity=severity_of(beyond),
                loss_ratio=beyond,
                evidence=(Evidence(run.split.about if run.split else ""),),
                remedies=remedies(f"expected.{each.part}", run.framework),
            )
    predicted, seen_s = run.predicted, comparable_s(run)
    if not told and speed(run) == "slow" and predicted is not None and predicted.interval is not None and seen_s is not None:
        beyond, whole = 1.0 - predicted.step_s / seen_s, run.phases is None
        if run.phases is not None:
            beyond *= run.phases.ratio("actor") or 0.0
        yield Finding(
            message=Message(
                "expected.step" if whole else "expected.training",
                "{what} takes {observed}; predicted are {predicted}, and {level:.0%} of runs lie between {low} and {high}",
                {
                    "what": "a step" if whole else "an optimizer step of the actor's update",
                    "observed": seconds(seen_s),
                    "predicted": seconds(predicted.step_s),
                    "level": predicted.interval.level,
                    "low": seconds(predicted.interval.step_s[0]),
                    "high": seconds(predicted.interval.step_s[1]),
                },
            ),
            severity=severity_of(beyond),
            loss_ratio=beyond,
            general=True,
            remedies=remedies("expected.step" if whole else "expected.training", run.framework),
            evidence=(Evidence(f"the steps take {percent(seen_s / predicted.step_s - 1.0)} longer than predicted"),),
        )


def _why(run: Run, part: str) -> str:
    """A reason that the layout itself shows."""
    case, layout = run.case, run.layout
    if case is None or layout is None:
        return ""
    if part == "tp" and layout.tensor_parallel > case.cluster.devices_per_node:
        return ": its group crosses nodes"
    return ""
