"""Step 3 of the playbook: raise the throughput, from the guided start to the layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.domain.layout import Layout, NoRecompute
from meshwright.judging.neighbours import vary
from meshwright.judging.predicates import change
from meshwright.judging.start import start_layout
from meshwright.value import Value
from meshwright.words import seconds, signed

if TYPE_CHECKING:
    from meshwright.judging.facts import Facts


class SpeedRung(Value, frozen=True, kw_only=True):
    """Step time after one more knob (or several that are legal only together), on top of those before."""

    knob: str
    label: str
    step_s: float
    step_change_ratio: float
    memory_reserved_bytes: float
    fits: bool


class SpeedStep(Value, frozen=True, kw_only=True):
    """Step 3: from the guided start to the layout."""

    rungs: tuple[SpeedRung, ...]
    sentence: str


GROUPS = (
    ("tp", ("tensor_parallel", "sequence_parallel")), ("cp", ("context_parallel", "context_kind")), ("pp", ("pipeline_parallel",)),
    ("experts", ("expert_parallel", "expert_tensor_parallel")), ("mb", ("microbatch_sequences",)),
    ("overlap", ("overlap",)), ("vp and stages", ("virtual_stages", "schedule", "stage_layers")), ("recompute", ("recompute",)),
    ("sharding", ("optimizer_shards", "gradient_shards", "parameter_shards")), ("offload", ("offload",)),
)


def speed_step(facts: Facts) -> SpeedStep:
    """From the guided start to the layout, one group of knobs at a time, each at the same devices and global batch."""
    case, features, target = facts.case, facts.features, facts.layout
    bare = replace(target, recompute=NoRecompute())
    now = start_layout(facts) or (target if facts.refusals(bare) else bare)
    rungs, pending, words = [_rung(facts, "guided start", now, None)], dict[str, Any](), list[str]()
    for word, names in GROUPS:
        wanted = {name: getattr(target, name) for name in names if getattr(target, name) != getattr(now, name)}
        if not wanted and not pending:
            continue
        pending |= wanted
        words += [word] if wanted else []
        then = target if now.world != target.world else vary(case, features, now, **pending)
        if isinstance(then, str) or facts.refusals(then):
            continue
        if then != now:
            rungs.append(_rung(facts, " + ".join(words), then, rungs[-1]))
        now, pending, words = then, {}, []
    if now != target:
        rungs.append(_rung(facts, " + ".join(words) or "the rest", target, rungs[-1]))
    slower = facts.step_s > rungs[0].step_s
    fitting = [rung for rung in rungs[1:] if rung.fits]
    largest = max(fitting, key=lambda rung: rung.step_change_ratio * (1 if slower else -1), default=None)
    most = f"; most by {largest.knob} ({signed(largest.step_change_ratio)})" if largest is not None else ""
    return SpeedStep(
        rungs=tuple(rungs),
        sentence=f"from {seconds(rungs[0].step_s)} at the guided start ({rungs[0].label}) to {seconds(facts.step_s)}, "
        f"{change(facts, facts.step_s, rungs[0].step_s)}{most}",
    )


def _rung(facts: Facts, knob: str, layout: Layout, before: SpeedRung | None) -> SpeedRung:
    trial = facts.trial(layout)
    return SpeedRung(
        knob=knob, label=facts.label(layout), step_s=trial.step_s,
        step_change_ratio=trial.step_s / before.step_s - 1.0 if before else 0.0, memory_reserved_bytes=trial.reserved_bytes,
        fits=trial.estimate.fits,
    )
