"""Sparse latent attention (DSA) as Megatron-LM builds it: with fused kernels since core 0.19.

Source: ``core/transformer/experimental_attention_variant/dsa.py``, ``dsa_kernels.py`` and ``transformer_config.py`` of core 0.16 to
0.19 and main, ``core/models/gpt/experimental_attention_variant_module_specs.py``, and the GLM-5 recipes of Megatron-Bridge. Until
0.18 ``unfused_dsa_fn`` computes the scores of all heads and tokens as FP32 matrices, which is neither priced nor written here.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.frameworks.megatron.pipeline import split_of
from meshwright.frameworks.rules import Rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.layout import ContextKind
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.megatron.flags import Arguments
    from meshwright.frameworks.planned import Planned

FUSED = 19
"""First minor version with fused kernels (``--dsa-kernel-backend``)."""
GATHERED: ContextKind = "all-gather"
"""The one kind of context parallelism: a query chooses among the keys of all ranks."""


def is_sparse(model: Model) -> bool:
    """Whether attention chooses tokens by an indexer."""
    return any(each.selected_tokens is not None for each in model.attentions)


def shared_choice(model: Model) -> tuple[int, int] | None:
    """Every how many layers a choice is made, and up to which layer each makes its own; (1, 0) where all do, None where no two such
    numbers say it.

    A layer counted from 1 takes over the choice of one before it unless max(layer - max(offset, 1), 0) is a multiple of the first.

    >>> from meshwright.catalog import load_model
    >>> shared_choice(load_model("deepseek-v3.2")), shared_choice(load_model("glm-5.2"))
    ((1, 0), (4, 3))
    """
    layers = [model.kinds[index].attention for index in model.pattern]
    own = [each is None or each.selected_tokens is None or each.indexer is not None for each in layers]
    if all(own):
        return 1, 0
    offset = own.index(False)  # as many layers before it make their own
    every = next((step for step in range(2, len(own) - offset + 2) if offset + step > len(own) or own[offset + step - 1]), 0)
    told = [max(layer - max(offset, 1), 0) % every == 0 for layer in range(1, len(own) + 1)] if every else []
    return (every, offset) if told == own else None


def add_sparse_attention(arguments: Arguments, model: Model) -> None:
    """The indexer of sparse attention, how many tokens it chooses, what it learns from, and the kernels."""
    attention = model.attention
    indexer = attention.indexer
    if indexer is None or attention.selected_tokens is None:
        return
    arguments.add("--experimental-attention-variant", "dsa")
    arguments.add("--dsa-indexer-n-heads", indexer.num_heads)
    arguments.add("--dsa-indexer-head-dim", indexer.head_dim)
    arguments.add("--dsa-indexer-topk", attention.selected_tokens)
    every, offset = shared_choice(model) or (1, 0)
    arguments.add_if(every > 1, "--dsa-indexer-topk-freq", every)
    arguments.add_if(every > 1, "--dsa-indexer-skip-topk-offset", offset)
    arguments.add("--dsa-indexer-loss-coeff", Shell("$INDEXER_LOSS_COEFFICIENT"))
    arguments.add("--dsa-indexer-use-sparse-loss")  # as the cost model counts it
    arguments.add("--dsa-kernel-backend", "cudnn")


def _context(plan: Planned) -> Values | None:
    return values_if(is_sparse(plan.case.model) and plan.cp > 1 and plan.kind != GATHERED, kind=plan.kind)


def _stages(plan: Planned) -> Values | None:
    """Chunks that begin with a layer that takes over a choice."""
    model = plan.case.model
    if not is_sparse(model) or plan.pp * plan.vp == 1:
        return None
    split = split_of(plan.case, plan.layout)
    begins = list(accumulate((count for chunk in split for count in chunk), initial=0))[:-1]
    for layer in begins:
        attention = model.kinds[model.pattern[layer]].attention if layer < model.num_layers else None
        if attention is not None and attention.selected_tokens is not None and attention.indexer is None:
            return {"layer": layer + 1}
    return None


SPARSE = (
    Rule("sparse-context", "DSAttention context parallelism currently supports cp_comm_type=allgather only, not {kind}.", _context),
    Rule("sparse-stage", "DSA index-share pipeline split is invalid: local layer {layer} reuses top-k indices of a layer that is "
         "not earlier in this pipeline stage. Choose a pipeline layout where each stage starts on a computing layer", _stages,
         "start"),
)
"""Rules of sparse attention."""
