"""Where a step of reinforcement learning loses time: passes that cost too much, generation, what lies between the phases.

    a forward pass = 1/3 of a forward and a backward pass, 1/4 where the forward pass is done again (full recomputation)

A pass of log probabilities runs forward over the tokens that the actor is then updated with, so that it takes a third of the update
at most, and less where the update goes over its tokens several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.words import gib, integer, percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.phases import Phases
    from meshwright.diagnose.run import Run

FORWARD = 1 / 3
"""Of an update: what a forward pass over the same tokens takes at most."""
SLOW_PASS = 0.5
"""Of an update, from which a pass is told: our judgement, a half more than it takes at most."""
MOST_OF_STEP = 0.5
"""Share of the step from which generation is told: our judgement, as the next three."""
LONG_TAIL = 2.0
"""Times the mean that the longest response has."""
BETWEEN = 0.10
"""Share of the step that weights and switching take, or rewards."""
FULL = 0.95
"""Share of the device that engine and trainer may hold together."""
PASSES = {
    "old_log_probs": ("old log probabilities", "actor", 1), "reference_log_probs": ("reference log probabilities", "actor", 1),
    "log_probs": ("log probabilities, of both passes at most", "actor", 2), "values": ("values", "critic", 1),
}
"""Phase -> its words, the update over the same tokens, and how many passes it may be."""
LOSSES = (
    ("phases.weights", "weights on their way to the engine, and switching between trainer and engine, take",
     ("weights", "switching")),
    ("phases.rewards", "rewards that are computed while neither engine nor trainer works take", ("rewards",)),
)
ENGINE_SHARE, ENGINE_FREED = (f"actor_rollout_ref.rollout.{name}" for name in ("gpu_memory_utilization", "free_cache_engine"))


def phases(run: Run) -> Iterator[Finding]:
    """All of them."""
    found = run.phases
    if found is None or run.log is None or run.steady is None:
        return
    yield from _passes(run, found)
    yield from _generation(run, found)
    yield from _between(run, found)
    yield from _beside_the_engine(run)


def _passes(run: Run, found: Phases) -> Iterator[Finding]:
    """Forward passes that take more of the update over the same tokens than forward passes can."""
    slow, beyond_s = [], 0.0
    for name, (words, update, passes) in PASSES.items():
        spent, whole = found.time_s(name), found.time_s(update)
        if spent is not None and whole and spent > SLOW_PASS * passes * whole:
            slow.append((words, spent, whole))
            beyond_s += spent - FORWARD * passes * whole
    if not slow:
        return
    beyond = min(1.0, beyond_s / found.step_s)
    _, spent, whole = max(slow, key=lambda each: each[1] / each[2])
    said = " and ".join(words for words, *_ in slow)
    yield Finding(
        message=Message(
            "phases.log_probs",
            "{said} take up to {share} of the update over the same tokens, where a forward pass is a third of it, and a quarter "
            "under full recomputation: these passes run in far smaller micro-batches than they could, or bring back what was "
            "offloaded",
            {"said": said, "share": percent(spent / whole)},
        ),
        severity=severity_of(beyond),
        loss_ratio=beyond,
        evidence=(
            *(Evidence(f"{words}: {seconds(each)}, the update {seconds(update)}", _place(run)) for words, each, update in slow),
            *([] if run.memory_bytes is None else [Evidence(f"the trainer reserves {gib(run.memory_bytes)} at most")]),
        ),
        remedies=_remedies(run, "phases.log_probs"),
        refuted_by="the update goes over fewer tokens than these passes (samples that are dropped before it)",
        source="a forward pass by its operations; the threshold is ours",
    )


def _generation(run: Run, found: Phases) -> Iterator[Finding]:
    """Generation that is most of the step, with what the longest response says beside the mean."""
    share, spent = found.ratio("generation"), found.time_s("generation")
    if share is None or spent is None or share < MOST_OF_STEP:
        return
    mean, most = run.response_tokens
    tail = None if mean is None or most is None or not mean else most / mean
    long = tail is not None and tail >= LONG_TAIL
    why = (
        f": the longest response has {integer(most or 0.0)} tokens, {tail:.1f} times the mean of {integer(mean or 0.0)}: near "
        "the end the engine generates few at once" if long else ""
    )
    yield Finding(
        message=Message(
            "phases.generation", "generation takes {share} of the step{why}", {"share": percent(share), "why": why},
        ),
        severity="warning" if long else "advice",
        evidence=(Evidence(f"generation: {seconds(spent)} of {seconds(found.step_s)}", _place(run)),),
        remedies=_remedies(run, "phases.generation.tail" if long else "phases.generation"),
        source="the thresholds are ours",
    )


def _between(run: Run, found: Phases) -> Iterator[Finding]:
    """Time in which nothing is generated and nothing is trained."""
    for id_, words, names in LOSSES:
        share = found.ratio(*names)
        if share is None or share <= BETWEEN:
            continue
        yield Finding(
            message=Message(id_, "{words} {share} of the step", {"words": words, "share": percent(share)}),
            severity=severity_of(share),
            loss_ratio=min(1.0, share),
            evidence=tuple(
                Evidence(f"timer {timer}: {seconds(spent)} of {seconds(found.step_s)}", _place(run))
                for phase in found.phases if phase.name in names for timer, spent in phase.timers
            ),
            remedies=_remedies(run, id_),
            source="the threshold is ours",
        )


def _beside_the_engine(run: Run) -> Iterator[Finding]:
    """An engine that keeps its memory while the trainer needs more than what is left."""
    settings = run.said_settings
    used, device = run.memory_bytes, run.device_memory_bytes
    try:
        kept = float(settings.get(ENGINE_SHARE, ""))
    except ValueError:
        return
    if used is None or not device or settings.get(ENGINE_FREED) != "False" or not 0.0 < kept <= 1.0 or kept + used / device <= FULL:
        return
    yield Finding(
        message=Message(
            "phases.memory",
            "the engine keeps {kept} of the device while it trains, and the trainer reserves {used}: together {both} of {device}",
            {"kept": percent(kept, 0), "used": gib(used), "both": percent(kept + used / device, 0), "device": gib(device)},
        ),
        severity="warning",
        evidence=(Evidence("most that the trainer reserves", _place(run)),),
        remedies=_remedies(run, "phases.memory"),
        source="the threshold is ours",
    )


def _remedies(run: Run, id_: str) -> tuple[str, ...]:
    return remedies(id_, run.framework, spoken=run.log.framework if run.log is not None else "")


def _place(run: Run) -> Place:
    assert run.log is not None and run.steady is not None, "phases come of a log"
    return Place(file=run.log.file, line=run.steady.steps[0].line)
