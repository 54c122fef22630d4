"""Groups of ranks of a layout: which rank stands where, as PyTorch device meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

AXES = ("pp", "dp", "cp", "tp")
"""From slow to fast: neighbours in rank share tensor parallelism."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranks:
    """This rank's coordinates and groups."""

    mesh: DeviceMesh
    replicas: DeviceMesh
    """Ranks that hold the same dense parameters: dp x cp, in one dimension or (replicas, shards) where shards are fewer."""
    experts: DeviceMesh | None
    """(replicas of experts, expert parallel) of the ranks of a stage; None without expert parallelism."""

    def place(self, axis: str) -> int:
        """This rank's coordinate on an axis."""
        return int(self.mesh.get_local_rank(axis))

    def size(self, axis: str) -> int:
        """Ranks on an axis."""
        return int(self.mesh[axis].size())


def ranks_of(layout: Layout, device: str) -> Ranks:
    """The meshes of a layout; every rank calls it, in the same order.

    Holds:   world = pp x dp x cp x tp; shards divide dp x cp; ep divides the ranks of a stage.
    """
    shape = (layout.pipeline_parallel, layout.data_parallel, layout.context_parallel, layout.tensor_parallel)
    assert dist.get_world_size() == layout.world, "the launcher has checked"
    mesh = init_device_mesh(device, shape, mesh_dim_names=AXES)
    shards = max(layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    both = layout.data_parallel * layout.context_parallel
    grid = mesh.mesh.reshape(layout.pipeline_parallel, both, layout.tensor_parallel)
    names = ("replicate", "shard")
    whole = DeviceMesh(device, grid.permute(0, 2, 1).reshape(-1, both // max(shards, 1), max(shards, 1)), mesh_dim_names=("rest", *names))
    experts = None
    if layout.expert_parallel > 1:
        stage = layout.world // layout.pipeline_parallel
        order = mesh.mesh.reshape(layout.pipeline_parallel, stage // layout.expert_parallel, layout.expert_parallel)
        experts = DeviceMesh(device, order, mesh_dim_names=("rest", "replicas", "experts"))["replicas", "experts"]
    return Ranks(mesh=mesh, replicas=whole[names], experts=experts)
