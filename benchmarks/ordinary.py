"""The run in front of the user: how far runs as people start them, pairs of runs and sources that nobody knew meet their targets.

A section of ``docs/accuracy.md``; each target names the scheme under which it is asked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.evidence.score.sets import Set, sets

if TYPE_CHECKING:
    from meshwright.evidence.score.scored import Scored
    from meshwright.evidence.score.validation import Validation

GIB = 2.0**30
BY_MODEL, BY_SOURCE = "leave-one-model-out", "leave-one-source-out"
TUNED = ("Megatron-Bridge 2026, tuned and pairs", "Megatron-Bridge 2026, tuned cards")
DRAWS, SEED = 2000, 0
LEAST_BAND = 15
"""Rows from which a set's coverage is held against its binomial band."""
LEAST_CHANGE = 0.01
"""A measured change below this share has no sign: steps are published no more precisely."""
DEGREES = (
    "tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_stages", "expert_parallel", "expert_tensor_parallel",
    "microbatch_sequences", "zero", "recompute", "extra_settings",
)
"""What two runs of a pair may differ in, one of them."""
ALIKE = (
    "source", "task", "framework", "model", "device", "num_devices", "precision", "sequence_tokens", "global_batch_sequences",
)


class Pair(NamedTuple):
    """Two runs of one source that differ in one setting."""

    first: Scored
    second: Scored
    setting: str


def pairs(rows: Sequence[Scored]) -> list[Pair]:
    """Every two runs that ran, of one source and case, that differ in exactly one setting; by their ids."""
    found: dict[tuple[object, ...], list[Scored]] = defaultdict(list)
    for each in sorted(rows, key=lambda each: each.id):
        if each.status == "ok":
            found[tuple(getattr(each.row, name) for name in ALIKE)].append(each)
    result = []
    for alike in found.values():
        for first, second in combinations(alike, 2):
            differ = [name for name in DEGREES if getattr(first.row, name) != getattr(second.row, name)]
            if len(differ) == 1:
                result.append(Pair(first, second, differ[0]))
    return result


def band(count: int, share: float = 0.9, level: float = 0.95) -> tuple[float, float]:
    """The shares of ``count`` rows inside that are no worse than chance where each lies inside with this probability.

        P(K < low) <= (1 - level) / 2,   P(K > high) <= (1 - level) / 2,   K binomial

    Units:   ratios.
    """
    whole, yes, no = math.lgamma(count + 1), math.log(share), math.log1p(-share)
    log_mass = [whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * yes + (count - k) * no for k in range(count + 1)]
    mass = np.cumsum(np.exp(log_mass))
    tail = (1.0 - level) / 2.0
    low = int(np.searchsorted(mass, tail, side="right"))
    high = int(np.searchsorted(mass, 1.0 - tail))
    return low / count, min(high, count) / count


def bootstrap(values: Sequence[float], groups: Sequence[str], share: float) -> tuple[float, float]:
    """The quantile of ``share`` of values when whole groups are drawn with replacement: its 5th and 95th percentile."""
    random, names = np.random.default_rng(SEED), sorted(set(groups))
    of = {name: [value for value, group in zip(values, groups, strict=True) if group == name] for name in names}
    drawn = []
    for _ in range(DRAWS):
        sample = [value for name in random.choice(names, len(names)) for value in of[str(name)]]
        drawn.append(float(np.quantile(sample, share)))
    low, high = np.quantile(drawn, (0.05, 0.95))
    return float(low), float(high)


def section(found: Mapping[str, Validation]) -> list[str]:
    """The lines of the section; nothing without the schemes that it asks."""
    if BY_MODEL not in found or BY_SOURCE not in found:
        return []
    by_model, by_source = found[BY_MODEL].rows, found[BY_SOURCE].rows
    named = {each.name: each for each in sets()}
    return [
        "Runs as people start them, pairs of runs, and sources that nobody knew: targets of their own, each under its scheme. "
        "Bold: met.", "",
        "| set | scheme | metric | target | reached |", "| --- | --- | --- | ---: | --- |",
        *_untuned(_in(named["untuned runs"], by_model)), *_pairs([each for name in TUNED for each in _in(named[name], by_model)]),
        *(_error(name, _in(named[name], by_model), 0.10, sizes=True) for name in ("torchtitan", "TRL")),
        _error("NVIDIA mixtures of experts", _in(named["NVIDIA mixtures of experts"], by_model), 0.10, sizes=False),
        *_a100(by_source), *_coverage(by_source), "",
        "*Pairs*: two runs of one source and case that differ in one setting. [few-shot.md](few-shot.md) has what a few own runs "
        "change.", "", "Intervals of sources that nobody knew, sets of 15 rows or more; the band holds 95 of 100 sets whose rows "
        "lie inside with a probability of 0.9:", "",
        "| set | rows | inside | band | mean log-width |", "| --- | ---: | ---: | ---: | ---: |", *_bands(by_source),
    ]


def _in(chosen: Set, rows: Sequence[Scored]) -> list[Scored]:
    return [each for each in rows if chosen.where.holds(each)]


def _line(name: str, scheme: str, metric: str, target: str, words: str, met: bool) -> str:
    return f"| {name} | {scheme} | {metric} | {target} | {f'**{words}**' if met else words} |"


def _untuned(rows: Sequence[Scored]) -> list[str]:
    timed = [each for each in rows if each.timed]
    factors, models = [math.exp(abs(math.log(each.step_ratio))) for each in timed], [each.row.model for each in timed]
    middle, tenth = median(factors), float(np.quantile(factors, 0.9))
    low, high = bootstrap(factors, models, 0.9)
    held, least = _held(timed), band(len(timed))[0]
    count = f"untuned runs ({len(timed)})"
    return [
        _line(count, "by model", "step, median factor", "1.35", f"{middle:.2f}", middle <= 1.35),
        _line(count, "by model", "step, 90th percentile of the factor (bootstrap over models, 5 to 95 %)", "2.5",
              f"{tenth:.2f} ({low:.2f} to {high:.2f})", tenth <= 2.5),
        _line(count, "by model", "inside the interval", f"{100 * least:.0f} %", f"{100 * held:.0f} %", held >= least),
    ]


def _pairs(rows: Sequence[Scored]) -> list[str]:
    timed = [each for each in rows if each.timed]
    name, error = "tuned Bridge runs and pairs", fmean(abs(each.step_ratio - 1.0) for each in timed)
    lines = [_line(f"{name} ({len(timed)})", "by model", "step, MAPE", "5 %", f"{100 * error:.1f} %", error <= 0.05)]
    both = pairs(rows)
    times = [
        (b.measured_step_s / a.measured_step_s - 1.0, b.predicted_step_s / a.predicted_step_s - 1.0)
        for a, b, _ in both if a.timed and b.timed
    ]
    signed = [(was, said) for was, said in times if abs(was) >= LEAST_CHANGE]
    right = sum(was * said > 0.0 for was, said in signed)
    lines.append(_line(f"{name} ({len(signed)} pairs)", "by model", "sign of the change of the step", "all",
                       f"{right} of {len(signed)}", right == len(signed)))
    points = [100 * abs(was - said) for was, said in times]
    lines.append(_line(f"{name} ({len(points)} pairs)", "by model", "change of the step, error in points: median, worst", "3",
                       f"{median(points):.1f}, {max(points):.1f}", max(points) <= 3.0))
    sizes = [
        abs((b.measured_memory_bytes - a.measured_memory_bytes) - (b.predicted_memory_bytes - a.predicted_memory_bytes)) / GIB
        for a, b, _ in both if a.sized and b.sized
    ]
    lines.append(_line(f"{name} ({len(sizes)} pairs)", "by model", "change of the peak, error in GiB: median, worst", "1.5",
                       f"{median(sizes):.1f}, {max(sizes):.1f}", max(sizes) <= 1.5))
    return lines


def _error(name: str, rows: Sequence[Scored], target: float, *, sizes: bool) -> str:
    timed, sized = [each for each in rows if each.timed], [each for each in rows if each.sized]
    error = fmean(abs(each.step_ratio - 1.0) for each in timed)
    words, met = f"{100 * error:.1f} %", error <= target
    metric, bound = "step, MAPE", f"{100 * target:.0f} %"
    if sizes and sized:
        memory = fmean(abs(each.memory_ratio - 1.0) for each in sized)
        words, met, metric = f"{words}; {100 * memory:.1f} %", met and memory <= target, "step; memory, MAPE"
    return _line(f"{name} ({len(timed)})", "by model", metric, bound, words, met)


def _a100(rows: Sequence[Scored]) -> list[str]:
    timed = [each for each in rows if each.timed and each.device.startswith("a100")]
    of_source: dict[str, list[Scored]] = defaultdict(list)
    for each in timed:
        of_source[each.source].append(each)
    errors = [fmean(abs(each.step_ratio - 1.0) for each in own) for own in of_source.values()]
    biases = [fmean(each.step_ratio - 1.0 for each in own) for own in of_source.values()]
    error, bias = fmean(errors), fmean(biases)
    name = f"A100 ({len(timed)} rows, {len(of_source)} sources, one voice each)"
    return [
        _line(name, "by source", "step, MAPE", "8 %", f"{100 * error:.1f} %", error <= 0.08),
        _line(name, "by source", "step, bias", "3 %", f"{100 * bias:+.1f} %", abs(bias) <= 0.03),
    ]


def _held(rows: Sequence[Scored]) -> float:
    inside = [
        each.step_interval_s[0] <= each.measured_step_s <= each.step_interval_s[1]
        for each in rows if each.step_interval_s and each.measured_step_s
    ]
    return fmean(inside)


def _width(rows: Sequence[Scored]) -> float:
    return fmean(math.log(each.step_interval_s[1] / each.step_interval_s[0]) for each in rows if each.step_interval_s)


def _judged(rows: Sequence[Scored]) -> list[tuple[str, list[Scored]]]:
    chosen = [(each.name, [row for row in _in(each, rows) if row.timed]) for each in sets()]
    return [(name, own) for name, own in chosen if LEAST_BAND <= len(own) < len([row for row in rows if row.timed])]


def _coverage(rows: Sequence[Scored]) -> list[str]:
    timed = [each for each in rows if each.timed]
    held, judged = _held(timed), _judged(rows)
    outside = [name for name, own in judged if not band(len(own))[0] <= _held(own) <= band(len(own))[1]]
    name = f"every row ({len(timed):,})"
    return [
        _line(name, "by source", "inside the interval", "88-92 %", f"{100 * held:.1f} %", 0.88 <= held <= 0.92),
        _line(f"sets of {LEAST_BAND} rows or more ({len(judged)})", "by source", "outside the binomial band of 0.9", "none",
              f"{len(outside)}", not outside),
    ]


def _bands(rows: Sequence[Scored]) -> list[str]:
    lines = []
    for name, own in sorted(_judged(rows), key=lambda each: (_held(each[1]), each[0])):
        low, high = band(len(own))
        held = _held(own)
        words = f"{100 * held:.0f} %"
        words = f"**{words}**" if low <= held <= high else words
        lines.append(f"| {name} | {len(own):,} | {words} | {100 * low:.0f}-{100 * high:.0f} % | {_width(own):.2f} |")
    return lines
