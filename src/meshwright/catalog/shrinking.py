"""A model with fewer layers that still shows every kind of layer as early as it can."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.domain.model import Model


def shrink(model: Model, layers: int) -> Model:
    """The model with its first kinds of layers in their order, cut to ``layers``; nothing else changes.

    A pattern is a lead-in (DeepSeek's dense layers) and a cycle that repeats (Gemma's sliding and full layers). The
    lead-in is kept as far as one cycle still fits behind it, then whole cycles follow. Where not even one cycle fits,
    its layers are taken at even distances and its last one always, so that every kind is met as early as it can be.
    """
    if not 1 <= layers <= model.num_layers:
        raise fault(
            "model.shrink", "layers={layers} is not within 1..{most} of {model}",
            layers=layers, most=model.num_layers, model=model.name,
        )
    if layers == model.num_layers:
        return model
    lead, period = lead_and_period(model.pattern)
    kept_lead = max(0, min(lead, layers - period))
    rest = layers - kept_lead
    cycle = model.pattern[lead : lead + period]
    if rest >= period:
        body = tuple(cycle[index % period] for index in range(rest))
    else:
        body = tuple(cycle[(index + 1) * period // rest - 1] for index in range(rest))
    pattern = model.pattern[:kept_lead] + body
    used = sorted({*pattern, *model.mtp_pattern})
    return replace(
        model,
        name=f"{model.name}-{layers}l",
        kinds=tuple(model.kinds[index] for index in used),
        pattern=tuple(used.index(index) for index in pattern),
        mtp_pattern=tuple(used.index(index) for index in model.mtp_pattern),
    )


def lead_and_period(pattern: tuple[int, ...]) -> tuple[int, int]:
    """The split of a pattern into a lead-in and a repeated cycle: the smallest sum of both, then the shorter lead."""
    count = len(pattern)
    for total in range(1, count + 1):
        for lead in range(total):
            period = total - lead
            if all(pattern[index] == pattern[index - period] for index in range(lead + period, count)):
                return lead, period
    raise AssertionError("the whole pattern is a cycle of its own length")
