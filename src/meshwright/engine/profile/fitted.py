"""What a profile's samples become: figures with how they were found, and how well the formulas say the samples again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.calibration import Tile
    from meshwright.domain.cluster import Cluster
    from meshwright.engine.profile.robust import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One figure in base units, and in words what it was taken from."""

    value: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFit:
    """How well formulas with the fitted figures say the samples of one benchmark again; errors are |predicted / measured - 1|."""

    bench: str
    samples: int
    noise_ratio: float
    """Median half-width of the samples' own intervals."""
    median_ratio: float
    """Median error of the formulas alone."""
    worst_ratio: float
    held_out_ratio: float | None
    """Median error where each sample is corrected by its measured neighbours without itself; None where nothing corrects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMachine:
    """A machine as the cost model knows it."""

    cluster: Cluster
    """With ``measured`` filled."""
    figures: Mapping[str, Fitted]
    """Figures of device and links by their path in the file: ``peak.bf16``, ``memory_bandwidth``, ``scale_up.latency`` ..."""
    constants: Mapping[str, Fitted]
    passes: Mapping[str, Fitted]
    tiles: tuple[Tile, ...] = ()
    benches: tuple[BenchFit, ...] = ()
    base: str = ""
    """Device of the catalogue that figures come from which were not measured."""
    not_measured: tuple[str, ...] = field(default=())
    """Benchmarks without samples, whose figures stay priors."""


def bench_fit(
    bench: str, predicted: Array, measured: Array, noise: Sequence[float], held_out: Array | None = None
) -> BenchFit:
    """The errors of one benchmark.

    Shapes:  vectors of one length, at least 1.
    Units:   s.
    """
    errors = np.abs(predicted / measured - 1.0)
    return BenchFit(
        bench=bench, samples=len(measured), noise_ratio=float(np.median(noise)), median_ratio=float(np.median(errors)),
        worst_ratio=float(np.max(errors)),
        held_out_ratio=None if held_out is None else float(np.median(np.abs(held_out / measured - 1.0))),
    )
