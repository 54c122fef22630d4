"""What a profile wrote about a cluster: the section ``measured`` of a cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import field

from meshwright.catalog.calibration_faults import MOVABLE
from meshwright.catalog.figures import Bandwidth, Count, Duration, Figure, Provenance, Size, cited, converter
from meshwright.domain.calibration import Tile
from meshwright.domain.measured import Measured, TimedCollective, TimedCore, TimedProduct
from meshwright.errors import InputError, Message, did_you_mean
from meshwright.readers.structure import structure
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.catalog.sheets import Sheet

MOST = 2000
"""Products, and collectives of a tier: each of them costs time in every estimate."""
LARGEST_SIZE = 10**15
"""Elements of a side, bytes of a message."""
LONGEST_S = 1e5
FARTHEST = 1e4
"""Of a measured figure over its formula, either way."""
BOUNDS: Mapping[str, float] = {"overlap_ratio": 1.0, "gemm_wave_ratio": 1.0}
MOST_RATIO, MOST_S = 100.0, 1e3


class Goodness(Value, frozen=True, kw_only=True):
    """How well the formulas with the fitted constants alone say one benchmark again: errors |predicted / measured - 1|."""

    samples: int
    noise: float
    """Half of the 95 % interval of a median, relative to it; the median sample."""
    median_error: float
    worst_error: float
    held_out_error: float | None = None
    """Median error where each sample is corrected by its measured neighbours without itself; None where nothing corrects."""


class MeasuredRecord(Value, frozen=True, kw_only=True):
    """The block of one cluster."""

    date: str
    machine: str
    software: str
    ranks: int
    samples: int
    load: float
    fit: Mapping[str, Goodness]
    constants: Mapping[str, Any]
    passes: Mapping[str, Count] = field(default_factory=dict)
    tiles: tuple[Tile, ...] = ()
    products: tuple[TimedProduct, ...] = ()
    cores: tuple[TimedCore, ...] = ()
    scale_up: tuple[TimedCollective, ...] = ()
    network: tuple[TimedCollective, ...] = ()


def measured_of(sheet: Sheet, name: str) -> Measured | None:
    """What the sheet says was measured on its cluster ``name``.

    Errors:  ``InputError`` with every figure that no measurement gives.
    """
    if name not in sheet.measured:
        return None
    record, constants = _record(sheet, name)
    cite = sheet.sources
    sources = {key: cited(figure.source, cite) for key, figure in constants.items()}
    sources |= {f"pass_speeds.{kind}": cited(figure.source, cite) for kind, figure in record.passes.items()}
    return Measured(
        name=name, version=record.date, constants={key: figure.base for key, figure in constants.items()}, tiles=record.tiles,
        pass_speeds={kind: figure.base for kind, figure in record.passes.items()}, products=record.products, cores=record.cores,
        scale_up=record.scale_up, network=record.network, sources=sources,
    )


def measured_provenance(sheet: Sheet, name: str) -> dict[str, Provenance]:
    """Every measured constant and pass speed of a cluster: value, unit and source as written in the file."""
    if name not in sheet.measured:
        return {}
    record, constants = _record(sheet, name)
    figures = {f"measured.constants.{key}": figure for key, figure in constants.items()}
    figures |= {f"measured.passes.{kind}": figure for kind, figure in record.passes.items()}
    return {path: Provenance(each.value, each.unit, cited(each.source, sheet.sources)) for path, each in figures.items()}


def _record(sheet: Sheet, name: str) -> tuple[MeasuredRecord, dict[str, Figure]]:
    where = sheet.where("measured", name)
    record = structure(converter(), sheet.measured[name], MeasuredRecord, where=where)
    constants: dict[str, Figure] = {}
    faults: list[Message] = []
    for key, value in record.constants.items():
        place = f"{where}.constants.{key}"
        if key not in MOVABLE:
            faults.append(
                Message(
                    "measured.constant", "is no constant that can be measured{hint}", {"hint": did_you_mean(key, MOVABLE)}, place
                )
            )
            continue
        try:
            constants[key] = structure(converter(), value, _kind_of(key), where=place)
        except InputError as error:
            faults += error.messages
        else:
            most = BOUNDS.get(key, MOST_S if key.endswith("_s") else MOST_RATIO if key.endswith("_ratio") else LARGEST_SIZE)
            faults += _within(constants[key].base, 0.0, most, place)
    faults += _faults(record, where)
    if faults:
        raise InputError(faults)
    return record, constants


def _kind_of(constant: str) -> type[Figure]:
    """The sort of figure that a constant is, by the unit in its name."""
    if constant.endswith("_bytes_per_s"):
        return Bandwidth
    if constant.endswith("_s"):
        return Duration
    return Size if constant.endswith("_bytes") else Count


def _faults(record: MeasuredRecord, where: str) -> Iterator[Message]:
    for key, text in (("date", record.date), ("machine", record.machine), ("software", record.software)):
        if len(text) > 500:
            yield Message("measured.text", "is longer than 500 characters", {}, f"{where}.{key}")
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", record.date):
        yield Message("measured.date", "{date!r} is no date such as 2026-11-21", {"date": record.date[:40]}, f"{where}.date")
    yield from _within(record.ranks, 1, 10**7, f"{where}.ranks")
    for kind, speed in record.passes.items():
        if not re.fullmatch(r"[a-z][a-z_-]{0,40}", kind):
            yield Message("measured.kind", "{kind!r} is no kind of pass", {"kind": kind[:40]}, f"{where}.passes")
        yield from _within(speed.base, 1.0 / FARTHEST, FARTHEST, f"{where}.passes.{kind}")
    for place, tile in enumerate(record.tiles):
        for key, side in (("rows", tile.rows), ("columns", tile.columns)):
            yield from _within(side, 1, 10**6, f"{where}.tiles[{place}].{key}")
        yield from _within(tile.ratio, 1e-3, 10.0, f"{where}.tiles[{place}].ratio")
    for section in ("passes", "tiles", "products", "cores", "scale_up", "network"):
        held = len(getattr(record, section))
        if held > MOST:
            yield Message(
                "measured.many", "has {held} entries, at most {most} are read", {"held": held, "most": MOST}, f"{where}.{section}"
            )
    for place, product in enumerate(record.products[:MOST]):
        sides = {"rows": product.rows, "columns": product.columns, "inner": product.inner}
        yield from _timed(sides, product, f"{where}.products[{place}]")
    for place, core in enumerate(record.cores[:MOST]):
        sides = {"groups": core.groups, "tokens": core.tokens, "head_dim": core.head_dim}
        yield from _timed(sides, core, f"{where}.cores[{place}]")
    for section in ("scale_up", "network"):
        for place, each in enumerate(getattr(record, section)[:MOST]):
            sizes = {"ranks": each.ranks, "payload_bytes": each.payload_bytes}
            yield from _timed(sizes, each, f"{where}.{section}[{place}]")


def _timed(sizes: Mapping[str, int], each: TimedProduct | TimedCore | TimedCollective, where: str) -> Iterator[Message]:
    for key, size in sizes.items():
        yield from _within(size, 2 if key == "ranks" else 1, LARGEST_SIZE, f"{where}.{key}")
    times = [
        *_within(each.seconds, 1e-9, LONGEST_S, f"{where}.seconds"),
        *_within(each.formula_s, 1e-12, LONGEST_S, f"{where}.formula_s"),
    ]
    yield from times
    if not times and not 1.0 / FARTHEST <= each.ratio <= FARTHEST:
        values = {"ratio": each.ratio, "most": FARTHEST}
        yield Message(
            "measured.ratio", "measured is {ratio:.3g} times the formula; no more than {most:g} either way is read", values, where
        )


def _within(value: float, low: float, high: float, where: str) -> Iterator[Message]:
    if not low <= value <= high:
        yield Message(
            "measured.range", "{value:g} is not within {low:g}..{high:g}", {"value": value, "low": low, "high": high}, where
        )
