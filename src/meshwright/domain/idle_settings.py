"""Settings of a launch that somebody chose and that mean nothing for the case or the layout at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.launching import settings_of
from meshwright.domain.layout import Full, Mixed
from meshwright.errors import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

OF_EXPERTS = ("routing", "dispatcher")
EXPERT_MODULES = frozenset({"expert_fc1", "moe_act"})
"""Values of ``offload_modules`` that only a mixture of experts has."""


def without_effect(case: Case, layout: Layout) -> tuple[Message, ...]:
    """What was chosen of the launch and changes nothing of the prediction, each with its reason.

    Holds:   the same case without the setting has the same time and memory.
    """
    given, words = case.launch.given, "{name} changes nothing here: {reason}"
    return tuple(
        Message("launch.idle", words, {"name": name, "reason": reason})
        for name, reason in (*_of_the_case(case), *_of_the_layout(case, layout)) if name.partition("=")[0] in given
    )


def _of_the_case(case: Case) -> Iterator[tuple[str, str]]:
    """Settings, and why a model has nothing that they are about."""
    model, launch = case.model, case.launch
    if not model.is_moe:
        values = {"routing": "balanced" if case.training.balanced_routing else "natural",
                  "dispatcher": "flex" if case.implementation.expert_deduplication else "alltoall"}
        for name in OF_EXPERTS:
            yield f"{name}={values[name]}", f"{model.name} has no experts"
        if launch.offloaded_modules and EXPERT_MODULES.issuperset(launch.offloaded_modules):
            yield f"offload_modules={'+'.join(launch.offloaded_modules)}", f"{model.name} has no experts"
    if launch.slice_tokens and all(kind.experts is not None for kind in model.kinds):
        yield f"slice_tokens={launch.slice_tokens}", f"{model.name} has no dense feed-forward block"


def _of_the_layout(case: Case, layout: Layout) -> Iterator[tuple[str, str]]:
    """Settings, and why a layout has nothing that they are about."""
    launch = case.launch
    if case.model.is_moe and layout.expert_parallel == 1:
        yield f"dispatcher={settings_of(case)['dispatcher']}", "every rank has all experts (ep1), and no token travels"
    if launch.offloaded_checkpoints and not isinstance(layout.recompute, (Full, Mixed)):
        yield "checkpoints=host", "no layer is recomputed as a whole, and none keeps a checkpoint"
    if launch.offloaded_modules and isinstance(layout.recompute, Full) and layout.recompute.layers is None:
        yield f"offload_modules={'+'.join(launch.offloaded_modules)}", "all layers are recomputed and keep their inputs alone"
    tokens = layout.microbatch_sequences * case.batch.sequence_tokens // layout.context_parallel
    if launch.slice_tokens >= tokens:
        yield f"slice_tokens={launch.slice_tokens}", f"a micro-batch has {tokens} tokens on a rank"
