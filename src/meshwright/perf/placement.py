"""Where the communicators of a layout lie: strides of the axes in rank order, and the tier each one crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.mesh import Group, group
from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster


class Groups(Struct, frozen=True, kw_only=True):
    """The communicators inside a layer and between stages; all fields hold columns."""

    tensor: Group
    context: Group
    expert: Group
    expert_tensor: Group
    pipeline_crosses: Array
    """Share of the hops to the next stage that leave a scale-up domain: min(1, devices of a stage / devices of a domain); none
    where all stages lie in one domain."""


def layer_groups(
    tensor_parallel: Number,
    context_parallel: Number,
    expert_parallel: Number,
    expert_tensor_parallel: Number,
    devices_per_stage: Number,
    pipeline_parallel: Number,
    cluster: Cluster,
) -> Groups:
    """Communicators of one layout: tp stride 1, cp stride tp, etp stride 1, ep stride etp, pp stride world / pp.

    Shapes:  all degrees broadcast.
    Units:   ranks.
    Source:  Megatron-Core parallel_state, order tp-cp-ep-dp-pp.
    """
    return Groups(
        tensor=group(array(tensor_parallel), 1.0, cluster),
        context=group(array(context_parallel), tensor_parallel, cluster),
        expert=group(array(expert_parallel), expert_tensor_parallel, cluster),
        expert_tensor=group(array(expert_tensor_parallel), 1.0, cluster),
        pipeline_crosses=crossing(array(devices_per_stage), pipeline_parallel, cluster),
    )


def crossing(devices_per_stage: Array, pipeline_parallel: Number, cluster: Cluster) -> Array:
    """Share of the hops to the next stage that leave a scale-up domain (``Groups.pipeline_crosses``).

    Shapes:  both broadcast.
    Units:   devices -> ratio.
    Source:  ``layer_groups``, whose term this is.
    """
    domain = cluster.scale_up_devices
    several = (array(pipeline_parallel) > 1.0) & (devices_per_stage * pipeline_parallel > domain)
    return np.where(several, np.minimum(1.0, devices_per_stage / domain), 0.0)
