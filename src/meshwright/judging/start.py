"""The guided start of ChatLearn (4 B parameters per device), and how the layout differs from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.label import recompute_word
from meshwright.judging.following import guided_parts
from meshwright.judging.neighbours import OFF
from meshwright.judging.questions import START_PARAMETERS
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.judging.facts import Facts

QUESTIONS = ("guided-1.5", "guided-3", "guided-any")
KNOBS = (
    ("tp", "tensor_parallel"),
    ("cp", "context_parallel"),
    ("pp", "pipeline_parallel"),
    ("vp", "virtual_stages"),
    ("ep", "expert_parallel"),
    ("etp", "expert_tensor_parallel"),
    ("dp", "data_parallel"),
    ("mb", "microbatch_sequences"),
    ("zero", "zero_stage"),
)


class GuidedStart(Value, frozen=True, kw_only=True):
    """Where the guides would begin: n/(TP PP) or n/(ETP EP) near 4 B, micro-batch 1, TP in a node, overlap off."""

    rule: str
    source: str
    target_parameters: float
    label: str
    parameters_per_device: float
    """The guide's own measure: parameters over TP x PP, or over ETP x EP."""
    step_s: float
    memory_reserved_bytes: float
    fits: bool
    chosen_parameters_per_device: float
    chosen_change_ratio: float
    """Step of the layout over that of the start, minus one."""
    differences: tuple[str, ...]


def start_layout(facts: Facts) -> Layout | None:
    """The fastest fitting layout near 4 B parameters per device, else the least demanding one; overlap off."""
    found = [facts.best[name] for name in QUESTIONS if name in facts.best]
    found = [each for each in found if not facts.refusals(replace(each.layout, overlap=OFF))]
    chosen = next((each for each in found if each.fits), found[0] if found else None)
    return None if chosen is None else replace(chosen.layout, overlap=OFF)


def guided_start(facts: Facts) -> GuidedStart | None:
    """The start beside the layout; None where nothing near it is legal."""
    start = start_layout(facts)
    if start is None:
        return None
    trial, layout = facts.trial(start), facts.layout
    return GuidedStart(
        rule="chatlearn.four-billion-start",
        source="000:21, 001:29",
        target_parameters=START_PARAMETERS,
        label=facts.label(start),
        parameters_per_device=facts.parameters / guided_parts(facts.case, start),
        step_s=trial.step_s,
        memory_reserved_bytes=trial.reserved_bytes,
        fits=trial.estimate.fits,
        chosen_parameters_per_device=facts.parameters / guided_parts(facts.case, layout),
        chosen_change_ratio=facts.step_s / trial.step_s - 1.0,
        differences=differences(start, layout),
    )


def differences(before: Layout, after: Layout) -> tuple[str, ...]:
    """Knobs that differ, as ``tp 4 -> 2``."""
    changed = [
        f"{word} {getattr(before, name)} -> {getattr(after, name)}"
        for word, name in KNOBS
        if getattr(before, name) != getattr(after, name)
    ]
    words = [(recompute_word(each.recompute), each.schedule, each.context_kind) for each in (before, after)]
    for name, old, new in zip(("recompute", "schedule", "context"), *words, strict=True):
        if old != new and (name != "context" or after.context_parallel > 1):
            changed.append(f"{name} {old} -> {new}")
    if before.stage_layers != after.stage_layers:
        changed.append(f"layers {'set by stage' if after.stage_layers else 'even'}")
    if before.overlap != after.overlap:
        changed.append("overlap on" if before.overlap == OFF else "overlap changed")
    return tuple(changed)
