"""JSON of what was run: trials by the contract's keys, shared by ``sweep`` and ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.measuring.session import best_of, blocks_of, by_turns
from meshwright.api.views.estimates import number, whole
from meshwright.measure.chooser import layout_of
from meshwright.measure.conduct.budget import HOUR_S, MINUTE_S
from meshwright.measure.conduct.finals import said
from meshwright.measure.store import folders_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.measuring.session import Conducted, Place
    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.chooser import Candidate
    from meshwright.measure.conduct.budget import Price
    from meshwright.measure.store import Attempt

Document = dict[str, Any]
OURS = (
    "ended.*", "keeper.*", "output*.log", "record/*", "array.json", "job.sh", "handed.json", "begun", "cancel", "unkept", "hand.py",
    "task", "meeting", "result-*", "failure-*", "reused-*", "reused-record/*",
)
"""Files in the folder of a trial that are not what it was run by, but how."""


def trials_view(
    given: Subject, where: Place, candidates: Sequence[Candidate], cost: Price, described: Sequence[tuple[str, str]],
    conducted: Conducted | None,
) -> Document:
    """What was asked, what it was expected to cost, and what came of every trial; the last attempt of each speaks for it."""
    view: Document = {
        "program": given.title, "executor": where.executor.name, "store": str(where.store),
        "model": given.case.model.name, "cluster": given.case.cluster.name, "devices": given.case.cluster.num_devices,
        "global_batch_sequences": given.case.batch.global_batch_sequences, "sequence_tokens": given.case.batch.sequence_tokens,
        "truncated_layers": None if given.shorter is None else given.shorter.model.num_layers,
        "price": {"trials": cost.trials, "device_hours": cost.device_s / HOUR_S, "minutes": cost.wall_s / MINUTE_S},
        "planned": [{"label": each.label, "predicted_step_s": number(each.predicted_s),
                     "predicted_memory_bytes": whole(each.predicted_memory_bytes) if each.predicted_memory_bytes else None}
                    for each in candidates],
    }
    if conducted is None:
        return view | {"dry_run": [{"label": label, "runs": text} for label, text in described], "trials": [], "best": None,
                       "finals": None,
                       "stopped": "dry run", "device_hours": 0.0}
    predicted = {each.label: each.predicted_s for each in candidates}
    trials = _by_trial(conducted.attempts)
    best = best_of(conducted.attempts)
    return view | {
        "trials": [_trial(each, predicted.get(each[-1].label)) for each in trials],
        "best": None if best is None else _best(best, predicted.get(best.label), where),
        "finals": _finals(conducted.attempts),
        "stopped": conducted.stopped, "device_hours": conducted.device_s / HOUR_S, "complete": not conducted.interrupted,
        "nodes_set_aside": [{"node": node, "why": why} for node, why in conducted.aside.items()],
    }


def _by_trial(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Attempts that have ended, layout by layout, the fastest first, those without a step last.

    Holds:   of what was measured by turns the last attempt has the step of its blocks.
    """
    found: dict[str, list[Attempt]] = {}
    for each in attempts:
        if each.outcome is not None and not layout_of(each.label)[1]:
            found.setdefault(each.id, []).append(each)
    blocks = blocks_of(attempts)
    for several in found.values():
        if several[-1].label in blocks:
            several[-1] = by_turns(several[-1], blocks[several[-1].label])
    return sorted(found.values(), key=lambda several: (bool(blocks) and several[-1].label not in blocks, *_rank(several[-1])))


def _rank(attempt: Attempt) -> tuple[bool, float]:
    outcome = attempt.outcome
    assert outcome is not None, "only attempts that have ended are ranked"
    return not outcome.measured, outcome.step_s or 0.0


def _trial(attempts: Sequence[Attempt], predicted_s: float | None) -> Document:
    last = attempts[-1]
    outcome = last.outcome
    assert outcome is not None, "only attempts that have ended are shown"
    return {
        "id": last.id, "label": last.label, "status": outcome.status, "rank": outcome.rank, "evidence": outcome.evidence,
        "step_s": number(outcome.step_s), "interval": list(outcome.interval_s) if outcome.interval_s else None,
        "tokens_per_s_per_device": number(outcome.tokens_per_s_per_device),
        "device_hours": sum(each.outcome.device_s for each in attempts if each.outcome is not None) / HOUR_S,
        "attempt": last.attempt, "predicted_step_s": number(predicted_s), "executor": last.executor,
        "error_ratio": predicted_s / outcome.step_s - 1.0 if outcome.measured and predicted_s and outcome.step_s else None,
        "memory_peak_bytes": whole(outcome.memory_peak_bytes) if outcome.memory_peak_bytes is not None else None,
        "folder": last.folder,
    }


def _finals(attempts: Sequence[Attempt]) -> Document | None:
    """What was measured by turns, and what that has come to; None where nothing was."""
    blocks = blocks_of(attempts)
    if not blocks:
        return None
    return {"verdict": said(blocks), "layouts": [{"label": label, "blocks_s": steps} for label, steps in blocks.items()]}


def _best(attempt: Attempt, predicted_s: float | None, where: Place) -> Document:
    """The best, with the files that it was run by."""
    folder = folders_of(where.store) / attempt.folder
    files = [str(path) for path in sorted(Path(folder).rglob("*"))
             if path.is_file() and not any(path.match(each) for each in OURS)] if folder.is_dir() else []
    return _trial([attempt], predicted_s) | {"files": files}
