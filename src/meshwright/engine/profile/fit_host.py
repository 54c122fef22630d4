"""Memory-bound passes, host times and copies -> bandwidths, speeds by kind, gaps between kernels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.engine.profile.fit_compute import LEAST_NOISE, noise_of, number, vector
from meshwright.engine.profile.fitted import BenchFit, Fitted, bench_fit
from meshwright.engine.profile.robust import spread, weighted_median
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.robust import Array

MOST_START = 0.9
"""Of the shortest pass of a kind may be its start at most."""
SHORTEST_S = 1e-9
"""A host time that was measured as nothing, or less, for its noise."""


def fit_memory(samples: Sequence[Sample]) -> Fitted | None:
    """Bandwidth of large copies, bytes read and written: the best size of those of a tenth of the largest and more."""
    if not samples:
        return None
    largest = max(number(each, "bytes") for each in samples)
    rates = [number(each, "bytes") / each.seconds for each in samples if number(each, "bytes") >= largest / 10.0]
    return Fitted(value=max(rates), words=f"copy of {largest / 1e6:.0f} MB, read and written")


def fit_transfers(samples: Sequence[Sample]) -> Fitted | None:
    """Bandwidth between host and device, the slower direction; of a processor that of a copy."""
    by_direction: defaultdict[str, list[float]] = defaultdict(list)
    for each in samples:
        by_direction[str(each.arguments["direction"])].append(number(each, "bytes") / each.seconds)
    between = [max(rates) for direction, rates in by_direction.items() if direction != "on_device"]
    if between:
        return Fitted(value=min(between), words=f"{len(samples)} copies between host and device, the slower direction")
    rates = by_direction.get("on_device")
    return Fitted(value=max(rates), words=f"{len(rates)} copies in memory") if rates else None


def fit_passes(
    samples: Sequence[Sample], bytes_of: Callable[[str, str], float | None], bandwidth_bytes_per_s: float, gap_s: float,
    memory_ratio: float | None = None,
) -> tuple[Fitted, dict[str, Fitted], BenchFit] | None:
    """``memory_ratio``, the median of all kinds by their bytes unless it is given, and the speed of every kind relative to it.

        seconds = start + bytes / rate, of a kind and direction;   speed = bytes of both directions / their seconds without starts

    The model's own bytes then give the measured seconds again: ``bytes_of`` a kind and a direction, per element, as the
    implementation counts them, else as the benchmark saw them. The start is what the model counts as gaps between kernels.
    """
    timed = [each for each in samples if _bytes(each, bytes_of)]
    if not timed:
        return None
    sorts: defaultdict[str, defaultdict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for each in timed:
        sorts[str(each.arguments["kind"])][str(each.arguments["direction"])].append(each)
    rates: dict[str, float] = {}
    for kind, directions in sorted(sorts.items()):
        largest = {key: max(_bytes(each, bytes_of) for each in own) for key, own in directions.items()}
        device_s = sum(largest[key] / _rate(own, bytes_of, gap_s) for key, own in directions.items())
        rates[kind] = sum(largest.values()) / device_s / bandwidth_bytes_per_s
    ratio = memory_ratio or weighted_median(np.array(list(rates.values())), np.ones(len(rates)))
    seconds, moved = vector(timed, "seconds"), np.array([_bytes(each, bytes_of) for each in timed])
    speed = np.array([rates[str(each.arguments["kind"])] for each in timed])
    host = np.array([each.values.get("operators", 1.0) for each in timed]) * gap_s
    predicted = moved / (bandwidth_bytes_per_s * speed) + host
    missed = np.log(predicted / seconds)
    speeds: dict[str, Fitted] = {}
    for kind, rate in rates.items():
        own = np.array([each.arguments["kind"] == kind for each in timed])
        speeds[kind] = Fitted(value=rate / ratio, words=f"{int(own.sum())} passes, spread {percent(spread(missed[own]))}")
    found = Fitted(value=ratio, words=f"{len(timed)} passes of {len(rates)} kinds, their median")
    return found, speeds, bench_fit("pass", predicted, seconds, list(noise_of(timed)))


def _rate(samples: Sequence[Sample], bytes_of: Callable[[str, str], float | None], gap_s: float) -> float:
    """Bytes per second of a kind in one direction behind its start: least squares of relative errors, noisy samples less.

    One size alone cannot tell its start; then it is the gaps of its operators.
    """
    seconds, moved = vector(samples, "seconds"), np.array([_bytes(each, bytes_of) for each in samples])
    start = np.minimum(np.array([each.values.get("operators", 1.0) for each in samples]) * gap_s, MOST_START * seconds)
    if moved.max() >= 2.0 * moved.min():
        weights = 1.0 / (LEAST_NOISE + noise_of(samples)) / seconds
        terms = np.stack([np.ones_like(moved), moved], axis=1) * weights[:, None]
        (fixed, _), *_ = np.linalg.lstsq(terms, weights * seconds, rcond=None)
        start = np.full(len(moved), np.clip(fixed, 0.0, MOST_START * seconds.min()))
    worth = moved / (LEAST_NOISE + noise_of(samples)) ** 2
    return weighted_median(moved / (seconds - start), worth)


def _bytes(sample: Sample, bytes_of: Callable[[str, str], float | None]) -> float:
    each = bytes_of(str(sample.arguments["kind"]), str(sample.arguments["direction"]))
    return each * number(sample, "elements") if each else sample.values.get("bytes", 0.0)


def without_host(sample: Sample, host_s: float) -> Sample:
    """A sample less the host time of its one operator, which the model counts apart; half of it is left at least."""
    share = max(0.5, 1.0 - host_s / sample.seconds)
    return replace(
        sample, seconds=share * sample.seconds, low_s=share * sample.low_s, high_s=share * sample.high_s,
        best_s=share * sample.best_s, worst_s=share * sample.worst_s,
    )


def mean_host_s(samples: Sequence[Sample], kinds: Sequence[str], what: str) -> Fitted | None:
    """Mean over the kinds of the median host time of each; None where one of them was not measured."""
    medians: list[float] = []
    for kind in kinds:
        own = [each.seconds for each in samples if each.arguments.get("kind") == kind]
        if not own:
            return None
        medians.append(max(SHORTEST_S, float(np.median(own))))
    words = ", ".join(f"{kind} {each * 1e6:.3g} us" for kind, each in zip(kinds, medians, strict=True))
    return Fitted(value=float(np.mean(medians)), words=f"{what}: {words}")


def median_s(samples: Sequence[Sample], what: str) -> Fitted | None:
    """Median of the samples' seconds."""
    if not samples:
        return None
    seconds: Array = vector(samples, "seconds")
    return Fitted(value=max(SHORTEST_S, float(np.median(seconds))), words=f"{len(samples)} {what}")
