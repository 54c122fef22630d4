"""What no fit writes into a calibration file: names that are no constants, factors that no hardware has."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

from meshwright.domain.calibration import LEVELS, NO_NUMBERS, OWN, Constants
from meshwright.domain.uncertainty import OTHER
from meshwright.errors import Message, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.domain.calibration import CalibrationTable, Offsets
    from meshwright.domain.uncertainty import FitCurve, Scale

LARGEST = 7.0
"""Of an offset, on the log scale: a factor of a thousand either way."""
MOST = 1e6
"""Of runs, and of a variance over that of a run."""
LEVEL = "0.9"
"""Level of the intervals that every estimate gives."""
WHOLE = NO_NUMBERS | {"attention_rows"}
"""Constants that are no numbers on a log scale."""
_SHARE = re.compile(r"0\.[0-9]{1,6}")
_PLACE = re.compile(r"\S [0-9]{1,3}(\.[0-9]{1,6})?(x[0-9]{1,3}(\.[0-9]{1,6})?)*$", re.ASCII)
"""What a value ends in whose feature has a reach."""
MOVABLE = frozenset(field.name for field in fields(Constants)) - WHOLE


def faults_of(table: CalibrationTable, where: str) -> list[Message]:
    """Every figure and name of a table that no fit writes."""
    found: list[Message] = []
    for name, offsets in table.offsets.items():
        found += _offsets(name, offsets, f"{where}.offsets.{name}")
    for kind, scale in (("step", table.step), ("memory", table.memory)):
        found += _scale(scale, f"{where}.{kind}")
    if OTHER not in table.fits:
        found.append(
            Message("calibration.fits", "has no curve {key!r} for frameworks without runs", {"key": OTHER}, f"{where}.fits")
        )
    for family, curve in table.fits.items():
        found += _curve(curve, f"{where}.fits.{family}")
    found += _within(table.ranking_ratio, 0.0, LARGEST, f"{where}.ranking_ratio")
    return found


def _offsets(name: str, offsets: Offsets, where: str) -> Iterator[Message]:
    if name not in MOVABLE:
        hint = did_you_mean(name, MOVABLE)
        yield Message("calibration.constant", "is no constant that a fit may move{hint}", {"hint": hint}, where)
    if offsets.maximum is not None and offsets.maximum <= 0.0:
        yield Message("calibration.maximum", "{value} must be above 0", {"value": offsets.maximum}, f"{where}.maximum")
    for device, most in offsets.reached.items():
        if most <= 0.0:
            yield Message("calibration.reached", "{value} must be above 0", {"value": most}, f"{where}.reached.{device}")
    for level, values in offsets.by_level.items():
        if level not in (*LEVELS, OWN):
            known = ", ".join((*LEVELS, OWN))
            yield Message("calibration.level", "is none of {levels}", {"levels": known}, f"{where}.by_level.{level}")
        yield from _small(values, f"{where}.by_level.{level}")


def _scale(scale: Scale, where: str) -> Iterator[Message]:
    yield from _within(scale.base, -LARGEST, LARGEST, f"{where}.base")
    for feature, effects in scale.effects.items():
        yield from _small(effects, f"{where}.effects.{feature}")
    for values, where_of in ((scale.shifts, "shifts"), *((counts, f"runs.{name}") for name, counts in scale.runs.items())):
        for value, number in values.items():
            yield from _within(number, 0.0, MOST, f"{where}.{where_of}.{value}")
    yield from _small(scale.own, f"{where}.own")
    yield from _within(scale.growth, 0.0, 1.0, f"{where}.growth")
    for feature, reach in scale.reaches.items():
        yield from _within(reach, 1e-3, MOST, f"{where}.reaches.{feature}")
        for value in scale.runs.get(feature, {}):
            if not _PLACE.search(value):
                yield Message("calibration.place", "ends in no place, such as 12.0x5.0", {}, f"{where}.runs.{feature}.{value}")
    for feature in sorted(scale.shifts.keys() ^ scale.runs.keys()):
        known = ", ".join(sorted(scale.runs.keys() & scale.shifts.keys())) or "none"
        here, there = ("shifts", "runs") if feature in scale.shifts else ("runs", "shifts")
        yield Message(
            "calibration.feature", "stands in {here} and not in {there}; in both: {known}",
            {"here": here, "there": there, "known": known}, f"{where}.{here}.{feature}",
        )
    if LEVEL not in scale.quantiles:
        yield Message("calibration.level", "has no level {level}", {"level": LEVEL}, f"{where}.quantiles")
    for level, quantile in scale.quantiles.items():
        if not _SHARE.fullmatch(level):
            yield Message("calibration.quantile", "is no share between 0 and 1", {}, f"{where}.quantiles.{level}")
        yield from _within(quantile, 0.0, 1e3, f"{where}.quantiles.{level}")


def _curve(curve: FitCurve, where: str) -> Iterator[Message]:
    yield from _within(curve.edge, -LARGEST, LARGEST, f"{where}.edge")
    yield from _within(curve.width, 1e-4, LARGEST, f"{where}.width")
    yield from _within(curve.failures, 0.0, 1.0, f"{where}.failures")


def _small(values: Mapping[str, float], where: str) -> Iterator[Message]:
    for value, offset in values.items():
        yield from _within(offset, -LARGEST, LARGEST, f"{where}.{value}" if value else where)


def _within(value: float, low: float, high: float, where: str) -> Iterator[Message]:
    if not low <= value <= high:
        values = {"value": value, "low": low, "high": high}
        yield Message("calibration.range", "{value:g} is not within {low:g}..{high:g}", values, where)
