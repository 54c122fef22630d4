"""JSON of ``fix``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.findings import simple
from meshwright.domain.label import label
from meshwright.search.repair import Devices, Faster, Legal, WithinMemory
from meshwright.words import gib, percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.estimate import Estimate
    from meshwright.fix import Change, Fixed, Observed
    from meshwright.search.repair import Nearest, Wish


def fix_view(fixed: Fixed, applied: Sequence[str] = ()) -> dict[str, Any]:
    """``fix --json``: the contract's keys, and what else is known of each change."""
    base, searched = fixed.base, fixed.repairs
    return {
        "changes": [_change_view(each) for each in fixed.changes],
        "wish": wish_words(fixed.wish), "label": label(fixed.layout) if base is None else base.label,
        "base": None if base is None else {
            "fits": base.fits, "memory_peak_bytes": round(base.memory_peak_bytes),
            "memory_reserved_bytes": round(base.memory_reserved_bytes),
            "step_s": base.step_s, "stages": _stages_view(base),
        },
        "broken": [str(message) for message in fixed.broken],
        "out_of_memory": None if fixed.observed is None else _observed_view(fixed.observed),
        "bound_bytes": fixed.bound_bytes, "extra_bytes": fixed.extra_bytes,
        "searched": None if searched is None else {
            "edits": searched.searched_edits, "candidates": searched.candidates, "complete": searched.proved,
            "search_s": searched.search_s,
        },
        "nearest": None if searched is None or searched.nearest is None else _nearest_view(searched.nearest),
        "advice": [str(message) for message in fixed.advice], "remarks": [str(message) for message in fixed.remarks],
        "levers": list(fixed.levers), "applied": list(applied),
    }


def _change_view(change: Change) -> dict[str, Any]:
    """One change."""
    each = change.estimate
    return {
        "edits": [
            {"field": edit.field, "from": simple(edit.before), "to": simple(edit.after), "file": edit.file or None,
             "line": edit.line or None, "resume": edit.meaning.resume if edit.meaning else None}
            for edit in change.edits
        ],
        "fits": change.fits, "memory_peak_bytes": round(each.memory_peak_bytes), "step_s": each.step_s,
        "step_change_ratio": change.step_change_ratio,
        "step_change_interval": None if change.step_change_interval is None else list(change.step_change_interval),
        "moves": [move.words for move in change.moves], "label": each.label,
        "memory_reserved_bytes": each.memory_reserved_bytes, "memory_change_bytes": change.memory_change_bytes,
        "margin_bytes": change.margin_bytes, "stages": _stages_view(each), "risk": change.risk,
        "resume": change.meaning.resume, "resume_reason": change.meaning.reason, "diff": change.diff,
        "by_hand": [str(message) for message in change.by_hand], "notes": [str(message) for message in change.notes],
    }


def _stages_view(each: Estimate) -> list[dict[str, Any]]:
    return [
        {"stage": one.stage, "layers": one.layers, "memory_peak_bytes": round(one.memory.allocated_bytes),
         "memory_reserved_bytes": one.memory.reserved_bytes}
        for one in each.stages
    ]


def _observed_view(observed: Observed) -> dict[str, Any]:
    """The message that counts, and what it shows."""
    said = observed.said
    return {
        "kind": observed.kind,
        "verdicts": [
            {"kind": each.kind, "reason": str(each.message), "short_bytes": each.short_bytes} for each in observed.verdicts
        ],
        "rank": said.rank, "ranks": list(observed.ranks), "stage": observed.stage, "stage_reason": observed.why_stage,
        "phase": said.phase or None, "line": said.line,
        "requested_bytes": said.requested_bytes, "capacity_bytes": said.capacity_bytes, "free_bytes": said.free_bytes,
        "allocated_bytes": said.allocated_bytes, "unallocated_bytes": said.unallocated_bytes,
        "needed_bytes": observed.needed_bytes, "margin_bytes": observed.margin_bytes,
    }


def _nearest_view(nearest: Nearest) -> dict[str, Any]:
    return {
        "edits": [{"field": edit.field, "from": edit.before, "to": edit.after} for edit in nearest.edits],
        "label": label(nearest.layout), "missing": nearest.missing, "unit": nearest.unit,
    }


def wish_words(wish: Wish | None) -> str:
    """What is wished, in a few words."""
    match wish:
        case WithinMemory(bound_bytes=bound):
            return "fit in memory" if bound is None else f"fit in {gib(bound)} on each device"
        case Faster(ratio=ratio):
            return f"at least {percent(ratio)} more tokens/s"
        case Devices(count=count):
            return f"run on {plural(count, 'device')}"
        case Legal():
            return "keep every rule of layouts and of the framework"
    return "nothing"
