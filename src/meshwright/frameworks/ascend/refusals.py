"""Models, numbers and devices that no framework on Ascend trains here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.rules import Rule, limits, words_if

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from meshwright.domain.features import Features
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned


def _nothing(model: Model) -> Iterable[tuple[object, str]]:
    return ()


def refusals(
    prefix: str, title: str, features: Features, also: Callable[[Model], Iterable[tuple[object, str]]] = _nothing,
    reduces: Collection[str] = (),
) -> tuple[Limit, ...]:
    """Limits ``<prefix>.model``, ``.numbers``, ``.gradients`` and ``.device``; ``also`` names more reasons against a model,
    ``reduces`` the precisions in which gradients need not be FP32."""

    def unknown(plan: Planned) -> Values | None:
        model = plan.case.model
        reasons = (
            (any(each.window_tokens for each in model.attentions), "attention windows"),
            (any(each.sinks for each in model.attentions), "attention sinks"),
            (any(kind.parallel_block or kind.norms != 2 for kind in model.kinds), "other blocks than pre-norm"),
            (model.position not in features.positions, f"{model.position} positions"),
            (model.norm not in {"rms", "layer"}, f"the norm {model.norm}"),
            (model.embedding_norm or model.head_bias or model.embedding_width is not None, "that embedding or head"),
        )
        return words_if("reason", (*reasons, *also(model)))

    return limits(prefix, (
        Rule("model", f"{title} has no {{model}}: {{reason}}", unknown, "never", "model"),
        Rule("numbers", f"{title} trains with AdamW in bf16 or fp16, not {{optimizer}} in {{precision}}",
             lambda plan: plan.precision not in {"bf16", "fp16"} or plan.optimizer != "adamw", "never", "training"),
        Rule("gradients", f"{title} has no key for gradients in {{gradients}} where it trains in {{precision}}",
             lambda plan: plan.gradients != "fp32" and plan.precision not in reduces, "never", "training"),
        Rule("device", f"{title} runs on Ascend, not on {{device}}",
             lambda plan: not plan.case.cluster.device.family.startswith("ascend"), "start", "cluster"),
    ))
