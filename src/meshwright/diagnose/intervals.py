"""Where an observed part of the step is to lie: only where something was measured that says how far its prediction is off.

Published runs measure steps, so that the interval of a step is one of runs and no part has such a one. A cluster that was profiled
has collectives of its own beside their prediction: what nothing hides of a part that consists of these is as far off as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.corrections import timed_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout
    from meshwright.domain.measured import TimedCollective

LEVEL = 0.9
"""Share of the collectives that lie within: that of the step's interval."""
ENOUGH = 10
"""Collectives of a tier, of which one in ten may lie outside."""


def part_interval(part: str, predicted_s: float, cluster: Cluster, layout: Layout) -> tuple[float, float] | None:
    """Where a part lies if it is no further off than the cluster's own collectives; None where these do not tell.

        [x / e^h, x e^h],   h the quantile 0.9 of |log measured - log predicted| over collectives of the group's tier

    Each collective is predicted by the others of its tier. They ran alone: what ranks wait for each other is not in it, so that of
    steps more than one in ten may lie above.

    Units:   s.
    Holds:   for tensor parallelism that is not hidden, and for context parallelism that gathers or swaps heads; parts that overlap
             (``dp``, ``pp``, rings), that hold waits (``ep``) or are sums of many operators (``compute``) have none.
    Source:  none, a quantile of ``Cluster.measured``.
    """
    inner, size = {"tp": (1, layout.tensor_parallel), "cp": (layout.tensor_parallel, layout.context_parallel)}.get(part, (1, 1))
    hidden = layout.overlap.tensor if part == "tp" else layout.context_kind not in ("all-gather", "ulysses")
    if cluster.measured is None or size == 1 or hidden:
        return None
    timed = cluster.measured.scale_up if inner * size <= cluster.scale_up_devices else cluster.measured.network
    if len(timed) < ENOUGH:
        return None
    factor = float(np.exp(np.quantile(np.abs(_residuals(timed)), LEVEL)))
    return predicted_s / factor, predicted_s * factor


def _residuals(timed: Sequence[TimedCollective]) -> list[float]:
    """Log of each collective's time over what the others of its tier make of it."""
    found = []
    for place, each in enumerate(timed):
        others = (*timed[:place], *timed[place + 1 :])
        found.append(float(np.log(each.ratio / timed_ratio(others, each.operation, each.ranks, each.payload_bytes))))
    return found
