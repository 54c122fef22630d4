"""Groups of ranks of a layout: which rank stands where, as PyTorch device meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.engine.stages import folded

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.domain.layout import Layout

AXES = ("pp", "dp", "cp", "tp")
"""From slow to fast: neighbours in rank share tensor parallelism."""
SHARED = ("replicate", "shard")
"""The two dimensions of data parallelism: groups that hold the same, and ranks of a group that share it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranks:
    """This rank's coordinates and groups."""

    mesh: DeviceMesh
    """All ranks by ``AXES``."""
    tensor: DeviceMesh
    """The ranks of one tensor-parallel group; child of the same mesh as ``replicas``, as fully sharded parameters need."""
    replicas: DeviceMesh
    """Ranks that hold the same dense parameters, dp x cp as (replicate, shard)."""
    experts: DeviceMesh | None
    """(replicate, shard, experts) of the ranks of a stage; None where experts stand as dense parameters do."""
    owners: DeviceMesh | None = None
    """Ranks that share optimizer state over whole gradients (ZeRO-1); None: each rank has that of its own parameters."""
    expert_owners: DeviceMesh | None = None
    """The same of routed experts."""
    ends: DeviceMesh | None = None
    """First and last rank of a pipeline, which both have a tied embedding; None where nothing is shared so."""

    def place(self, axis: str) -> int:
        """This rank's coordinate on an axis."""
        return int(self.mesh.get_local_rank(axis))

    def size(self, axis: str) -> int:
        """Ranks on an axis."""
        return int(self.mesh[axis].size())

    @property
    def sharers(self) -> DeviceMesh:
        """Ranks that share dense parameters, for ``fully_shard``: one dimension, or two where there are several groups."""
        return _sharers(self.replicas)

    @property
    def expert_sharers(self) -> DeviceMesh:
        """The same of routed experts."""
        return self.sharers if self.experts is None else _sharers(self.experts[SHARED])


def _sharers(replicas: DeviceMesh) -> DeviceMesh:
    return replicas if replicas["replicate"].size() > 1 else replicas["shard"]


def ranks_of(layout: Layout, device: str, *, tied: bool = False) -> Ranks:
    """The meshes of a layout; every rank calls it, in the same order. ``tied``: the model's two ends are one parameter.

    Holds:   world = pp x dp x cp x tp; shards divide dp x cp; ep divides the ranks of a stage.
    """
    assert dist.get_world_size() == layout.world, "the launcher has checked"
    pp, dp, cp, tp = layout.pipeline_parallel, layout.data_parallel, layout.context_parallel, layout.tensor_parallel
    mesh = init_device_mesh(device, (pp, dp, cp, tp), mesh_dim_names=AXES)
    shards = gradient_shards(layout)
    whole = init_device_mesh(device, (pp, dp * cp // shards, shards, tp), mesh_dim_names=("pp", *SHARED, "tp"))
    experts = None
    if layout.expert_parallel > 1 or tp > 1:
        replicas = dp * cp * tp // layout.expert_parallel
        own = min(shards, replicas)
        shape = (pp, replicas // own, own, layout.expert_parallel)
        experts = init_device_mesh(device, shape, mesh_dim_names=("pp", *SHARED, "experts"))[(*SHARED, "experts")]
    return Ranks(
        mesh=mesh, tensor=whole["tp"], replicas=whole[SHARED], experts=experts,
        owners=_groups(mesh.mesh.reshape(pp, dp * cp, tp).permute(0, 2, 1), layout.optimizer_shards // shards, device),
        expert_owners=_groups(_replicas_of_experts(layout, mesh.mesh), layout.optimizer_shards // shards, device),
        ends=_groups(mesh.mesh.reshape(pp, -1)[[0, -1]].T, 2 if tied and pp > 1 and not folded(layout) else 1, device),
    )


def _replicas_of_experts(layout: Layout, ranks: Tensor) -> Tensor:
    """Ranks ``[stage and expert, replica]``."""
    return ranks.reshape(layout.pipeline_parallel, -1, layout.expert_parallel).permute(0, 2, 1)


def _groups(rows: Tensor, size: int, device: str) -> DeviceMesh | None:
    """Groups of at most so many neighbours in the rows; None where a group would be one rank. Not every rank need be in one."""
    size = min(size, rows.shape[-1])
    if size <= 1:
        return None
    return DeviceMesh(device, rows.reshape(-1, size), mesh_dim_names=("groups", "members"))["members"]


def gradient_shards(layout: Layout) -> int:
    """Ranks that share gradients or parameters: 1 under ZeRO-0 and ZeRO-1, whose gradients are whole on every rank."""
    return max(layout.gradient_shards, layout.parameter_shards)
