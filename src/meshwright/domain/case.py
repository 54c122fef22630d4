"""A case: everything that is given. A layout is what is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.launch import AS_RECIPES, Launch
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.calibration import Calibration
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.model import Model
    from meshwright.domain.training import Batch, Training


class Case(Value, frozen=True, kw_only=True):
    """Model, cluster, batch, training, implementation and calibration: the input of every estimate."""

    model: Model
    cluster: Cluster
    batch: Batch
    training: Training
    implementation: Implementation
    calibration: Calibration
    flops_convention: str = "causal"
    """``causal`` (half of the attention square), ``full``, or ``megatron`` (full attention, padded vocabulary)."""
    launch: Launch = AS_RECIPES
    """How the run is launched."""
    memory_ratio: float = 0.90
    """Share of the device's memory that the trainer may use; one tenth stays free unless the user says otherwise.

    Near the edge the allocator retries and throughput collapses: published runs with pipelines took 3 to 8 times as long above
    68 of 80 GB (src/meshwright/evidence/data/README.md).
    """
    reserve_ratio: float = 0.0
    """Share of the device's memory kept free for another program (an inference engine)."""

    @property
    def capacity_bytes(self) -> float:
        """What the allocator may use on one device.

        A calibration that knows where memory ends lowers it to where half of the layouts run: no plan may need more.
        """
        allowed = self.cluster.device.memory_bytes * max(0.0, self.memory_ratio - self.reserve_ratio)
        known = self.calibration.uncertainty
        return allowed if known is None else min(allowed, known.fit.usable_bytes(self.offered_bytes))

    @property
    def offered_bytes(self) -> float:
        """Memory of one device that no other program keeps."""
        return self.cluster.device.memory_bytes * (1.0 - self.reserve_ratio)
