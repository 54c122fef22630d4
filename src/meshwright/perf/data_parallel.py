"""Reducing gradients and gathering parameters over data-parallel ranks, and what compute hides of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.mesh import group
from meshwright.perf.arrays import Array, array
from meshwright.perf.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from meshwright.perf.exchange import hide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case


class Synchronisation(Struct, frozen=True, kw_only=True):
    """Seconds of one gradient reduction and one parameter gather of all parameters of a rank; columns."""

    scatter_s: Array
    """Reduce-scatter inside the shard group (0 where nothing is sharded)."""
    reduce_s: Array
    """All-reduce across shard groups (over all replicas where nothing is sharded)."""
    gather_s: Array
    """All-gather of parameters inside the shard group."""
    last_bucket_s: Array
    """Reduction of the last bucket, which no backward is left to hide."""


def synchronisation(
    dense: Array, experts: Array, *, replicas: Array, stride: Array, expert_replicas: Array, expert_stride: Array,
    shards: Array, layers: Array, layerwise: Array, case: Case,
) -> Synchronisation:
    """Times of the data-parallel collectives of one rank.

        K = 1:  all-reduce(g P) over D;   K > 1:  reduce-scatter(g P) over K, all-reduce(g P / K) over D / K, all-gather(w P) over K

    Symbols: D replicas (dp x cp; of experts: world / (etp ep pp)); K shards, for experts min(K, D_e); P parameters of the rank;
             g, w bytes of a gradient and of a gathered weight. Collectives are cut into buckets, or into ``layers`` where
             ``layerwise`` (full sharding) is 1. Where every owner broadcasts its parameters, the gather is min(K, tensors)
             collectives, as owners hold whole tensors (``broadcast_tensors`` a layer). Where the implementation
             reduces whole gradients (``gradient_all_reduce``), K > 1 all-reduces g P over D before the gather.
    Shapes:  everything broadcasts.
    Units:   parameters -> s.
    Holds:   dense and expert parameters are reduced one after the other.
    Source:  Rajbhandari et al. 2020; Megatron-Core distributed optimizer instances; docs/sources.md#shard-groups.
    """
    precision = case.training.precision
    scatter = reduce = gather = bucket = array(0.0)
    for parameters, ranks, step in ((dense, replicas, stride), (experts, expert_replicas, expert_stride)):
        members = np.minimum(shards, ranks)
        inside = group(members, step, case.cluster)
        outside = group(np.maximum(1.0, ranks / members), step * members, case.cluster)
        payload = precision.gradient_bytes * parameters
        size = np.maximum(case.implementation.bucket_bytes, case.implementation.bucket_bytes_per_rank * ranks)
        if case.implementation.replicated_bucket_bytes:
            size = np.where(members > 1.0, size, case.implementation.replicated_bucket_bytes)
        buckets = np.ceil(np.maximum(1.0, payload / size))
        pieces = np.where(layerwise > 0.0, layers, buckets)
        some = parameters > 0.0
        constants = case.calibration.constants
        one = reduce_scatter_s(payload, inside, case.cluster, constants, pieces=pieces)
        two = all_reduce_s(payload / members, outside, case.cluster, constants, pieces=pieces)
        if case.implementation.gradient_all_reduce:
            one, two = 0.0 * one, all_reduce_s(payload, group(ranks, step, case.cluster), case.cluster, constants, pieces=pieces)
        sends = pieces
        if case.implementation.broadcast_tensors:
            sends = np.where(layerwise > 0.0, pieces, np.minimum(members, case.implementation.broadcast_tensors * layers))
        three = all_gather_s(precision.gather_bytes * parameters, inside, case.cluster, constants, pieces=sends)
        scatter = scatter + np.where(some, one, 0.0)
        reduce = reduce + np.where(some, two, 0.0)
        gather = gather + np.where(some, three, 0.0)
        bucket = bucket + np.where(some, (one + two) / pieces, 0.0)
    return Synchronisation(scatter_s=scatter, reduce_s=reduce, gather_s=gather, last_bucket_s=bucket)


def exposed_s(
    times: Synchronisation, *, gradient_shards: Array, parameter_shards: Array, num_microbatches: Array, forward_s: Array,
    backward_s: Array, layers: Array, case: Case, gradient_overlap: NDArray[np.bool_] | bool, parameter_overlap: bool,
) -> Array:
    """Data-parallel seconds of a step that compute does not hide, with the slowdown of the compute that hides the rest.

        ZeRO-0, 1   hide(reduce, B) + last bucket + hide(gather, F)                 once a step
        ZeRO-2      m hide(scatter, B) + hide(reduce, B') + last bucket + hide(gather, F)
        ZeRO-3      m [hide(gather, F) + hide(gather + scatter, B) + gather / layers] + hide(reduce, B') + last layer's scatter
        + slowdown x (hidden - last bucket)

    Symbols: F, B windows of forward and backward of one micro-batch on the stage (the layers' own communication hides nothing);
             B' what the scatter leaves of the last; m micro-batches; hide(t, w) = t - min(r t, w).
    Shapes:  everything broadcasts.
    Units:   s.
    Holds:   gradients are reduced during the last backward, parameters gathered during the first forward (ZeRO-0 to 2); sharded
             gradients and parameters move for every micro-batch. ZeRO-3's first layer waits for its gather. The last bucket
             is seen, so it slows nothing down; a shorter window makes no step shorter.
    Source:  Megatron-Core overlap_grad_reduce and overlap_param_gather; PyTorch FSDP2; Korthikanti-style accounting of windows.
    """
    constants = case.calibration.constants
    ratio, slow = constants.overlap_ratio, constants.contention_slowdown
    none = array(0.0)
    m = array(num_microbatches)
    window_b = np.where(gradient_overlap, backward_s, none)
    window_f = forward_s if parameter_overlap else none
    reduction = times.scatter_s + times.reduce_s
    once_g, hidden_g = hide(reduction, window_b, ratio)
    once_p, hidden_p = hide(times.gather_s, window_f, ratio)
    tail = np.where(gradient_overlap, np.minimum(times.last_bucket_s, hidden_g), none)
    zero01 = once_g + tail + once_p + slow * (hidden_g + hidden_p - tail)
    each_s, hidden_s = hide(times.scatter_s, window_b, ratio)
    rest, hidden_r = hide(times.reduce_s, np.maximum(0.0, window_b - hidden_s), ratio)
    zero2 = m * each_s + rest + tail + once_p + slow * (m * hidden_s + hidden_r + hidden_p - tail)
    both, hidden_both = hide(times.gather_s + times.scatter_s, window_b, ratio)
    first = times.gather_s / np.maximum(1.0, layers)
    left, hidden_l = hide(times.reduce_s, np.maximum(0.0, window_b - hidden_both), ratio)
    zero3 = m * (once_p + both + first) + left + tail + slow * (m * (hidden_p + hidden_both) + hidden_l - tail)
    return np.where(parameter_shards > 1.0, zero3, np.where(gradient_shards > 1.0, zero2, zero01))
