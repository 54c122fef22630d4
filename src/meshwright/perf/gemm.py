"""Time of matrix products from their shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array, ceil_divide

if TYPE_CHECKING:
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
    m, n, k = array(m), array(n), array(k)
    peak = device.peak_flops_per_s[dtype]
    unit_rate = peak / device.num_units * sustained_ratio(constants, dtype) * speed
    rows = {tile.rows: count * ceil_divide(m, tile.rows) for tile in constants.tiles}
    columns = {tile.columns: ceil_divide(n, tile.columns) for tile in constants.tiles}
    depth = k + constants.gemm_setup_k
    best: Array | None = None
    for tile in constants.tiles:
        filled = rows[tile.rows] * columns[tile.columns] / device.num_units
        waves = filled + constants.gemm_wave_ratio * (np.ceil(filled) - filled)
        work = 2.0 * tile.rows * tile.columns * depth
        time = waves * (work / (unit_rate * tile.ratio))
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
    tile, peak = constants.tiles[0], device.peak_flops_per_s[dtype]
    unit_rate = peak / device.num_units * sustained_ratio(constants, dtype) * speed
    wave = 2.0 * tile.rows * tile.columns * (array(k) + constants.gemm_setup_k) / unit_rate
    return alone + (1.0 / constants.grouped_gemm_ratio - 1.0) * np.minimum(alone, groups * wave)


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

        forward (m, n, k);   input gradient (m, k, n);   weight gradient (n, k, m), FP32 output

    Symbols: m rows (tokens), n columns (outputs), k inner (inputs); ``grouped``: one kernel of ``groups`` products.
    Shapes:  rows, columns, inner and groups broadcast.
    Units:   elements -> s.
    Source:  layouts TN, NN, NT of a linear layer (docs/sources.md#gemm).
    """
    m, n, k = rows, columns, inner
    speed: Number = 1.0
    out_bytes = 2.0
    if direction == "input":
        n, k = k, n
    elif direction == "weight":
        m, n, k = n, k, m
        speed, out_bytes = constants.gemm_weight_gradient_ratio, 4.0
    if grouped:
        return grouped_gemm_s(
            m, n, k, groups=groups, device=device, constants=constants, dtype=dtype, in_bytes=in_bytes, out_bytes=out_bytes,
            speed=speed,
        )
    return gemm_s(
        m, n, k, count=groups, device=device, constants=constants, dtype=dtype, in_bytes=in_bytes, out_bytes=out_bytes, speed=speed
    )
