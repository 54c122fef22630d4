"""Time of matrix products from their shapes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array, ceil_divide

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device
    from meshwright.domain.measured import Direction


def sustained_ratio(constants: Constants, dtype: str) -> Number:
    """Share of the dense peak that a very large GEMM of this data type sustains.

    Units:   ratio.
    Source:  ``Constants``; power and clock limits, not shapes, set it.
    """
    if dtype.startswith("fp8"):
        return constants.gemm_fp8_ratio
    return constants.gemm_fp4_ratio if dtype.startswith("fp4") else constants.gemm_ratio


def gemm_s(
    m: Number,
    n: Number,
    k: Number,
    *,
    device: Device,
    constants: Constants,
    dtype: str,
    in_bytes: float = 2.0,
    out_bytes: float = 2.0,
    count: Number = 1.0,
    speed: Number = 1.0,
) -> Array:
    """Time of ``count`` independent products (m, k) x (k, n) run as one kernel.

    Tiles of the output fill the units of the device in waves; each tile costs its main loop and a fixed prologue and
    epilogue written as extra k. The fastest tile shape is taken, and memory traffic is a second floor.

        tiles = count * ceil(m / Tm) * ceil(n / Tn);   x = tiles / U
        waves = x + w * (ceil(x) - x)
        t = max( min over tiles of  waves * 2 Tm Tn (k + k0) / (peak / U * eff * r),
                 count * (in (m k + k n) + out m n) / (bw * mu) )

    Symbols: U units (SMs); w, k0, eff, mu constants; r relative efficiency of the tile shape; ``speed`` scales eff.
    Shapes:  m, n, k, count broadcast.
    Units:   elements, FLOP/s, bytes/s -> s.
    Holds:   dense products; w between 0 (stream-K) and 1 (strict waves); error 10-20 % on odd shapes.
    Source:  tile and wave quantisation as in NVIDIA, "Matrix Multiplication Background"; max with the memory time as in
             SimuMax core/config.py; the prologue term is the classic n-half model in k.
    """
    rate = unit_rate(device, constants, dtype, speed)
    return _tiled_s(array(m), array(n), array(k), count, rate, in_bytes, out_bytes, device=device, constants=constants)


def unit_rate(device: Device, constants: Constants, dtype: str, speed: Number) -> Number:
    """What one unit of the device sustains: ``peak / U * eff`` of ``gemm_s``.

    Shapes:  speed and the constants broadcast.
    Units:   FLOP/s.
    Source:  ``gemm_s``.
    """
    return device.peak_flops_per_s[dtype] / device.num_units * sustained_ratio(constants, dtype) * speed


def _tiled_s(
    m: Array, n: Array, k: Array, count: Number, rate: Number, in_bytes: Number, out_bytes: Number, *, device: Device,
    constants: Constants,
) -> Array:
    """``gemm_s`` of products whose units sustain ``rate``."""
    rows = {tile.rows: count * ceil_divide(m, tile.rows) for tile in constants.tiles}
    columns = {tile.columns: ceil_divide(n, tile.columns) for tile in constants.tiles}
    depth = k + constants.gemm_setup_k
    best: Array | None = None
    for tile in constants.tiles:
        filled = rows[tile.rows] * columns[tile.columns] / device.num_units
        waves = filled + constants.gemm_wave_ratio * (np.ceil(filled) - filled)
        work = 2.0 * tile.rows * tile.columns * depth
        time = waves * (work / (rate * tile.ratio))
        best = time if best is None else np.minimum(best, time)
    assert best is not None, "constants without tiles"
    traffic = count * (in_bytes * (m * k + k * n) + out_bytes * m * n)
    return np.maximum(best, traffic / (device.memory_bytes_per_s * constants.memory_ratio))


def grouped_gemm_s(
    m: Number,
    n: Number,
    k: Number,
    *,
    groups: Number,
    device: Device,
    constants: Constants,
    dtype: str,
    in_bytes: float = 2.0,
    out_bytes: float = 2.0,
    speed: Number = 1.0,
) -> Array:
    """Time of one grouped product: ``groups`` experts of m rows each against their own (k, n) weights.

    The tiles of all groups share the waves, so many small experts fill the device, yet each pads its rows to a tile. A group loses
    something of one wave at most, so large experts run as dense products do.

        t = T + (1 / g - 1) min(T, groups W);   T = gemm(m, n, k; count = groups);   W = 2 Tm Tn (k + k0) / (peak / U * eff)

    Symbols: g ``Constants.grouped_gemm_ratio``, small groups in the grouped kernel against one GEMM; W a wave of the first tile.
    Shapes:  m, n, k, groups broadcast. m is the mean number of tokens of an expert.
    Units:   elements -> s.
    Holds:   balanced routing; imbalance is a factor of the caller.
    Source:  SimuMax B200 table: grouped 0.302 against dense 0.488 of peak, most of it small m (docs/sources.md#gemm).
    """
    alone = gemm_s(
        m, n, k, device=device, constants=constants, dtype=dtype, in_bytes=in_bytes, out_bytes=out_bytes, count=groups, speed=speed,
    )
    return _grouped_s(alone, array(k), groups, unit_rate(device, constants, dtype, speed), constants)


def _grouped_s(alone: Array, k: Array, groups: Number, rate: Number, constants: Constants) -> Array:
    """``grouped_gemm_s`` from what one product of all groups takes."""
    tile = constants.tiles[0]
    wave = 2.0 * tile.rows * tile.columns * (k + constants.gemm_setup_k) / rate
    return alone + (1.0 / constants.grouped_gemm_ratio - 1.0) * np.minimum(alone, groups * wave)


class Linear(Struct, frozen=True, kw_only=True):
    """The product of a linear layer in one direction: (rows, inner) x (inner, columns) forward, ``groups`` of them."""

    rows: Number
    columns: Number
    inner: Number
    direction: Direction
    dtype: str
    in_bytes: float = 2.0
    groups: Number = 1.0
    grouped: bool = False
    """One kernel of ``groups`` products."""

    @property
    def sides(self) -> tuple[Number, Number, Number]:
        """m, n, k of the product in this direction."""
        if self.direction == "input":
            return self.rows, self.inner, self.columns
        return (self.columns, self.inner, self.rows) if self.direction == "weight" else (self.rows, self.columns, self.inner)


BLOCK = 2**11
"""Products times columns that are evaluated at once: of so few the calls cost most, and more of them leave the caches."""


def linear_s(
    rows: Number,
    columns: Number,
    inner: Number,
    *,
    direction: Direction,
    device: Device,
    constants: Constants,
    dtype: str,
    in_bytes: float = 2.0,
    groups: Number = 1.0,
    grouped: bool = False,
) -> Array:
    """Time of the product of a linear layer in one direction: ``forward``, ``input`` gradient or ``weight`` gradient.

    Shapes:  rows, columns, inner and groups broadcast.
    Units:   elements -> s.
    Source:  ``linears_s``.
    """
    own = Linear(
        rows=rows, columns=columns, inner=inner, direction=direction, dtype=dtype, in_bytes=in_bytes, groups=groups, grouped=grouped
    )
    return linears_s([own], device, constants)[0]


def linears_s(asked: Sequence[Linear], device: Device, constants: Constants) -> list[Array]:
    """Times of the products of linear layers, evaluated as rows of one block.

        forward (m, n, k);   input gradient (m, k, n);   weight gradient (n, k, m), FP32 output

    Symbols: m rows (tokens), n columns (outputs), k inner (inputs).
    Shapes:  the products' fields and the constants broadcast, over all that are asked.
    Units:   elements -> s.
    Source:  layouts TN, NN, NT of a linear layer (docs/sources.md#gemm).
    """
    weight = constants.gemm_weight_gradient_ratio
    rates = [unit_rate(device, constants, each.dtype, weight if each.direction == "weight" else 1.0) for each in asked]
    fields = [(*each.sides, each.groups, rate) for each, rate in zip(asked, rates, strict=True)]
    moved = [constants.gemm_setup_k, constants.gemm_wave_ratio, constants.memory_ratio, constants.grouped_gemm_ratio]
    shapes = {np.shape(value) for value in moved}.union(*({np.shape(value) for value in own} for own in fields))
    shape = np.broadcast_shapes(*shapes)
    together = max(1, BLOCK // max(1, prod(shape)))
    found: list[Array] = []
    for begin in range(0, len(asked), together):
        some, own = asked[begin : begin + together], fields[begin : begin + together]
        if len(some) == 1:
            found.append(_linears_s(some, own[0], device, constants))
            continue
        block = np.empty((len(own[0]), len(some), *shape))
        for number, values in enumerate(own):
            for field, value in enumerate(values):
                block[field, number] = value
        found += list(_linears_s(some, block, device, constants))
    return found


def _linears_s(asked: Sequence[Linear], fields: Iterable[Number], device: Device, constants: Constants) -> Array:
    """Times of some products from their sides, groups and rates: of one its columns, of several as rows."""
    m, n, k, groups, rate = (array(each) for each in fields)
    moved = [(each.in_bytes, 4.0 if each.direction == "weight" else 2.0) for each in asked]
    in_bytes, out_bytes = moved[0] if len(asked) == 1 else np.array(moved).T.reshape(2, -1, *(1,) * (m.ndim - 1))
    times = _tiled_s(m, n, k, groups, rate, in_bytes, out_bytes, device=device, constants=constants)
    grouped = [number for number, each in enumerate(asked) if each.grouped]
    if len(grouped) == len(asked):
        return _grouped_s(times, k, groups, rate, constants)
    if grouped:
        times[grouped] = _grouped_s(times[grouped], k[grouped], groups[grouped], rate[grouped], constants)
    return times
