"""Communication inside a layer: tensor and context parallelism, and what compute hides of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field, structs

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.collectives import (
    all_gather_s,
    all_to_all_s,
    network_bytes_per_s,
    of_tensor_s,
    reduce_scatter_s,
    scale_up_bytes_per_s,
)
from meshwright.perf.elementwise import memory_bound_s
from meshwright.perf.operators import gathered_columns, key_value_heads
from meshwright.perf.widths import attention_input

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Overlap
    from meshwright.domain.mesh import Group
    from meshwright.domain.mixers import Mixer
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import WorkShape
    from meshwright.perf.placement import Groups

ELEMENT_BYTES = 2.0
"""Activations travel in BF16."""


class Exposed(Struct, frozen=True, kw_only=True):
    """Seconds of one sort of communication that nothing hides, and how much the hidden part slows compute."""

    forward: Array
    backward: Array
    slowdown_forward: Array
    slowdown_backward: Array
    again: Array = field(default_factory=lambda: array(0.0))
    """What is sent once more: gathering, where only the module ``comm`` does; the exchange in front of attention and that of
    experts, where their recomputation does, beside which no other pass runs."""
    last: Array = field(default_factory=lambda: array(0.0))
    """What the last block of a forward leaves exposed of what it sends at its end, where a recomputation stops early."""
    last_slowdown: Array = field(default_factory=lambda: array(0.0))
    """How much the hidden part of that slows the forward."""


class Beside(Struct, frozen=True, kw_only=True):
    """Products of one block beside which its tensor-parallel communication runs backward; seconds."""

    first_input: Array
    """Input gradient of the product that reads the block's input."""
    first_weight: Array
    last_input: Array
    """Input gradient of the product that writes the block's output: it needs the output's gradient of all tokens."""


def nothing() -> Exposed:
    """No communication."""
    zero = array(0.0)
    return Exposed(forward=zero, backward=zero, slowdown_forward=zero, slowdown_backward=zero)


def hide(communication: Array, window: Array, ratio: Number) -> tuple[Array, Array]:
    """Split a collective into what stays exposed and what a window of compute hides.

        hidden = min(r t, w);   exposed = t - hidden

    Symbols: t communication; w window; r ``Constants.overlap_ratio``.
    Shapes:  communication and window broadcast.
    Units:   s -> (exposed s, hidden s).
    Source:  docs/sources.md#overlap; 0.92-0.96 ceilings of Primus and zhebrak.
    """
    hidden = np.minimum(ratio * communication, window)
    return communication - hidden, hidden


def tensor_s(
    kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, beside: tuple[Beside, Beside], products: Array,
    *, overlap: Overlap,
) -> Exposed:
    """Tensor-parallel communication of one layer.

    With sequence parallelism each block gathers its input and reduce-scatters its output; backward does the reverse and
    gathers the input once more for the weight gradient (counted apart, in ``again``, where the implementation keeps it).
    Without, each block all-reduces once per direction. The second gather hides behind the input gradient and the reduction
    behind the weight gradient (asynchronous TP), each of its own block. ``overlap.tensor`` tiles the forward's collectives with
    the products, and the gathering of the output's gradient with the input gradient of the block's last product.
    Mixture layers gather nothing for their routed experts. Query groups that are cut are gathered besides (``grouped_s``).

    Symbols: ``beside`` windows of the mixing and of the feed-forward block; payload 2 T h bytes, gathered in those that the
             precision keeps of an input (``saved_input_bytes``); MLA gathers its latents instead of the hidden state, but not by
             ``distributed_tensors``.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   any TP, also across nodes.
    Source:  Korthikanti et al. 2022 section 4.2; Megatron-Core layers.py (LinearWithGradAccumulationAndAsyncCommunication); with
             tiles Transformer Engine pytorch/module/base.py, initialize_ub: fprop and dgrad of proj and fc2 in rings or chunks,
             dgrad and wgrad of qkv and fc1 in bulk; what is gathered is quantised before (distributed.py,
             gather_along_first_dim with a quantizer), what is reduced is BF16; MindSpeed
             mc2: all_gather_base_mm in the backward of row-parallel layers.
    """
    cluster, constants, group = case.cluster, case.calibration.constants, groups.tensor
    hidden, experts = case.model.hidden, kind.experts
    whole = case.implementation.distributed_tensors
    blocks: list[tuple[float, Beside]] = []
    if kind.mixes:
        alone = kind.attention is not None and kind.mixer is None and not whole
        width = float(attention_input(kind.attention, hidden) if alone else hidden)  # type: ignore[arg-type]
        blocks.append((width, beside[0]))
    if (whole or not kind.parallel_block) and kind.has_block and (experts is None or experts.shared_width):
        blocks.append((float(hidden), beside[1]))
    sharded = shape.sequence_shards > 1.0
    forward = backward = slow_forward = slow_backward = regather = ending = slow_ending = array(0.0)
    anew = case.implementation.gathers_again
    sent_bytes = min(ELEMENT_BYTES, case.training.precision.saved_input_bytes)
    sides = dict.fromkeys(product((float(hidden), *(width for width, _ in blocks)), (ELEMENT_BYTES, sent_bytes)))
    moved = {(width, each): of_tensor_s(each * shape.tokens * width, group, cluster, constants) for width, each in sides}
    scatter, reduce = moved[float(hidden), ELEMENT_BYTES].scatter, moved[float(hidden), ELEMENT_BYTES].reduce
    spread_s = moved[float(hidden), sent_bytes].gather
    for width, window in blocks:
        gather, back = moved[width, sent_bytes].gather, moved[width, ELEMENT_BYTES].scatter
        ahead, start = np.where(sharded, gather + scatter, reduce), np.where(sharded, gather, 0.0)
        if overlap.tensor:
            ahead, hidden_s = hide(ahead, products / len(blocks), constants.overlap_ratio)
            start, hidden_start = hide(start, products / len(blocks), constants.overlap_ratio)
            slow_forward = slow_forward + constants.contention_slowdown_scale_up * hidden_s
            slow_ending = constants.contention_slowdown_scale_up * (hidden_s - hidden_start)
        forward, ending = forward + ahead, ahead - start
        spread = np.where(sharded, spread_s, 0.0)
        if overlap.tensor:
            spread, hidden_spread = hide(spread, window.last_input, constants.overlap_ratio)
            slow_backward = slow_backward + constants.contention_slowdown_scale_up * hidden_spread
        if case.implementation.tensor_backward_overlap:
            again, hidden_again = hide(np.where(sharded, gather, 0.0), window.first_input, constants.overlap_ratio)
            last, hidden_last = hide(np.where(sharded, back, reduce), window.first_weight, constants.overlap_ratio)
            if not anew:
                regather = regather + again + constants.contention_slowdown_scale_up * hidden_again
                again, hidden_again = array(0.0), array(0.0)
            slow_backward = slow_backward + constants.contention_slowdown_scale_up * (hidden_again + hidden_last)
            backward = backward + (spread + again + last)
        else:
            backward = backward + np.where(sharded, back + spread + (gather if anew else 0.0), reduce)
            regather = regather + (0.0 if anew else np.where(sharded, gather, 0.0))
    if case.implementation.cuts_query_groups and kind.attention is not None:
        forward, backward = (ahead + own for ahead, own in zip((forward, backward), grouped_s(kind.attention, case, shape, groups),
                                                               strict=True))
    return Exposed(
        forward=forward, backward=backward, slowdown_forward=slow_forward, slowdown_backward=slow_backward, again=regather,
        last=ending if len(blocks) > 1 else array(0.0), last_slowdown=slow_ending if len(blocks) > 1 else array(0.0),
    )


def grouped_s(attention: Attention, case: Case, shape: WorkShape, groups: Groups) -> tuple[Array, Array]:
    """Gathering queries, keys and values where tensor ranks cut their groups, forward, and scattering their gradients.

        forward   all-gather(2 T W), one read and write of it
        backward  reduce-scatter(2 T W), one read and write, and zeros around the gradients of slices

    Symbols: W ``perf.operators.gathered_columns``.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   nothing runs beside them.
    Source:  Megatron-Core 0.16 attention.py; tensor_parallel/mappings.py: _gather_along_last_dim, _reduce_scatter_along_last_dim.
    """
    cluster, constants, group = case.cluster, case.calibration.constants, groups.tensor
    elements = shape.tokens * gathered_columns(attention, shape.tensor_parallel)
    exists = elements > 0.0
    ahead, behind = (memory_bound_s(each * elements, cluster.device, constants, kind="copy") for each in (4.0, 6.0))
    gather = all_gather_s(ELEMENT_BYTES * elements, group, cluster, constants) + ahead
    scatter = reduce_scatter_s(ELEMENT_BYTES * elements, group, cluster, constants) + behind
    return np.where(exists, gather, 0.0), np.where(exists, scatter, 0.0)


def collective_host_s(case: Case, groups: Groups) -> Array:
    """Host time of one tensor-parallel collective.

        t > 1: c + (t w + (t - 1) a [t spans domains]) [a pipeline between nodes];   else 0

    Symbols: t ranks; c ``collective_host_s``; w ``collective_skew_s``: hosts that also serve pipeline messages over the network
             start the collective at different times, and it waits for the last of them; a latency of the network, whose ring
             begins only then.
    Shapes:  the group broadcasts.
    Units:   s.
    Holds:   eager frameworks that count their collectives (``Implementation.collectives_forward``). The wait grows with the
             group as the largest of many rare delays does.
    Source:  playbook rows: the floor under a layer does not depend on the micro-batch, but on TP and on the pipeline.
    """
    constants, ranks = case.calibration.constants, array(groups.tensor.ranks)
    beside = np.where(groups.pipeline_crosses > 0.0, 1.0, 0.0)
    ring = np.where(array(groups.tensor.domains) > 1.0, (ranks - 1.0) * case.cluster.network.latency_s, 0.0)
    wait = beside * (ranks * constants.collective_skew_s + ring)
    return np.where(ranks > 1.0, constants.collective_host_s + wait, 0.0)


def context_s(
    kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, attention_forward: Array, attention_backward: Array,
    *, context_kind: ContextKind,
) -> Exposed:
    """Context-parallel communication of one layer.

        ring        c - 1 steps, each exposes max(0, xfer - core / c) and corrects the output (reads and writes it in FP32);
                    keys and values travel forward, with their gradients backward
        all-gather  gathers keys and values before the core and puts their zigzag chunks in order (one read and write);
                    backward gathers again and reduce-scatters the gradients
        ulysses     all-to-all of q, k, v before and o after the core, each transposed (``exchange_copies`` reads and writes), the
                    same backward; one message of all four, or four (``joined_exchanges``)
        hybrid      ulysses inside a scale-up domain, ring across domains

    Symbols: c context parallelism; xfer time of one block of keys and values to the neighbour; core the attention kernel.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   causal balanced (zigzag) sharding; the ring's step is bounded by its slowest hop.
    Source:  Liu et al. 2023 (ring attention, arXiv 2310.01889); Jacobs et al. 2023 (Ulysses, arXiv 2309.14509); Megatron-Core
             --cp-comm-type; of sparse latent attention ``selected_width``.
    """
    if kind.mixer is not None:
        own = mixer_context_s(kind.mixer, case, shape, groups)
        if kind.attention is None:
            return own
        beside = context_s(
            replace(kind, mixer=None), case, shape, groups, attention_forward, attention_backward, context_kind=context_kind
        )
        forward, backward = own.forward + beside.forward, own.backward + beside.backward
        return structs.replace(own, forward=forward, backward=backward, again=beside.again)
    if kind.attention is None:
        return nothing()
    cluster, constants, group = case.cluster, case.calibration.constants, groups.context
    attention, tp, cp = kind.attention, shape.tensor_parallel, shape.context_parallel
    whole = attention.latent or case.implementation.repeats_keys
    heads = attention.num_heads / tp if whole else key_value_heads(attention, tp)
    key_value = ELEMENT_BYTES * shape.tokens * heads * (attention.head_dim + attention.value_dim)
    if attention.latent and attention.selected_tokens is not None:
        key_value = ELEMENT_BYTES * shape.tokens * selected_width(attention)
    query_out = ELEMENT_BYTES * shape.tokens * (attention.query_width + attention.output_width) / tp
    several, again = cp > 1.0, array(0.0)

    def ring(size: Array, block: Array, members: Array) -> Array:
        crosses = np.asarray(group.domains) > 1.0
        rate = np.where(crosses, network_bytes_per_s(group, cluster, constants), scale_up_bytes_per_s(cluster, constants, 2.0))
        step = np.where(crosses, cluster.network.latency_s, cluster.scale_up.latency_s) + size / rate
        return (members - 1.0) * np.maximum(0.0, step - block / members)

    if context_kind == "ring":
        output = shape.tokens * attention.output_width / tp
        correction = (cp - 1.0) * (memory_bound_s(10.0 * output, cluster.device, constants) + 4.0 * constants.kernel_gap_s)
        forward = ring(key_value, attention_forward, cp) + correction
        backward = ring(2.0 * key_value, attention_backward, cp) + correction
    elif context_kind == "all-gather":
        gather = all_gather_s(key_value * cp, group, cluster, constants)
        reorder = memory_bound_s(2.0 * key_value * cp, cluster.device, constants) + 4.0 * constants.kernel_gap_s
        forward, backward = gather + reorder, 2.0 * (gather + reorder)
    else:
        inner = _inside(group) if context_kind == "hybrid" else group
        copies = 2.0 * case.implementation.exchange_copies
        if case.implementation.joined_exchanges:
            exchange = all_to_all_s(key_value + query_out, inner, cluster, constants)
            again = exchange
        else:
            each = ELEMENT_BYTES * shape.tokens / tp
            query, key, value, out = (
                all_to_all_s(each * width, inner, cluster, constants)
                for width in (attention.query_width, heads * tp * attention.head_dim, heads * tp * attention.value_dim,
                              attention.output_width)
            )
            again = query + key + value
            exchange = again + out
        reorder = memory_bound_s(copies * (key_value + query_out), cluster.device, constants, kind="copy")
        reorder = reorder + 8.0 * constants.kernel_gap_s
        again = np.where(several & case.implementation.checkpoints, again + reorder, 0.0)
        forward, backward = exchange + reorder, exchange + reorder
        if context_kind == "hybrid":
            domains = array(group.domains)
            forward = forward + ring(key_value, attention_forward, domains)
            backward = backward + ring(2.0 * key_value, attention_backward, domains)
    zero = array(0.0)
    return Exposed(
        forward=np.where(several, forward, zero),
        backward=np.where(several, backward, zero),
        slowdown_forward=zero,
        slowdown_backward=zero,
        again=again,
    )


def selected_width(attention: Attention) -> float:
    """What a token hands to the other context ranks where each query looks at chosen tokens of latent attention.

        kv rank + rope + d_i

    Symbols: d_i width of the indexer's key, of which there is one for all heads; nought in layers that take a choice over.
    Units:   elements.
    Holds:   the latent is key and value for all heads (``core_attn(value=None)``); no tensor rank has a part of it.
    Source:  Megatron-Core d98e8a64 experimental_attention_variant/absorbed_mla.py, dsa.py (cp_comm_type=allgather).
    """
    latent = attention.latent
    assert latent is not None, "of latent attention"
    return float(latent.key_value_rank + latent.rope_dim + (attention.indexer.head_dim if attention.indexer else 0))


def mixer_context_s(mixer: Mixer, case: Case, shape: WorkShape, groups: Groups) -> Exposed:
    """Context-parallel communication of a linear mixer: heads are exchanged for tokens in front of the convolution, and back.

        all-to-all(2 T (convolved + gate + scalars) / t) + all-to-all(2 T value / t), each read and written once; backward the same

    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   whatever attention does between its ranks; heads divide over tp x cp (groups fewer than that are repeated).
    Source:  Megatron-Core ssm/mamba_context_parallel.py (all-to-all from sequence to hidden and back).
    """
    cluster, constants, cp = case.cluster, case.calibration.constants, shape.context_parallel
    into = mixer.convolved_width + mixer.gate_width + mixer.scalar_width
    sent, back = (ELEMENT_BYTES * shape.tokens * width / shape.tensor_parallel for width in (into, mixer.value_width))
    exchange = all_to_all_s(sent, groups.context, cluster, constants) + all_to_all_s(back, groups.context, cluster, constants)
    reorder = memory_bound_s(2.0 * (sent + back), cluster.device, constants, kind="copy") + 4.0 * constants.kernel_gap_s
    zero = array(0.0)
    once = np.where(cp > 1.0, exchange + reorder, zero)
    return Exposed(forward=once, backward=once, slowdown_forward=zero, slowdown_backward=zero)


def _inside(group: Group) -> Group:
    """The part of a group inside one scale-up domain."""
    return replace(group, ranks=group.local, domains=np.ones_like(array(group.domains)))
