"""JSON of ``diagnose``: the document of the contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.runs import closest_view
from meshwright.diagnose.bandwidth import reached
from meshwright.domain.observed.steady import time_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.run import Run
    from meshwright.errors import Message
    from meshwright.evidence.rows.near import Near
    from meshwright.readers.formats import Observed

PARTS = ("data", "host", "compute", "communication_exposed", "idle", "bubble", "waiting", "other")


def diagnose_view(found: Diagnosis, observed: Observed, notes: Sequence[Message], closest: Near | None) -> dict[str, Any]:
    """``diagnose --json``."""
    run, split = found.run, found.run.split
    hang = run.hang
    return {
        "verdict": found.verdict,
        "observed": observed_view(found),
        "split": None
        if split is None
        else {
            "about": split.about,
            **{f"{name}_ratio": getattr(split, f"{name}_ratio") for name in PARTS},
            "communication_exposed": {name: split.exposed.get(name) for name in ("tp", "cp", "ep", "pp", "dp", "unknown")},
        },
        "phases": phases_view(run),
        "expected": {
            each.part: {
                "observed_s": each.observed_s,
                "predicted_s": each.predicted_s,
                "interval": list(each.interval) if each.interval is not None else None,
            }
            for each in found.expected
        },
        "findings": [finding_view(each) for each in found.findings],
        "guides": [
            {
                "rule": each.rule,
                "says": each.says,
                "source": each.source,
                "bound_ratio": each.bound_ratio,
                "observed_ratio": each.observed_ratio,
                "holds": each.holds,
            }
            for each in found.guides
        ],
        "hang": None
        if hang is None
        else {
            "kind": hang.kind,
            "ranks": list(hang.ranks),
            "collective": hang.collective,
            "sequence": hang.sequence,
        },
        "bandwidths": [asdict(each) for each in reached(run.bandwidths)],
        "closest_run": closest_view(closest),
        "label": run.label,
        "read": [{"file": file, "formats": list(names)} for file, names in observed.read],
        "left": [{"file": each.path, "why": each.words} for each in observed.left],
        "notes": [*(str(each) for each in notes if each not in observed.left), *found.notes],
    }


def phases_view(run: Run) -> dict[str, Any] | None:
    """The phases of a step of reinforcement learning, in their order, and what is left."""
    found = run.phases
    if found is None:
        return None
    mean, most = run.response_tokens
    return {
        "about": found.about,
        "step_s": found.step_s,
        "phases": [
            {"phase": each.name, "time_s": each.time_s, "ratio": found.share(each.time_s), "timers": dict(each.timers)}
            for each in found.phases
        ],
        "other_s": found.other_s,
        "actor_mfu_ratio": run.actor_mfu_ratio,
        "optimizer_steps": None if run.training is None else run.training.optimizer_steps,
        "optimizer_step_tokens": None if run.training is None else run.training.tokens,
        "response_mean_tokens": mean,
        "response_most_tokens": most,
        "host_bytes": run.host_bytes,
    }


MOST_STEPS = 2000
"""Steps of a picture; of longer runs spikes and what is left out are kept, and of the others some at even distances."""


def picture_view(found: Diagnosis, view: dict[str, Any]) -> dict[str, Any]:
    """What is drawn: the document, with the times of steps and the compute of ranks beside it."""
    run, split = found.run, view["split"]
    ranks = {each.rank: each.split for each in run.traces if each.rank is not None}
    ranks |= {each.rank: each for each in run.splits if each.rank is not None}
    return {
        **view,
        "model": run.case.model.name if run.case is not None else None,
        "dropped": run.steady.dropped if run.steady is not None else 0,
        "split": None if split is None or run.split is None else {**split, "step_s": run.split.step_s},
        "steps": list(_drawn(run)),
        "ranks": [
            {"rank": rank, "compute_s": each.compute_s, "window_s": each.window_s}
            for rank, each in sorted(ranks.items()) if each.window_s
        ],
    }


def _drawn(run: Run) -> Iterator[dict[str, Any]]:
    """Steps with a time, and whether they count."""
    if run.steady is None or run.log is None:
        return
    counted = {each.number for each in run.steady.steps}
    spikes = {each.number for each in run.steady.spikes}
    apart = max(1, -(-len(counted) // MOST_STEPS))
    for place, each in enumerate(run.log.steps):
        kind = "spike" if each.number in spikes else "steady" if each.number in counted else "left out"
        if (spent := time_of(each)) is not None and (kind == "spike" or place % apart == 0):
            yield {"number": each.number, "step_s": spent, "kind": kind}


def observed_view(found: Diagnosis) -> dict[str, Any]:
    """What was seen, in figures."""
    run = found.run
    steady = run.steady
    return {
        "format": run.log.format if run.log is not None else next((each.format for each in run.traces), None),
        "iterations": len(run.log.steps) if run.log is not None else 0,
        "steady": len(steady.steps) if steady is not None else 0,
        "step_s": run.step_s,
        "step_low_s": steady.low_s if steady is not None else None,
        "step_high_s": steady.high_s if steady is not None else None,
        "tflops_per_device": None if run.model_flops_per_s_per_device is None else run.model_flops_per_s_per_device / 1e12,
        "tokens_per_s_per_device": run.tokens_per_s_per_device,
        "effective_tokens_per_s_per_device": found.effective_tokens_per_s_per_device,
        "mfu_ratio": run.mfu_ratio,
        "memory_bytes": run.memory_bytes,
        "devices": run.world,
        "ended": run.ending.status if run.ending is not None else None,
    }


def finding_view(each: Finding) -> dict[str, Any]:
    """One finding; its place is that of its first evidence."""
    place = next((seen.place for seen in each.evidence if seen.place is not None), None)
    return {
        "id": each.id,
        "severity": each.severity,
        "message": str(each.message),
        "evidence": [
            {"text": seen.text, "file": seen.place.file if seen.place else None, "line": seen.place.line if seen.place else None}
            for seen in each.evidence
        ],
        "loss_ratio": each.loss_ratio,
        "predicted_gain_ratio": each.predicted_gain_ratio,
        "gain_is_bound": each.at_most,
        "change": each.change or None,
        "remedy": list(each.remedies),
        "refuted_by": each.refuted_by or None,
        "source": each.source or None,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "t0_s": place.t0_s if place else None,
        "t1_s": place.t1_s if place else None,
    }
