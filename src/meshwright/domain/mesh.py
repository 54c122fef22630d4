"""Ranks on devices: in which order the axes fill the cluster, and which tier each axis crosses.

Megatron's order tp-cp-ep-dp-pp is used by every framework here: tensor ranks are neighbours, pipeline stages are
farthest apart. A group of ``ranks`` with ``stride`` has ``local`` members in each scale-up domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.cluster import Cluster

    Number = float | NDArray[np.float64]


class Group(Value, frozen=True, kw_only=True):
    """A communicator: how many ranks, how many of them share a scale-up domain, how many domains it spans.

    Fields broadcast: numbers or columns.
    """

    ranks: Number
    local: Number
    """Ranks of the group in one scale-up domain."""
    domains: Number
    """Scale-up domains that the group spans: ranks / local."""


def group(ranks: Number, stride: Number, cluster: Cluster) -> Group:
    """Place a group of ``ranks`` whose members are ``stride`` devices apart.

        local = max(1, min(ranks, floor(D / stride)));  domains = ceil(ranks / local)

    Symbols: D devices in a scale-up domain.
    Shapes:  ranks and stride broadcast.
    Holds:   strides and domains that are powers of two, or divide each other; else local is a lower bound.
    Source:  Megatron-Core parallel_state.RankGenerator, order tp-cp-ep-dp-pp.
    """
    domain = float(cluster.scale_up_devices)
    local = np.maximum(1.0, np.minimum(ranks, np.floor(domain / np.asarray(stride, dtype=np.float64))))
    return Group(ranks=ranks, local=local, domains=np.ceil(ranks / local))
