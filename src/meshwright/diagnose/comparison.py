"""Two runs side by side: which part of the step changed, and which settings that it depends on did."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.diagnose.phases import ALSO
from meshwright.readers.logs.parts import PHASES
from meshwright.words import integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.diagnose.run import Run

PARTS = (
    ("compute", "compute_ratio"),
    ("communication", "communication_exposed_ratio"),
    ("waiting", "waiting_ratio"),
    ("bubble", "bubble_ratio"),
    ("data", "data_ratio"),
    ("host", "host_ratio"),
    ("idle", "idle_ratio"),
    ("other", "other_ratio"),
)
DEPENDS = {
    "compute": r"micro.?batch|recompute|checkpoint.?activations|fp8|bf16|fp16|precision|hidden|layers|attention|compile"
    r"|seq.?length|global.?batch",
    "communication": r"overlap|tensor|data.?parallel|zero|distributed.?optimizer|nccl|bucket|world|context|expert",
    "waiting": r"pipeline|virtual|layout|layers",
    "bubble": r"pipeline|virtual|global.?batch|micro.?batch|world",
    "data": r"worker|data|loader|prefetch|dataset",
    "host": r"compile|graph|micro.?batch|log|gc",
    "idle": r"compile|graph|micro.?batch",
    "generation": r"rollout|response|generation|vllm|sglang|train.?batch|prompts",
    "old_log_probs": r"log.?prob|tokens of a step|offload",
    "reference_log_probs": r"log.?prob|tokens of a step|offload",
    "log_probs": r"log.?prob|tokens of a step|offload",
    "values": r"critic|tokens of a step|offload",
    "critic": r"critic|tokens of a step|offload",
    "actor": r"actor|policy|micro.?batch|mini.?batch|global.?batch|recompute|tokens of a step|offload|tensor|pipeline|epochs",
    "weights": r"bucket|refit|buffer|tensor|pipeline",
    "switching": r"offload|free.?cache|sleep",
}
"""Part -> settings that it depends on."""
APART = 0.02
"""A part that changes by less of the step is the same."""
ALIKE = 0.02
"""Lengths and tokens that differ by less are the same: they vary from step to step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the step in both runs; seconds, None where a run does not tell."""

    part: str
    a_s: float | None
    b_s: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One setting that differs; an empty text where a run does not have it."""

    key: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed from the first run to the second."""

    a: Run
    b: Run
    step_change_ratio: float | None
    """Of the median step; None where a run has none."""
    parts: tuple[Part, ...]
    settings_changed: tuple[Changed, ...]
    notes: tuple[str, ...]


def compare_runs(a: Run, b: Run) -> Comparison:
    """What changed from run ``a`` to run ``b``.

    A cause is named only where the part itself changed and a setting that it depends on did; where parts are not known on both
    sides, the step alone is compared and the note says so.
    """
    settings = _changed(_settings(a), _settings(b))
    changed = (*settings, *_lengths(a, b))
    step = None if a.step_s is None or b.step_s is None or not a.step_s else b.step_s / a.step_s - 1.0
    parts, notes = [], []
    if a.split is not None and b.split is not None:
        parts = [
            _part(
                name,
                a.split.seconds(getattr(a.split, ratio)),
                b.split.seconds(getattr(b.split, ratio)),
                changed,
                max(a.split.step_s, b.split.step_s),
            )
            for name, ratio in PARTS
            if getattr(a.split, ratio) is not None or getattr(b.split, ratio) is not None
        ]
    elif a.phases is not None and b.phases is not None:
        whole = max(a.phases.step_s, b.phases.step_s)
        names = [name for name in (*ALSO, *PHASES) if a.phases.time_s(name) is not None or b.phases.time_s(name) is not None]
        parts = [_part(name, a.phases.time_s(name), b.phases.time_s(name), changed, whole) for name in names]
        parts.append(_part("other", a.phases.other_s, b.phases.other_s, changed, whole))
    else:
        silent = [run.log.file if run.log is not None else "a run" for run in (a, b) if run.split is None]
        notes.append(f"{' and '.join(silent)} tell no parts of the step: why it changed cannot be said from them alone")
    if not (_settings(a) and _settings(b)):
        notes.append("settings are not known of both runs")
    return Comparison(a=a, b=b, step_change_ratio=step, parts=tuple(parts), settings_changed=settings, notes=tuple(notes))


def _part(name: str, a_s: float | None, b_s: float | None, changed: tuple[Changed, ...], step_s: float) -> Part:
    if a_s is None or b_s is None:
        return Part(part=name, a_s=a_s, b_s=b_s, why="known of one run alone")
    if abs(b_s - a_s) < APART * step_s:
        return Part(part=name, a_s=a_s, b_s=b_s, why="the same")
    touching = [each for each in changed if re.search(DEPENDS.get(name, "(?!)"), each.key, re.IGNORECASE)]
    if not touching:
        return Part(part=name, a_s=a_s, b_s=b_s, why="no setting that it depends on is known to have changed")
    told = ", ".join(f"{each.key} {each.a or 'unset'} -> {each.b or 'unset'}" for each in touching[:4])
    return Part(part=name, a_s=a_s, b_s=b_s, why=told + (f" and {len(touching) - 4} more" if len(touching) > 4 else ""))


def _lengths(a: Run, b: Run) -> Iterator[Changed]:
    """What of responses and tokens of a step with phases differs by more than it varies."""
    if a.phases is None or b.phases is None:
        return
    for key, one, other in (
        ("tokens of the mean response", a.response_tokens[0], b.response_tokens[0]),
        ("tokens of the longest response", a.response_tokens[1], b.response_tokens[1]),
        ("tokens of a step", a.tokens, b.tokens),
    ):
        if one and other and abs(other / one - 1.0) > ALIKE:
            yield Changed(key=key, a=integer(one), b=integer(other))


def _settings(run: Run) -> Mapping[str, str]:
    """The log's own, and the layout where it is known."""
    own = dict(run.log.settings) if run.log is not None else {}
    if run.predicted is not None:
        own["layout"] = run.predicted.label
    return own


PLACES = re.compile(r"path|dir|^save$|^load$|file|host|port|^rank$|local_rank|seed|name|date|time|consumed|master", re.IGNORECASE)
"""Settings that say where a run stood, not how it went."""


def _changed(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Changed, ...]:
    if not (a and b):
        return ()
    keys = [key for key in dict.fromkeys((*a, *b)) if a.get(key, "") != b.get(key, "") and not PLACES.search(key)]
    return tuple(Changed(key=key, a=a.get(key, ""), b=b.get(key, "")) for key in keys)
