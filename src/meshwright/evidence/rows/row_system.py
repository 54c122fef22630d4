"""The cluster and the implementation that a row was run on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for, implementation, load_cluster
from meshwright.evidence.rows import ascend, nvidia
from meshwright.evidence.rows.conventions import conventions

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.implementation import Implementation
    from meshwright.evidence.rows.row import Row

BLOCKING = "bigscience-workshop/bigscience train/tr11-176B-ml"
"""Source whose runs had CUDA_LAUNCH_BLOCKING=1, as its chronicles say."""


def cluster_of(row: Row) -> Cluster:
    """The cluster: where such runs are known to have been made, else what the device usually comes in."""
    devices, per_node = row.num_devices or 1, row.devices_per_node
    name = conventions().devices.get(row.device.split("(")[0], ascend.device(row))
    cluster = cluster_for(name, num_devices=devices, devices_per_node=per_node)
    for rule in conventions().clusters:
        if rule.holds(row, cluster.device.name):
            if rule.cluster:
                return load_cluster(rule.cluster, num_devices=devices)
            return replace(cluster, network=replace(cluster.network, bytes_per_s=rule.network_bytes_per_s))
    return cluster


def implementation_of(row: Row) -> Implementation:
    """How the row's framework ran it; one that no rule knows is taken for Megatron-Core with Transformer Engine."""
    if ascend.is_megatron(row) or ascend.is_mindspore(row):
        name = ascend.implementation(row)
    else:
        name = next(rule.implementation for rule in conventions().implementations if rule.holds(row))
    told = nvidia.said(row)
    if name == "megatron-te" and row.shape.num_experts and told.flex:
        name = "megatron-te-graphed" if told.graphs and row.precision == "fp8-mx" else "megatron-te-deepep"
    chosen = implementation(name)
    graphs = chosen.cuda_graphs or told.graphs
    waits = chosen.expert_host_sync and told.dropless and not graphs
    gradients = "bf16" if row.framework == "megatron-bridge" else chosen.gradient_dtype
    return replace(
        chosen,
        cuda_graphs=graphs,
        expert_host_sync=waits,
        gradient_dtype=gradients,
        blocking_launches=row.source.startswith(BLOCKING),
    )
