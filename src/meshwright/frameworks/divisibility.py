"""What must divide what, whatever the framework: predicates of a case and a layout that give the values of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.model import Mlp
from meshwright.frameworks.rules import values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values


def heads(case: Case, layout: Layout) -> Values | None:
    """Tensor ranks cut the attention heads: values ``heads`` and ``tp``."""
    tp = layout.tensor_parallel
    broken = [kind.attention.num_heads for kind in case.model.kinds if kind.attention.num_heads % tp]
    return values_if(broken, heads=broken[0] if broken else 0, tp=tp)


def key_value_heads(case: Case, layout: Layout) -> Values | None:
    """Tensor ranks cut the key-value heads and never copy them: values ``heads`` and ``tp``."""
    tp = layout.tensor_parallel
    broken = [count for count in _key_value_heads(case) if count % tp]
    return values_if(broken, heads=broken[0] if broken else 0, tp=tp)


def copied_key_value_heads(case: Case, layout: Layout) -> Values | None:
    """Tensor ranks cut the key-value heads or copy them: values ``heads`` and ``tp``."""
    tp = layout.tensor_parallel
    broken = [count for count in _key_value_heads(case) if count % tp and tp % count]
    return values_if(broken, heads=broken[0] if broken else 0, tp=tp)


def _key_value_heads(case: Case) -> list[int]:
    """Key-value heads of each kind of layer that has them: latent attention has none."""
    return [kind.attention.num_key_value_heads for kind in case.model.kinds if kind.attention.latent is None]


def width(case: Case, layout: Layout) -> Values | None:
    """Tensor ranks cut the hidden size and what is dense of the feed-forward blocks: values ``width`` and ``tp``."""
    tp, blocks = layout.tensor_parallel, [kind.feed_forward for kind in case.model.kinds]
    widths = [case.model.hidden, *(block.width if isinstance(block, Mlp) else block.shared_width for block in blocks)]
    broken = [each for each in widths if each % tp]
    return values_if(broken, width=broken[0] if broken else 0, tp=tp)


def sequence(case: Case, layout: Layout) -> Values | None:
    """Context ranks take two pieces each, and tensor ranks cut what is left: values ``sequence`` (tokens), ``cp``, ``tp``."""
    cp, tp, tokens = layout.context_parallel, layout.tensor_parallel, case.batch.sequence_tokens
    pieces = 2 * cp if cp > 1 else 1
    return values_if(tokens % pieces or tokens % (cp * tp), sequence=tokens, cp=cp, tp=tp)


def context_window(case: Case, layout: Layout) -> Values | None:
    """Rings know neither windows nor sinks, gathered keys know no sinks: value ``kind``."""
    windowed = any(kind.attention.window_tokens for kind in case.model.kinds)
    sinks = any(kind.attention.sinks for kind in case.model.kinds)
    kind = layout.context_kind
    broken = (windowed and kind in {"ring", "hybrid"}) or (sinks and kind != "ulysses")
    return values_if(layout.context_parallel > 1 and broken, kind=kind)


def position_table(case: Case, layout: Layout) -> Values | None:
    """Learned positions have as many rows as they have: values ``sequence`` (tokens) and ``rows``."""
    model, tokens = case.model, case.batch.sequence_tokens
    return values_if(model.position == "learned" and tokens > model.position_table, sequence=tokens, rows=model.position_table)


def experts(case: Case, layout: Layout) -> Values | None:
    """Expert ranks cut the experts, of which a dense model has one: values ``experts`` and ``ep``."""
    count, ep = case.model.experts.num_experts if case.model.experts else 1, layout.expert_parallel
    return values_if(count % ep, experts=count, ep=ep)


def expert_grid(case: Case, layout: Layout) -> Values | None:
    """The ranks of a stage are cut by expert ranks: values ``stage`` (its ranks), ``ep``, ``etp``."""
    stage, ranks = layout.world // layout.pipeline_parallel, layout.expert_parallel * layout.expert_tensor_parallel
    return values_if(stage % ranks, stage=stage, ep=layout.expert_parallel, etp=layout.expert_tensor_parallel)


def expert_sequence(case: Case, layout: Layout) -> Values | None:
    """Experts under tensor parallelism want the sequence cut too: value ``tp``."""
    return values_if(case.model.is_moe and layout.tensor_parallel > 1 and not layout.sequence_parallel, tp=layout.tensor_parallel)


def batch(case: Case, layout: Layout) -> Values | None:
    """Micro-batches of all replicas are the global batch: values ``batch``, ``mb``, ``gas``, ``dp`` (sequences and counts)."""
    mb, gas, dp = layout.microbatch_sequences, layout.num_microbatches, layout.data_parallel
    whole = case.batch.global_batch_sequences
    return values_if(whole != mb * gas * dp, batch=whole, mb=mb, gas=gas, dp=dp)
