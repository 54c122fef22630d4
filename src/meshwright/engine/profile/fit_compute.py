"""Products -> peaks, sustained shares, tiles, and the products that correct others."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from meshwright.domain.calibration import Tile
from meshwright.domain.measured import TimedCore, TimedProduct
from meshwright.engine.profile.fitted import BenchFit, Fitted, bench_fit
from meshwright.engine.profile.robust import LOOSE, fit_logs
from meshwright.perf.corrections import near_ratio
from meshwright.perf.gemm import linear_s
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device
    from meshwright.domain.measured import Direction
    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.robust import Array

Timed = TypeVar("Timed", TimedProduct, TimedCore)
LEAST_NOISE = 0.05
"""Relative error that no sample is more exact than, when they are weighed against each other."""
SQUARES = (16, 32, 64, 128)
"""Sides of the tiles that are tried where the device is a single unit: its library pads shapes to some of them."""
LONGEST_SETUP_K = 2048.0
NEAR = 0.5
"""How far, in logs, memory-bound products may take ``memory_ratio`` from what passes say."""
FEWEST = 3
"""Samples of a sort that may correct others."""
WORTH = 0.98
"""Correcting samples by others must leave no more than this share of their errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What products gave."""

    device: Device
    """With the peaks that were measured, where the catalogue has none."""
    constants: Constants
    found: Mapping[str, Fitted] = field(default_factory=dict)
    """The constants among them that were fitted."""
    peaks: Mapping[str, Fitted] = field(default_factory=dict)
    tiles: tuple[Tile, ...] = ()
    products: tuple[TimedProduct, ...] = ()
    benches: tuple[BenchFit, ...] = ()


def number(sample: Sample, name: str) -> float:
    """A numeric argument of a sample."""
    return float(sample.arguments[name])


def vector(samples: Sequence[Sample], name: str) -> Array:
    """A numeric argument of samples, or their ``seconds``."""
    return np.array([each.seconds if name == "seconds" else number(each, name) for each in samples])


def noise_of(samples: Sequence[Sample]) -> Array:
    """Half-widths of the samples' intervals, relative to their medians."""
    return np.array([each.noise_ratio for each in samples])


def fit_products(samples: Sequence[Sample], device: Device, constants: Constants, *, known_peaks: bool) -> Compute:
    """Peaks, ``gemm_ratio``, ``gemm_setup_k``, ``gemm_weight_gradient_ratio``, ``gemm_wave_ratio`` and tiles from timed products.

    ``memory_ratio`` is what products that memory bounds reach; where none is, it stays what ``constants`` have.
    The data type with most samples sets the constants; each other one has a rate of its own. Without ``known_peaks`` the peak is
    the best rate that was seen, or the fitted rate of endless shapes where that is higher.
    """
    by_type: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_type[str(sample.arguments["dtype"])].append(sample)
    if not by_type:
        return Compute(device=device, constants=constants)
    main = max(by_type, key=lambda dtype: (len(by_type[dtype]), dtype == "bf16"))
    tiles, rate, constants, error = _best_tiles(by_type[main], device, constants, main)
    peak = device.peak_flops_per_s.get(main) if known_peaks else None
    if peak is None:
        peak = max(rate, _best_rate(by_type[main]))
    constants = replace(constants, gemm_ratio=rate / peak)
    words = f"{len(by_type[main])} products in {main}, spread {percent(error)}"
    found = {name: Fitted(value=float(getattr(constants, name)), words=words) for name in _fitted_names(device)}
    peaks = {} if known_peaks and main in device.peak_flops_per_s else {main: Fitted(value=peak, words=f"best of {words}")}
    device = replace(device, peak_flops_per_s={**device.peak_flops_per_s, main: peak})
    for dtype, others in by_type.items():
        if dtype == main or (known_peaks and dtype in device.peak_flops_per_s):
            continue
        own, scatter = _rate(others, replace(device, peak_flops_per_s={dtype: 1e12}), constants, dtype)
        words = f"{len(others)} products in {dtype}, spread {percent(scatter)}, at the share of {main}"
        peaks[dtype] = Fitted(value=own, words=words)
        device = replace(device, peak_flops_per_s={**device.peak_flops_per_s, dtype: own})
    products, bench = _corrections(samples, device, constants)
    return Compute(
        device=device, constants=constants, found=found, peaks=peaks, tiles=tiles, products=products, benches=(bench,)
    )


def _fitted_names(device: Device) -> tuple[str, ...]:
    names = ("gemm_ratio", "gemm_setup_k", "gemm_weight_gradient_ratio", "memory_ratio")
    return names if device.num_units == 1 else (*names, "gemm_wave_ratio")


def _best_tiles(
    samples: Sequence[Sample], device: Device, constants: Constants, dtype: str
) -> tuple[tuple[Tile, ...], float, Constants, float]:
    """Tiles, rate of endless shapes, constants and spread: the tiles under which the samples are missed least."""
    sets: list[tuple[Tile, ...]] = [()]
    if device.num_units == 1:
        sets += [(Tile(rows=side, columns=side, ratio=1.0),) for side in SQUARES]
    tried = []
    for tiles in sets:
        rate, found, error = _shape_fit(samples, device, replace(constants, tiles=tiles or constants.tiles), dtype)
        place = replace(device, peak_flops_per_s={dtype: rate})
        missed = np.abs(np.log(formula_s(samples, place, replace(found, gemm_ratio=1.0)) / vector(samples, "seconds")))
        tried.append((float(np.mean(missed)), tiles, rate, found, error))
    return min(tried, key=lambda each: each[0])[1:]


def _shape_fit(samples: Sequence[Sample], device: Device, constants: Constants, dtype: str) -> tuple[float, Constants, float]:
    measured, best = vector(samples, "seconds"), _best_rate(samples)
    waves = device.num_units > 1
    start = [best, float(constants.gemm_setup_k), float(constants.gemm_weight_gradient_ratio), float(constants.memory_ratio)]
    low, high = [best / 100.0, 1e-2, 0.05, 0.01], [best * 10.0, LONGEST_SETUP_K, 5.0, 100.0]
    loose = [LOOSE, LOOSE, 1.0, NEAR]
    if waves:
        loose.append(1.0)
        start, low, high = [*start, float(constants.gemm_wave_ratio)], [*low, 1e-3], [*high, 1.0]

    def tried(values: Array) -> tuple[Device, Constants]:
        wave = values[4] if waves else constants.gemm_wave_ratio
        changed = replace(
            constants, gemm_ratio=1.0, gemm_fp8_ratio=1.0, gemm_fp4_ratio=1.0, gemm_setup_k=values[1],
            gemm_weight_gradient_ratio=values[2], memory_ratio=values[3], gemm_wave_ratio=wave,
        )
        return replace(device, peak_flops_per_s={dtype: float(values[0])}), changed

    def residuals(values: Array) -> Array:
        place, changed = tried(values)
        return np.asarray(np.log(formula_s(samples, place, changed) / measured))

    values, error = fit_logs(
        residuals, np.array(start), np.array(low), np.array(high), noise=noise_of(samples), loose=np.array(loose)
    )
    _, found = tried(values)
    kept = replace(
        found, gemm_ratio=constants.gemm_ratio, gemm_fp8_ratio=constants.gemm_fp8_ratio, gemm_fp4_ratio=constants.gemm_fp4_ratio,
        gemm_setup_k=float(values[1]), gemm_weight_gradient_ratio=float(values[2]), memory_ratio=float(values[3]),
        gemm_wave_ratio=float(found.gemm_wave_ratio),
    )
    return float(values[0]), kept, error


def _rate(samples: Sequence[Sample], device: Device, constants: Constants, dtype: str) -> tuple[float, float]:
    """The peak at which products of another data type are fitted best with constants that are known."""
    measured, best = vector(samples, "seconds"), _best_rate(samples)

    def residuals(values: Array) -> Array:
        place = replace(device, peak_flops_per_s={dtype: float(values[0])})
        return np.asarray(np.log(formula_s(samples, place, constants) / measured))

    values, error = fit_logs(
        residuals, np.array([best]), np.array([best / 100.0]), np.array([best * 100.0]), noise=noise_of(samples)
    )
    return float(values[0]), error


def _best_rate(samples: Sequence[Sample]) -> float:
    return max(2.0 * number(each, "rows") * number(each, "columns") * number(each, "inner") / each.seconds for each in samples)


def formula_s(samples: Sequence[Sample], device: Device, constants: Constants) -> Array:
    """What ``linear_s`` says of timed products, all of data types that the device has.

    Shapes:  one value a sample.
    Units:   s.
    """
    result = np.zeros(len(samples))
    keys = [(str(each.arguments["dtype"]), str(each.arguments["direction"])) for each in samples]
    for dtype, direction in sorted(set(keys)):
        index = [place for place, key in enumerate(keys) if key == (dtype, direction)]
        rows, columns, inner = (vector([samples[place] for place in index], name) for name in ("rows", "columns", "inner"))
        result[index] = linear_s(
            rows, columns, inner, direction=direction, device=device, constants=constants, dtype=dtype  # type: ignore[arg-type]
        )
    return result


def _corrections(
    samples: Sequence[Sample], device: Device, constants: Constants
) -> tuple[tuple[TimedProduct, ...], BenchFit]:
    """Products of the data types and directions whose held-out samples come nearer by them, and the errors of all."""
    predicted, measured = formula_s(samples, device, constants), vector(samples, "seconds")
    timed = [
        TimedProduct(
            rows=int(number(each, "rows")), columns=int(number(each, "columns")), inner=int(number(each, "inner")),
            dtype=str(each.arguments["dtype"]), direction=str(each.arguments["direction"]),  # type: ignore[arg-type]
            seconds=each.seconds, formula_s=float(formula),
        )
        for each, formula in zip(samples, predicted, strict=True)
    ]
    kept, held_out = helpful(timed, predicted, measured)
    return kept, bench_fit("product", predicted, measured, list(noise_of(samples)), held_out if kept else None)


def helpful(timed: Sequence[Timed], predicted: Array, measured: Array) -> tuple[tuple[Timed, ...], Array]:
    """Those samples, by data type and direction, by which the others come nearer to what was measured; and every prediction where
    each sample is corrected by the others without itself.
    """
    kept: list[Timed] = []
    held_out = predicted.copy()
    for key in sorted({(each.dtype, each.direction) for each in timed}):
        index = [place for place, each in enumerate(timed) if (each.dtype, each.direction) == key]
        if len(index) < FEWEST:
            continue
        ratios = [near_ratio([timed[other] for other in index if other != place], *timed[place].shape) for place in index]
        corrected = predicted[index] * np.array(ratios, dtype=np.float64)
        before = np.mean(np.abs(np.log(predicted[index] / measured[index])))
        after = np.mean(np.abs(np.log(corrected / measured[index])))
        if after <= WORTH * before:
            kept += [timed[place] for place in index]
            held_out[index] = corrected
    return tuple(kept), held_out


def fit_grouped(samples: Sequence[Sample], device: Device, constants: Constants) -> tuple[Fitted, BenchFit] | None:
    """``grouped_gemm_ratio`` from experts' products: forward, or both gradients together (``backward``)."""
    timed = [each for each in samples if str(each.arguments["dtype"]) in device.peak_flops_per_s]
    if not timed:
        return None
    measured = vector(timed, "seconds")

    def residuals(values: Array) -> Array:
        return np.asarray(np.log(_grouped_s(timed, device, replace(constants, grouped_gemm_ratio=float(values[0]))) / measured))

    start = np.array([float(constants.grouped_gemm_ratio)])
    (ratio,), error = fit_logs(residuals, start, np.array([1e-2]), np.array([10.0]), noise=noise_of(timed))
    predicted = measured * np.exp(residuals(np.array([ratio])))
    words = f"{len(timed)} grouped products, spread {percent(error)}"
    return Fitted(value=float(ratio), words=words), bench_fit("grouped", predicted, measured, list(noise_of(timed)))


def _grouped_s(samples: Sequence[Sample], device: Device, constants: Constants) -> Array:
    """What the formula says of experts' products; backward is both gradients."""
    times: list[float] = []
    for each in samples:
        groups, forward = number(each, "groups"), str(each.arguments.get("direction", "forward")) == "forward"
        directions: tuple[Direction, ...] = ("forward",) if forward else ("input", "weight")
        parts = [
            linear_s(
                number(each, "rows") / groups, number(each, "columns"), number(each, "inner"), direction=direction,
                device=device, constants=constants, dtype=str(each.arguments["dtype"]), groups=groups, grouped=True,
            )
            for direction in directions
        ]
        times.append(sum(map(float, parts)))
    return np.array(times)
