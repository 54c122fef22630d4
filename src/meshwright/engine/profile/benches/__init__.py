"""The benchmarks: each builds what it needs on one rank, and gives the calls that are timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.engine.profile.benches.exchanges import beside, collective, memory, transfer
from meshwright.engine.profile.benches.hosts import distributed, message, operator, unit
from meshwright.engine.profile.benches.kernels import attention, grouped, product
from meshwright.engine.profile.benches.passes import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.engine.profile.bench import Bench, Place

BENCHES: Mapping[str, Callable[[Place, Mapping[str, Any]], Bench]] = {
    "product": product, "grouped": grouped, "attention": attention, "pass": passes, "operator": operator,
    "distributed": distributed, "unit": unit, "message": message, "transfer": transfer, "collective": collective,
    "beside": beside, "memory": memory,
}
"""Word of a sample -> what builds the benchmark from its arguments."""
