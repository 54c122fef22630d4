"""Collectives by tier and message size: the fastest of the algorithms that a library may choose.

A group has ``local`` ranks in each scale-up domain and spans ``domains`` of them; the NICs of a domain serve all groups
that talk at the same time, so one group gets ``local`` devices' worth of network. What a profile of the cluster measured
corrects every formula here (``perf.corrections``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.corrections import collective_ratio

if TYPE_CHECKING:
    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.measured import Operation
    from meshwright.domain.mesh import Group


def scale_up_bytes_per_s(cluster: Cluster, constants: Constants, local: Number) -> Array:
    """One-direction bandwidth per device inside a scale-up domain that a large collective of ``local`` of its members reaches.

        bw eta                       through a switch
        bw eta (l - 1) / (D - 1)     where every pair has its own link: a group uses the links among its members only

    Symbols: eta ``scale_up_ratio``; D devices of the domain; l ``local`` members, at least 2 where anything is sent.
    Shapes:  local broadcasts.
    Units:   bytes/s.
    Holds:   groups that talk at once share no link of a mesh.
    Source:  device data sheet; mesh derate as Primus (docs/sources.md#collectives). All-reduce bus bandwidth measured on
             eight 910B, 2 / 4 / 8 devices: 18 / 45 / 126 GB/s, and on A800: 143 / 156 / 156 (github gameofdimension/limulidae).
    """
    rate = cluster.scale_up.bytes_per_s * constants.scale_up_ratio
    if not cluster.scale_up.full_mesh or cluster.scale_up_devices < 3:
        return array(rate)
    return rate * (np.maximum(2.0, array(local)) - 1.0) / (cluster.scale_up_devices - 1.0)


def network_bytes_per_s(group: Group, cluster: Cluster, constants: Constants) -> Array:
    """One-direction network bandwidth per member device of a group that spans several domains.

        bw * eta / (1 + sigma log2(max(1, domains / f))) / oversubscription (beyond a pod)

    Symbols: eta ``network_ratio``; sigma ``fabric_slope``; f ``Link.flat_domains``.
    Shapes:  the group's fields broadcast.
    Units:   bytes/s.
    Holds:   every device of the domain drives its own NIC (or share of one) and all groups talk at once.
    Source:  the all-reduce bands of the playbook's cluster over 1-64 nodes (docs/sources.md#collectives).
    """
    domains = array(group.domains)
    loss = 1.0 + constants.fabric_slope * np.log2(np.maximum(1.0, domains / cluster.network.flat_domains))
    rate = cluster.network.bytes_per_s * constants.network_ratio / loss
    if cluster.pod_devices is None or cluster.oversubscription == 1.0:
        return rate
    beyond = domains * cluster.scale_up_devices > cluster.pod_devices
    return np.where(beyond, rate / cluster.oversubscription, rate)


def _corrected(
    formula_s: Array, operation: Operation, payload_bytes: Number, pieces: Number, group: Group, cluster: Cluster
) -> Array:
    """The formula's time moved by what the cluster's profile measured; the formula itself where there is none."""
    if cluster.measured is None:
        return formula_s
    return formula_s * collective_ratio(operation, group.ranks, group.domains, array(payload_bytes) / pieces, cluster)


def reduce_scatter_s(payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants, *, pieces: Number = 1.0) -> Array:
    """Time of a reduce-scatter whose full tensor has ``payload_bytes``: ``ring_s``.

    Shapes:  payload_bytes, pieces and the group broadcast.
    Units:   bytes -> s.
    Source:  ``ring_s``; measured where the cluster was profiled.
    """
    return _corrected(
        ring_s(payload_bytes, group, cluster, constants, pieces=pieces), "reduce-scatter", payload_bytes, pieces, group, cluster
    )


def all_gather_s(payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants, *, pieces: Number = 1.0) -> Array:
    """Time of an all-gather whose full tensor has ``payload_bytes``: ``ring_s``, as long as a reduce-scatter unless measured.

    Shapes:  payload_bytes, pieces and the group broadcast.
    Units:   bytes -> s.
    Source:  ``ring_s``; measured where the cluster was profiled.
    """
    return _corrected(
        ring_s(payload_bytes, group, cluster, constants, pieces=pieces), "all-gather", payload_bytes, pieces, group, cluster
    )


def ring_s(payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants, *, pieces: Number = 1.0) -> Array:
    """Time of a reduce-scatter or an all-gather whose full tensor has ``payload_bytes``, by the formula alone.

    A ring over all ranks; its many channels use all NICs of a domain.

        t = (n-1)/n B / min(bw_in, l bw_net)  +  k ((n-1) a + c)

    Symbols: n ranks, l of them in a domain; B payload; k ``pieces``: collectives that it is cut into (buckets, layers); a latency
             of a step, the network's where the group spans domains; c fixed start.
    Shapes:  payload_bytes, pieces and the group broadcast.
    Units:   bytes -> s.
    Holds:   n >= 1; balanced groups. Every step waits for its slowest hop.
    Source:  Thakur et al. 2005 section 4; NCCL runs these two as rings. At 512 ranks and 256 MB the corpus' best bands are 5.8 ms
             (collective_bandwidth.csv), latency-bound as the formula says.
    """
    payload, n, local, domains = array(payload_bytes), array(group.ranks), array(group.local), array(group.domains)
    inside = scale_up_bytes_per_s(cluster, constants, local)
    several = domains > 1.0
    across = local * network_bytes_per_s(group, cluster, constants)
    rate = np.where(several, np.minimum(inside, across), inside)
    step_s = np.where(several, cluster.network.latency_s, cluster.scale_up.latency_s)
    ring = (n - 1.0) / n * payload / rate + pieces * ((n - 1.0) * step_s + constants.collective_fixed_s)
    return np.where(n > 1.0, ring, 0.0)


def all_reduce_s(payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants, *, pieces: Number = 1.0) -> Array:
    """Time of an all-reduce: the fastest of ring, hierarchical tree, and the reducing switch.

        ring          2 ``ring_s``
        hierarchical  2 (l-1)/l B / bw_in + 2 B/l / bw_net [d > 1] + k (2 (l-1) a_in + 2 ceil(log2 d) a_net + c)
        in-switch     B / bw_in + k (2 a_in + c)                         (one domain whose switch reduces)

    Symbols: as in ``ring_s``; d domains. In one domain the hierarchical form is a ring.
    Shapes:  payload_bytes, pieces and the group broadcast.
    Units:   bytes -> s.
    Holds:   n >= 1.
    Source:  Thakur et al. 2005; NCCL double binary trees between nodes; NVLink SHARP moves each byte once (436 GB/s of bus
             bandwidth against 250 GB/s of an all-gather on one 8 x H100 node in the corpus' collective_bandwidth.csv).
    """
    ring = ring_s(payload_bytes, group, cluster, constants, pieces=pieces)
    return _all_reduce_s(ring, payload_bytes, group, cluster, constants, pieces)


def _all_reduce_s(
    once: Array, payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants, pieces: Number
) -> Array:
    """``all_reduce_s``, where one way round the ring takes ``once``."""
    payload, n, local, domains = array(payload_bytes), array(group.ranks), array(group.local), array(group.domains)
    inside = scale_up_bytes_per_s(cluster, constants, local)
    across = network_bytes_per_s(group, cluster, constants)
    ring = 2.0 * once
    depth = np.ceil(np.log2(np.maximum(1.0, domains)))
    latency = 2.0 * (local - 1.0) * cluster.scale_up.latency_s + 2.0 * depth * cluster.network.latency_s
    inner = 2.0 * (local - 1.0) / local * payload / inside
    outer = np.where(domains > 1.0, 2.0 * (payload / local) / across, 0.0)
    best = np.minimum(ring, inner + outer + pieces * (latency + constants.collective_fixed_s))
    if cluster.scale_up.in_network_reduction:
        switch = payload / inside + pieces * (constants.collective_fixed_s + 2.0 * cluster.scale_up.latency_s)
        best = np.where(domains > 1.0, best, np.minimum(best, switch))
    return _corrected(np.where(n > 1.0, best, 0.0), "all-reduce", payload, pieces, group, cluster)


class OfTensor(NamedTuple):
    """Seconds of collectives of one tensor in one group."""

    gather: Array
    scatter: Array
    reduce: Array


def of_tensor_s(payload_bytes: Number, group: Group, cluster: Cluster, constants: Constants) -> OfTensor:
    """An all-gather, a reduce-scatter and an all-reduce of ``payload_bytes``, which have one ring in common.

    Shapes:  payload_bytes and the group broadcast.
    Units:   bytes -> s.
    Source:  ``all_gather_s``, ``reduce_scatter_s``, ``all_reduce_s``.
    """
    ring = ring_s(payload_bytes, group, cluster, constants)
    return OfTensor(
        gather=_corrected(ring, "all-gather", payload_bytes, 1.0, group, cluster),
        scatter=_corrected(ring, "reduce-scatter", payload_bytes, 1.0, group, cluster),
        reduce=_all_reduce_s(ring, payload_bytes, group, cluster, constants, 1.0),
    )


def all_to_all_s(
    send_bytes: Number, group: Group, cluster: Cluster, constants: Constants, *, copies_ratio: Number = 1.0,
    inside_ratio: Number = 1.0,
) -> Array:
    """Time of an all-to-all in which every rank sends ``send_bytes`` in all, its own share included.

    The share for the same domain travels on the scale-up link, the rest on the network, both at the same time.

        inside = B q (l-1)/n / bw_in;   across = B r (n-l)/n / bw_net;   t = c + max(inside, across) + (n-1) p

    Symbols: p ``peer_s``, the start of one message; r ``copies_ratio``: copies that cross the network per routed copy
             (node-limited routing with one copy per destination node sends fewer); q ``inside_ratio``: the same between ranks.
    Shapes:  everything broadcasts.
    Units:   bytes -> s.
    Holds:   uniform destinations.
    Source:  Primus collective model (maximum of the tiers plus a start per remote peer), docs/sources.md#collectives.
    """
    payload, n, local = array(send_bytes), array(group.ranks), array(group.local)
    inside = payload * inside_ratio * (local - 1.0) / n / scale_up_bytes_per_s(cluster, constants, local)
    across = payload * copies_ratio * (n - local) / n / network_bytes_per_s(group, cluster, constants)
    steps = (n - 1.0) * constants.peer_s
    formula_s = np.where(n > 1.0, constants.collective_fixed_s + np.maximum(inside, across) + steps, 0.0)
    return _corrected(formula_s, "all-to-all", payload, 1.0, group, cluster)


def point_to_point_s(message_bytes: Number, *, crosses: Number, cluster: Cluster, constants: Constants) -> Array:
    """Time of one send to the next pipeline stage.

        t = x (a_net + B / bw_net) + (1 - x) (a_in + B / bw_in)

    Symbols: x ``crosses``: share of the hops that leave a scale-up domain; B bytes of one rank.

    Shapes:  message_bytes and crosses broadcast.
    Units:   bytes -> s.
    Source:  one NIC per sender (SimuMax: P2P over one NIC).
    """
    network = cluster.network.latency_s + array(message_bytes) / (cluster.network.bytes_per_s * constants.network_ratio)
    inside = cluster.scale_up.latency_s + array(message_bytes) / scale_up_bytes_per_s(cluster, constants, 2.0)
    if cluster.measured is not None:
        network = network * collective_ratio("send", 2.0, 2.0, message_bytes, cluster)
        inside = inside * collective_ratio("send", 2.0, 1.0, message_bytes, cluster)
    return array(crosses) * network + (1.0 - array(crosses)) * inside
