"""Attention cores -> sustained shares, and the cores that correct others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.measured import TimedCore
from meshwright.engine.profile.fit_compute import LEAST_NOISE, helpful, noise_of, number, vector
from meshwright.engine.profile.fitted import BenchFit, Fitted, bench_fit
from meshwright.engine.profile.robust import spread, weighted_median
from meshwright.perf.attention import attended_pairs, flash_attention_s
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device
    from meshwright.domain.sample import Sample


def fit_attention(
    samples: Sequence[Sample], device: Device, constants: Constants
) -> tuple[dict[str, Fitted], tuple[TimedCore, ...], BenchFit] | None:
    """``attention_forward_ratio`` and ``attention_backward_ratio`` from causal cores, and the cores that correct others."""
    free = replace(constants, attention_forward_ratio=1.0, attention_backward_ratio=1.0)
    found: dict[str, Fitted] = {}
    timed: list[Sample] = []
    formulas: list[float] = []
    for place, direction in enumerate(("forward", "backward")):
        own = [
            each for each in samples
            if each.arguments["direction"] == direction and str(each.arguments["dtype"]) in device.peak_flops_per_s
        ]
        if not own:
            continue
        formula = np.array([_core_s(each, device, free, place) for each in own])
        measured = vector(own, "seconds")
        ratio = weighted_median(formula / measured, 1.0 / np.square(LEAST_NOISE + noise_of(own)))
        error = spread(np.log(formula / measured / ratio))
        words = f"{len(own)} attention cores, {direction}, spread {percent(error)}"
        found[f"attention_{direction}_ratio"] = Fitted(value=ratio, words=words)
        timed += own
        formulas += [float(each) for each in formula / ratio]
    if not timed:
        return None
    predicted, measured = np.array(formulas), vector(timed, "seconds")
    cores = [
        TimedCore(
            groups=int(number(each, "sequences") * number(each, "heads")), tokens=int(number(each, "tokens")),
            head_dim=int(number(each, "head_dim")), dtype=str(each.arguments["dtype"]),
            direction=str(each.arguments["direction"]), seconds=each.seconds, formula_s=formula,  # type: ignore[arg-type]
        )
        for each, formula in zip(timed, formulas, strict=True)
    ]
    kept, held_out = helpful(cores, predicted, measured)
    return found, kept, bench_fit("attention", predicted, measured, list(noise_of(timed)), held_out if kept else None)


def _core_s(sample: Sample, device: Device, constants: Constants, place: int) -> float:
    tokens, heads, width = number(sample, "tokens"), number(sample, "heads"), number(sample, "head_dim")
    both = flash_attention_s(
        attended_pairs(tokens, None, None), number(sample, "sequences") * heads, tokens, key_dim=width, value_dim=width,
        device=device, constants=constants, dtype=str(sample.arguments["dtype"]),
    )
    return float(both[place])
