"""How noisy each kind of runs is, judged by the residuals themselves, and how much a doubtful run may pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Key
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

DEGREES = 4.0
"""Degrees of freedom of the Student-t: the tails of real logs."""
GUESS, GUESS_RUNS, FLOOR = 0.08, 6.0, 0.02
"""Noise of a kind before any run of it is seen, how many runs that guess weighs, and the least noise: measuring twice."""
BANDS = (0.02, 0.05, 0.10, 0.20, 0.30)
"""Edges of the bands of predicted MFU: slow runs are noisier."""
MANY_NODES = 31
"""Runs on more nodes are a kind of their own: their network is noisier (collective_bandwidth.csv)."""


class Kinds(Value, frozen=True):
    """The kind of every run, for each figure, as a number."""

    step: NDArray[np.int64]
    memory: NDArray[np.int64]


class Timed(Protocol):
    """Runs and what the peak of their devices would take for each."""

    kinds: Kinds
    """``kinds_at_any_speed``."""
    log_ideal: Floats


def kinds_of_runs(space: Timed, log_step: Floats) -> Kinds:
    """Kinds that share a noise: framework, device, dense or mixture, few or many nodes, band of predicted MFU; for memory the first
    two."""
    bands = np.searchsorted(BANDS, np.exp(space.log_ideal - log_step))
    return Kinds(step=space.kinds.step * (len(BANDS) + 1) + bands, memory=space.kinds.memory)


def kinds_at_any_speed(runs: Sequence[Run], keys: Sequence[Key]) -> Kinds:
    """``kinds_of_runs`` without the band of MFU; ``keys``: of every run."""
    machines = [(key.framework, key.device) for key in keys]
    sorts = [
        (*machine, run.case.model.is_moe, run.layout.world > MANY_NODES * run.case.cluster.devices_per_node)
        for machine, run in zip(machines, runs, strict=True)
    ]
    return Kinds(step=_numbered(sorts), memory=_numbered(machines))


def _numbered(names: Sequence[Hashable]) -> NDArray[np.int64]:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def noise_of_kinds(residual: Floats, names: NDArray[np.int64], known: float | None = None) -> Floats:
    """Noise of every run's kind, where it is not ``known``: 1.4826 times the median absolute residual, shrunk to a guess where
    runs are few.

        s^2 = (n m^2 + n0 s0^2) / (n + n0),   at least the floor

    Shapes:  ``[run] -> [run]``.
    Units:   log units.
    """
    if known is not None:
        return np.full(len(residual), known)
    _, kind, counts = np.unique(names, return_inverse=True, return_counts=True)
    size = np.abs(residual)
    ordered, begin = size[np.lexsort((size, kind))], np.cumsum(counts) - counts
    middle = 1.4826 * (ordered[begin + (counts - 1) // 2] + ordered[begin + counts // 2]) / 2.0
    noise = np.sqrt((counts * middle**2 + GUESS_RUNS * GUESS**2) / (counts + GUESS_RUNS))
    return np.asarray(np.maximum(noise, FLOOR)[kind])


def student_weights(scaled: Floats) -> Floats:
    """Weights of an iteratively reweighted Student-t fit: (nu + 1) / (nu + (r / s)^2).

    Source:  Lange, Little and Taylor 1989.
    """
    return np.asarray((DEGREES + 1.0) / (DEGREES + np.square(scaled)))


def student_loss(residual: Floats, noise: Floats) -> Floats:
    """Negative log density of a Student-t without its constants: (nu + 1) / 2 log(1 + (r / s)^2 / nu) + log s."""
    return np.asarray((DEGREES + 1.0) / 2.0 * np.log1p(np.square(residual / noise) / DEGREES) + np.log(noise))
