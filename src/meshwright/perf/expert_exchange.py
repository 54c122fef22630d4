"""Communication of experts: what a token's copies cost, how uneven routing is, and what woven passes hide of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.collectives import all_gather_s, all_to_all_s
from meshwright.perf.exchange import ELEMENT_BYTES, Exposed, hide, nothing
from meshwright.perf.operators import routed_tokens

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Overlap
    from meshwright.domain.mesh import Group
    from meshwright.domain.model import LayerKind, MixtureOfExperts
    from meshwright.perf.operators import WorkShape
    from meshwright.perf.placement import Groups


def copies_ratio(experts: MixtureOfExperts, group: Group, *, deduplicated: bool) -> Array:
    """Copies of a token that cross the network, over the copies routed to other domains.

    With uniform routing over d domains a token's k copies reach D = d (1 - (1 - 1/d)^k) distinct domains, at most as many as
    routing groups allow; de-duplication sends one copy to each other domain instead of all.

        (D - D/d) / (k (1 - 1/d));   1 without de-duplication

    Symbols: d domains; k experts per token.
    Shapes:  the group broadcasts.
    Units:   ratio.
    Holds:   balanced routing; routing groups aligned with domains.
    Source:  DeepSeek-V3 report (arXiv 2412.19437) section 3.2.2: at most four nodes a token.
    """
    domains, top = array(group.domains), float(experts.experts_per_token)
    if not deduplicated:
        return np.ones_like(domains)
    distinct = domains * (1.0 - np.power(1.0 - 1.0 / domains, top))
    if experts.num_groups > 1:
        distinct = np.minimum(distinct, float(experts.groups_per_token))
    remote = top * (1.0 - 1.0 / domains)
    return np.where(domains > 1.0, distinct * (1.0 - 1.0 / domains) / np.maximum(remote, 1e-9), 1.0)


def rank_copies_ratio(experts: MixtureOfExperts, group: Group, *, deduplicated: bool) -> Array:
    """Copies of a token that travel inside a domain, over the copies routed there: one for each rank that has any of its experts.

        n (1 - (1 - 1/n)^k) / k;   1 without de-duplication

    Symbols: n ranks among which a token's k experts lie: those of the group, or of as many routing groups as it may reach.
    Shapes:  the group broadcasts.
    Units:   ratio.
    Holds:   balanced routing; routing groups aligned with ranks.
    Source:  DeepEP csrc/kernels/intranode.cu (a token is copied to each rank of is_token_in_rank, and there to its experts).
    """
    ranks, top = array(group.ranks), float(experts.experts_per_token)
    if not deduplicated:
        return np.ones_like(ranks)
    if experts.num_groups > 1:
        ranks = np.maximum(1.0, ranks * experts.groups_per_token / experts.num_groups)
    return np.asarray(ranks * (1.0 - np.power(1.0 - 1.0 / ranks, top)) / top)


def imbalance_ratio(case: Case, num_experts: Number, ranks: Number) -> Array:
    """Tokens of the fullest expert rank over the mean; 1 where routing is forced to be balanced, or one rank has all experts.

        1 + c sqrt(2 ln e / (E / e))

    Symbols: c ``expert_load_spread``; E experts; e ranks, each with E / e of them. The load of a rank spreads by c / sqrt(E / e)
             about the mean, and all wait for the fullest of e.
    Shapes:  everything broadcasts.
    Units:   ratio.
    Holds:   loads of experts are independent; at least 1, whatever a fit makes of c.
    Source:  the expected maximum of e normal variables, sqrt(2 ln e); Megatron-Core --moe-router-force-load-balancing.
    """
    if case.training.balanced_routing:
        return array(1.0)
    ranks = array(ranks)
    return 1.0 + case.calibration.constants.expert_load_spread * np.sqrt(2.0 * np.log(ranks) * ranks / num_experts)


class Woven(Struct, frozen=True, kw_only=True):
    """Compute of a mixture layer, forward and backward: what experts do, and what comes before tokens are sent to them; seconds."""

    forward: Array
    experts_forward: Array
    backward: Array
    experts_backward: Array


def unwoven_microbatches(stages: Number, microbatches: Number) -> Array:
    """Micro-batches whose passes are woven into no other, where exchanges of experts weave those of two.

        n = min(P, m)

    The last of P stages begins after P - 1 chunks, fills with (V - 1) P + 1 of its own and drains alike: P V chunks of V.

    Symbols: P stages; V chunks; m micro-batches.
    Shapes:  both broadcast.
    Units:   micro-batches.
    Holds:   equal stages, micro-batches in groups of P; one stage weaves all but the first forward and the last backward.
    Source:  Megatron-Core combined_1f1b.py and schedules.py: warm-up and cool-down run one pass alone; checked against events.
    """
    return np.minimum(array(stages), array(microbatches))


def expert_s(kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, woven: Woven, *, overlap: Overlap) -> Exposed:
    """Expert-parallel communication of one mixture layer: dispatch and combine, forward and backward.

        forward = backward = 2 x,   x = i (all-to-all(2 T/t_sp topk h) + gather or scatter of R h over expert TP)

    With ``overlap.expert`` the forward of one micro-batch is woven into the backward of another, and each exchange hides behind the
    one part of the other pass that stands beside it: exposed = x - min(r x, w).

        combine, backward | dispatch, forward | dispatch, backward | combine, forward
        forward           | experts, backward | experts, forward   | backward            without the experts'

    Symbols: i ``imbalance_ratio``; R routed copies of the rank; w the part of ``woven`` below an exchange. What waits for the host
             hides more of them, which ``perf.layer.layer_time`` counts: they make the device less idle.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   dropless routing, passes that stand beside another (``LayerTime.unwoven_s`` is what those at the ends of a step miss).
    Source:  Megatron-Core token dispatchers and overlap_moe_expert_parallel_comm (model_chunk_schedule_plan.py,
             TransformerLayerSchedulePlan.run: combine_bwd beside attn_fwd, dispatch_fwd and dispatch_bwd beside mlp_bwd and
             mlp_fwd, combine_fwd beside attn_bwd); DeepSeek-V3 report section 3.2.
    """
    experts = kind.experts
    if experts is None:
        return nothing()
    cluster, constants, hidden = case.cluster, case.calibration.constants, experts.latent or case.model.hidden
    send = ELEMENT_BYTES * shape.shard_tokens * experts.experts_per_token * hidden
    once = case.implementation.expert_deduplication
    exchange = all_to_all_s(
        send, groups.expert, cluster, constants, copies_ratio=copies_ratio(experts, groups.expert, deduplicated=once),
        inside_ratio=rank_copies_ratio(experts, groups.expert, deduplicated=once),
    )
    routed = ELEMENT_BYTES * routed_tokens(experts, shape) * hidden
    gathered = all_gather_s(routed, groups.expert_tensor, cluster, constants)
    each = imbalance_ratio(case, experts.num_experts, shape.expert_parallel) * (exchange + gathered)
    total = 2.0 * each
    if not overlap.expert:
        zero = array(0.0)
        return Exposed(forward=total, backward=total, slowdown_forward=zero, slowdown_backward=zero, again=total)
    ratio, slow = constants.overlap_ratio, constants.contention_slowdown
    combined_back, beside_forward = hide(each, woven.forward, ratio)
    dispatched, beside_experts_backward = hide(each, woven.experts_backward, ratio)
    dispatched_back, beside_experts_forward = hide(each, woven.experts_forward, ratio)
    combined, beside_backward = hide(each, woven.backward, ratio)
    return Exposed(
        forward=dispatched + combined, backward=dispatched_back + combined_back,
        slowdown_forward=slow * (beside_forward + beside_experts_forward),
        slowdown_backward=slow * (beside_backward + beside_experts_backward), again=total,
    )
