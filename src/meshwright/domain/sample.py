"""One thing that a profile timed on a machine, with how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import field

from meshwright.value import Value

Bench = Literal[
    "product", "grouped", "attention", "pass", "operator", "distributed", "unit", "message", "transfer", "collective",
    "beside", "memory",
]
"""Sorts of micro-benchmarks; none of them is a layer or a step."""

Argument: TypeAlias = int | float | str


class Sample(Value, frozen=True, kw_only=True):
    """Seconds of one call, from blocks of calls; of each block the slowest rank counts."""

    bench: Bench
    arguments: Mapping[str, Argument]
    busy_ranks: int
    """Ranks that measured at the same time."""
    seconds: float
    """Median over blocks."""
    low_s: float
    """95 % interval of that median, from order statistics."""
    high_s: float
    best_s: float
    worst_s: float
    blocks: int
    calls: int
    """Calls of one block."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the benchmark, units in their names."""
    load: float = 0.0
    """Load average of the last minute before it was measured."""

    @property
    def noise_ratio(self) -> float:
        """Half of the median's interval, relative to the median."""
        return (self.high_s - self.low_s) / (2.0 * self.seconds)

    @property
    def key(self) -> tuple[str, tuple[tuple[str, Argument], ...], int]:
        """What makes it the same measurement as another."""
        return (self.bench, tuple(sorted(self.arguments.items())), self.busy_ranks)
