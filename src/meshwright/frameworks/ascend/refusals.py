"""Models, numbers and devices that no framework on Ascend trains here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.rules import rule, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Values


def _nothing(model: Model) -> Iterable[tuple[object, str]]:
    return ()


def refusals(
    prefix: str, title: str, features: Features, also: Callable[[Model], Iterable[tuple[object, str]]] = _nothing
) -> tuple[Limit, ...]:
    """Limits ``<prefix>.model``, ``.numbers`` and ``.device``; ``also`` names more reasons against a model."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.model", f"{title} has no {{model}}: {{reason}}", noticed="never", path="model")
    def _model(case: Case, layout: Layout) -> Values | None:
        model = case.model
        reasons = (
            (any(kind.attention.window_tokens for kind in model.kinds), "attention windows"),
            (any(kind.attention.sinks for kind in model.kinds), "attention sinks"),
            (any(kind.parallel_block or kind.norms != 2 for kind in model.kinds), "other blocks than pre-norm"),
            (model.position not in features.positions, f"{model.position} positions"),
            (model.norm not in {"rms", "layer"}, f"the norm {model.norm}"),
            (model.embedding_norm or model.head_bias or model.embedding_width is not None, "that embedding or head"),
        )
        return words_if("reason", (*reasons, *also(model)), model=model.name)

    @add(f"{prefix}.numbers", f"{title} trains with AdamW in bf16 or fp16, not {{optimizer}} in {{precision}}",
         noticed="never", path="training")
    def _numbers(case: Case, layout: Layout) -> Values | None:
        training = case.training
        able = training.precision.name in {"bf16", "fp16"} and training.optimizer.name == "adamw"
        return values_if(not able, optimizer=training.optimizer.name, precision=training.precision.name)

    @add(f"{prefix}.device", f"{title} runs on Ascend, not on {{device}}", noticed="start", path="cluster")
    def _device(case: Case, layout: Layout) -> Values | None:
        device = case.cluster.device
        return values_if(not device.family.startswith("ascend"), device=device.name)

    return tuple(found)
