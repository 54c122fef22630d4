"""The cluster and the implementation that a row was run on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for, implementation, load_cluster

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.implementation import Implementation
    from meshwright.evidence.rows.row import Row


def cluster_of(row: Row) -> Cluster:
    """The cluster: where such runs are known to have been made, else what the device usually comes in."""
    said, devices = row.said, row.num_devices or 1
    cluster = cluster_for(said.device or row.device, num_devices=devices, devices_per_node=row.devices_per_node)
    if said.cluster:
        return load_cluster(said.cluster, num_devices=devices)
    if said.network_bytes_per_s is None:
        return cluster
    return replace(cluster, network=replace(cluster.network, bytes_per_s=said.network_bytes_per_s))


def implementation_of(row: Row) -> Implementation:
    """How the row's framework ran it."""
    said = row.said
    chosen = implementation(said.implementation + said.edition)
    graphs = chosen.cuda_graphs or said.graphs
    return replace(
        chosen, cuda_graphs=graphs, expert_host_sync=chosen.expert_host_sync and said.dropless and not graphs,
        gradient_dtype=said.gradient_dtype or chosen.gradient_dtype, blocking_launches=said.blocking_launches,
    )
