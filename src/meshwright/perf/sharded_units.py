"""Data parallelism by sharded units, one for each layer and one for the ends: messages, and the copies around them (FSDP2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.mesh import group
from meshwright.perf.arrays import Array, array
from meshwright.perf.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from meshwright.perf.elementwise import memory_bound_s
from meshwright.perf.exchange import hide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case

CAST, GATHERED, SCATTERED = "cast", "gathered", "scattered"
"""Kinds of passes around messages: a profile may have timed casts alone."""


class UnitTimes(Struct, frozen=True, kw_only=True):
    """Seconds of all units of a rank, once each; columns."""

    gather_s: Array
    scatter_s: Array
    reduce_s: Array
    owners_s: Array
    """Everybody's updated slices gathered, with the copies around it: once a step."""
    gather_copies_s: Array
    """Casts and copies around a gather."""
    reduce_copies_s: Array
    """The same around a reduction."""
    wait_copies_s: Array
    """What gradients that wait for those of further micro-batches cost on top."""
    sum_s: Array
    """Gradients of one more micro-batch added to those that wait."""
    shard_sum_s: Array
    """Reduced gradients of one more micro-batch added to the shard's."""
    last_s: Array
    """Reduction of one unit, the last, which no backward is left to hide."""
    units: Array


def unit_times(
    dense: Array, experts: Array, *, replicas: Array, stride: Array, expert_replicas: Array, expert_stride: Array, apart: Array,
    shards: Array, owners: Array, layers: Array, ends: Array, case: Case,
) -> UnitTimes:
    """One gather, one reduction and the copies of every unit of a rank.

        gather  all-gather(2 P) over K, u messages;   reduce  reduce-scatter(4 P) over K, all-reduce(4 P / K) over D / K
        owners  all-gather(4 P) over O;   copies  q P or q P / K over the memory bandwidth

    Symbols: P parameters of the rank; K ``shards``, for experts min(K, D_e); D replicas; O owners of slices of whole states
             (ZeRO-1); u units: ``layers`` and one for the ends, which owners gather as ``ends`` messages; q bytes of ``Units``.
             ``apart``: 1 where routed experts are units of their own.
    Shapes:  everything broadcasts.
    Units:   parameters -> s.
    Holds:   gathered in BF16, reduced in FP32; units of a rank weigh the same.
    Source:  torch.distributed.fsdp.fully_shard, engine/optimizer.py; messages as ``perf.messages.unit_messages``, copies counted
             in dry runs (tests/engine/test_reference_time.py).
    """
    cluster, constants, precision = case.cluster, case.calibration.constants, case.training.precision
    rows = case.implementation.units
    assert rows is not None, "the implementation has units"
    gather = scatter = reduce = owned = last = array(0.0)
    casts = into = out = whole = waiting = one_more = shard_more = array(0.0)
    together = dense + np.where(apart > 0.0, 0.0, experts)
    alone = np.where(apart > 0.0, experts, 0.0)
    number = layers + np.where(ends > 0.0, 1.0, 0.0)
    for parameters, ranks, step, units, messages in (
        (together, replicas, stride, number, layers + ends), (alone, expert_replicas, expert_stride, layers, layers),
    ):
        members = np.minimum(shards, ranks)
        inside = group(members, step, cluster)
        outside = group(np.maximum(1.0, ranks / members), step * members, cluster)
        holders = np.minimum(owners, ranks)
        some = parameters > 0.0
        payload = precision.gradient_bytes * parameters
        one = reduce_scatter_s(payload, inside, cluster, constants, pieces=units)
        two = all_reduce_s(payload / members, outside, cluster, constants, pieces=units)
        three = all_gather_s(precision.gather_bytes * parameters, inside, cluster, constants, pieces=units)
        four = all_gather_s(payload, group(holders, step, cluster), cluster, constants, pieces=messages)
        copies = np.where(holders > 1.0, rows.owner_shard_bytes / holders + rows.owner_bytes, 0.0) * parameters
        gather = gather + np.where(some, three, 0.0)
        scatter = scatter + np.where(some, one, 0.0)
        reduce = reduce + np.where(some, two, 0.0)
        owned = owned + np.where(some, four + memory_bound_s(copies, cluster.device, constants, kind=CAST), 0.0)
        last = last + np.where(some, (one + two) / np.maximum(1.0, units), 0.0)
        casts = casts + rows.cast_shard_bytes / members * parameters
        into = into + (rows.gather_shard_bytes / members + np.where(members > 1.0, rows.gather_bytes, 0.0)) * parameters
        out = out + rows.reduce_bytes * parameters
        alone_bytes = rows.copy_bytes + np.where(ranks > 1.0, rows.quotient_bytes, 0.0)
        whole = whole + np.where(members > 1.0, 0.0, alone_bytes) * parameters
        waiting = waiting + rows.first_sum_bytes * parameters
        one_more = one_more + rows.sum_bytes * parameters
        shard_more = shard_more + rows.shard_sum_bytes / members * parameters

    def moved(bytes_: Array, kind: str = CAST) -> Array:
        return memory_bound_s(bytes_, cluster.device, constants, kind=kind if kind in constants.pass_speeds else CAST)

    return UnitTimes(
        gather_s=gather, scatter_s=scatter, reduce_s=reduce, owners_s=owned,
        gather_copies_s=moved(casts) + moved(into, GATHERED), reduce_copies_s=moved(out, SCATTERED) + moved(whole),
        wait_copies_s=moved(waiting), sum_s=moved(one_more), shard_sum_s=moved(shard_more), last_s=last, units=number,
    )


class UnitCounts(Struct, frozen=True, kw_only=True):
    """How often units gather and reduce in a step; columns."""

    forward_gathers: Array
    backward_gathers: Array
    scatters: Array
    waiting: Array
    """Backwards whose gradients are added to those that wait; of all but the first."""
    waits: Array
    """1 where gradients wait for those of further micro-batches at all."""


def unit_counts(
    *, gradient_shards: Array, parameter_shards: Array, pipeline_parallel: Array, num_microbatches: Array
) -> UnitCounts:
    """Gathers and reductions of a unit in a step.

        sharded, no pipeline   m gathers forward, and m backward where parameters are sharded, too;   m reductions
        else                   1 gather, 1 reduction, for which the gradients of m micro-batches wait

    Symbols: m micro-batches.
    Shapes:  everything broadcasts.
    Units:   calls.
    Holds:   gradients are reduced across shard groups once a step.
    Source:  engine/parallel.py, engine/step.py; torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync.
    """
    m = array(num_microbatches)
    piped = array(pipeline_parallel) > 1.0
    sharded = np.maximum(gradient_shards, parameter_shards) > 1.0
    each = np.where(sharded & ~piped, m, 1.0)
    waits = np.where(each < m, 1.0, 0.0)
    return UnitCounts(
        forward_gathers=each, backward_gathers=np.where((array(parameter_shards) > 1.0) & ~piped, m, 0.0), scatters=each,
        waiting=waits * (m - 1.0), waits=waits,
    )


def units_exposed_s(
    times: UnitTimes, counts: UnitCounts, *, forward_s: Array, backward_s: Array, case: Case,
    gradient_overlap: NDArray[np.bool_] | bool, parameter_overlap: bool,
) -> Array:
    """Seconds that sharded units add to a step.

        F hide(gather, forward) + B hide(gather, backward) + S hide(scatter, backward') + hide(reduce, backward'') + last unit
        + slowdown x (hidden - first and last unit) + (F + B) copies + S copies + [waits] (copies + (m - 1) sum)
        + (S - 1) shard sum + owners

    Symbols: F, B gathers of the forward and the backward; S reductions; hide(t, w) = t - min(r t, w);
             ', '' what gathers, and gathers and scatters, leave of a window.
    Shapes:  everything broadcasts.
    Units:   s.
    Holds:   copies hide behind nothing; the host time of units is among what layers cost.
    Source:  ``perf.data_parallel.exposed_s``; PyTorch FSDP2.
    """
    constants = case.calibration.constants
    ratio, slow = constants.overlap_ratio, constants.contention_slowdown
    none = array(0.0)
    window_b = np.where(gradient_overlap, backward_s, none)
    window_f = forward_s if parameter_overlap else none
    window_g = backward_s if parameter_overlap else none
    ahead, hidden_f = hide(times.gather_s, window_f, ratio)
    again, hidden_g = hide(times.gather_s, window_g, ratio)
    gathered = np.where(counts.backward_gathers > 0.0, hidden_g, 0.0)
    each, hidden_s = hide(times.scatter_s, np.maximum(0.0, window_b - gathered), ratio)
    rest, hidden_r = hide(times.reduce_s, np.maximum(0.0, window_b - gathered - hidden_s), ratio)
    first = np.where(np.asarray(parameter_overlap) & (times.units > 0.0), hidden_f / np.maximum(1.0, times.units), none)
    tail = np.where(gradient_overlap, np.minimum(times.last_s, hidden_s + hidden_r), none)
    seen = counts.forward_gathers * first + tail
    messages = counts.forward_gathers * ahead + counts.backward_gathers * again + counts.scatters * each + rest + seen
    hidden = counts.forward_gathers * hidden_f + counts.backward_gathers * hidden_g + counts.scatters * hidden_s + hidden_r
    copies = (counts.forward_gathers + counts.backward_gathers) * times.gather_copies_s + counts.scatters * times.reduce_copies_s
    sums = counts.waits * times.wait_copies_s + counts.waiting * times.sum_s + (counts.scatters - 1.0) * times.shard_sum_s
    return messages + slow * (hidden - seen) + copies + sums + times.owners_s
