"""What must divide what, whatever the framework: expressions of rules that look at more than two figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.mixers import MIXER_NAMES
from meshwright.domain.model import Mlp
from meshwright.frameworks.rules import values_if

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned


def _first(name: str, found: Iterable[int]) -> Values | None:
    """The first of the figures that do not divide, under a name."""
    odd = next(iter(found), None)
    return None if odd is None else {name: odd}


def heads(plan: Planned) -> Values | None:
    """Tensor ranks cut the attention heads: value ``heads``."""
    model = plan.case.model
    counts = [*(each.num_heads for each in model.attentions), *(mixer.groups for mixer in model.mixers)]
    return _first("heads", (count for count in counts if count % plan.tp))


def key_value_heads(plan: Planned) -> Values | None:
    """Tensor ranks cut the key-value heads and never copy them: value ``heads``."""
    return _first("heads", (count for count in _key_value_heads(plan) if count % plan.tp))


def copied_key_value_heads(plan: Planned) -> Values | None:
    """Tensor ranks cut the key-value heads or copy them: value ``heads``."""
    return _first("heads", (count for count in _key_value_heads(plan) if count % plan.tp and plan.tp % count))


def _key_value_heads(plan: Planned) -> list[int]:
    """Key-value heads of each kind of layer that has them: latent attention has none."""
    return [each.num_key_value_heads for each in plan.case.model.attentions if each.latent is None]


def width(plan: Planned) -> Values | None:
    """Tensor ranks cut the hidden size and what is dense of the feed-forward blocks: value ``width``."""
    blocks = [kind.feed_forward for kind in plan.case.model.kinds]
    widths = [plan.case.model.hidden, *(block.width if isinstance(block, Mlp) else block.shared_width for block in blocks)]
    return _first("width", (each for each in widths if each % plan.tp))


def sequence(plan: Planned) -> bool:
    """Context ranks take two pieces each, and tensor ranks cut what is left."""
    pieces = 2 * plan.cp if plan.cp > 1 else 1
    return bool(plan.sequence % pieces or plan.sequence % (plan.cp * plan.tp))


def context_window(plan: Planned) -> bool:
    """Rings know neither windows nor sinks, gathered keys know no sinks."""
    attentions = plan.case.model.attentions
    windowed, sinks = any(each.window_tokens for each in attentions), any(each.sinks for each in attentions)
    return plan.cp > 1 and ((windowed and plan.kind in {"ring", "hybrid"}) or (sinks and plan.kind != "ulysses"))


CONTEXT_MIXERS = "{part} of {model}: context parallelism here cuts the sequence for softmax attention alone, over all that it has"
"""What ``context_mixers`` finds, in words."""


def context_mixers(plan: Planned) -> Values | None:
    """Context parallelism by an attention function that is exchanged: what passes a state on, or chooses among all keys, sees the
    sequence of its own rank and nothing says so. Values ``part`` and ``model``."""
    part = mixed_otherwise(plan.case.model)
    return values_if(part and plan.cp > 1, part=part, model=plan.model)


def whole_sequences(features: Features, case: Case) -> Features:
    """What is left of what a framework can run, for a case whose sequences it does not cut."""
    return replace(features, context_parallel=False) if mixed_otherwise(case.model) else features


def mixed_otherwise(model: Model) -> str:
    """What of a model mixes tokens otherwise than by softmax attention over all that it is given; empty where nothing does."""
    if model.mixers:
        return MIXER_NAMES[type(model.mixers[0])]
    attentions = model.attentions
    if any(each.compressed for each in attentions):
        return "compressed attention"
    return "sparse attention" if any(each.selected_tokens is not None for each in attentions) else ""


def position_table(plan: Planned) -> Values | None:
    """Learned positions have as many rows as they have: value ``rows``."""
    model = plan.case.model
    return values_if(model.position == "learned" and plan.sequence > model.position_table, rows=model.position_table)


def experts(plan: Planned) -> Values | None:
    """Expert ranks cut the experts, of which a dense model has one: value ``experts``."""
    count = plan.experts or 1
    return values_if(count % plan.ep, experts=count)


def expert_grid(plan: Planned) -> Values | None:
    """The ranks of a stage are cut by expert ranks: value ``stage`` (its ranks)."""
    stage = plan.world // plan.pp
    return values_if(stage % (plan.ep * plan.etp), stage=stage)


def expert_sequence(plan: Planned) -> bool:
    """Experts under tensor parallelism want the sequence cut too."""
    return plan.moe and plan.tp > 1 and not plan.sp


def batch(plan: Planned) -> Values | None:
    """Micro-batches of all replicas are the global batch: value ``gas`` (micro-batches)."""
    return values_if(plan.batch != plan.mb * plan.microbatches * plan.dp, gas=plan.microbatches)
