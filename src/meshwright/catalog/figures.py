"""A figure of the catalogue: value, unit and source, or it is refused."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from msgspec import Struct

from meshwright.errors import did_you_mean
from meshwright.readers.structure import Reject, make_converter, record_hook, structure, structure_shipped
from meshwright.text import shown
from meshwright.units import FACTORS
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import cattrs

    from meshwright.catalog.sheets import Sheet

T = TypeVar("T")

LARGEST = 1e24
"""In base units: beyond every byte, second and FLOP/s of any machine."""


class Figure(Value, frozen=True, kw_only=True):
    """One number with its unit and where it was read; ``assumed`` where nobody published it."""

    UNITS: ClassVar[tuple[str, ...]] = ()
    value: float
    unit: str
    source: str
    assumed: bool = False

    @property
    def base(self) -> float:
        """The value in base units: bytes, seconds, FLOP."""
        return self.value * FACTORS[self.unit]


class Size(Figure, frozen=True, kw_only=True):
    """A size of memory."""

    UNITS: ClassVar[tuple[str, ...]] = ("B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB")


class Bandwidth(Figure, frozen=True, kw_only=True):
    """Bytes per second."""

    UNITS: ClassVar[tuple[str, ...]] = ("B/s", "GB/s", "TB/s", "GiB/s", "Gbit/s")


class Duration(Figure, frozen=True, kw_only=True):
    """A time."""

    UNITS: ClassVar[tuple[str, ...]] = ("s", "ms", "us")


class Work(Figure, frozen=True, kw_only=True):
    """Floating-point operations per second, dense."""

    UNITS: ClassVar[tuple[str, ...]] = ("FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s")


class Power(Figure, frozen=True, kw_only=True):
    """Electrical power."""

    UNITS: ClassVar[tuple[str, ...]] = ("W", "kW")


class Count(Figure, frozen=True, kw_only=True):
    """A number of things, or a ratio."""

    UNITS: ClassVar[tuple[str, ...]] = ("1", "count", "ratio")


class Provenance(NamedTuple):
    """What one figure says about itself."""

    value: float
    unit: str
    source: str


@cache
def converter() -> cattrs.Converter:
    """The strict converter with figures in it."""
    result = make_converter()
    result.register_structure_hook_factory(
        lambda kind: isinstance(kind, type) and issubclass(kind, Figure), lambda kind: _figure_hook(kind, result)
    )
    return result


def record_in(sheet: Sheet, block: object, kind: type[T], *, where: str) -> T:
    """A block of a sheet as a record of figures.

    Errors:  ``InputError`` with every fault.
    """
    if sheet.shipped:
        return structure_shipped(block, kind, where=where, converter=converter)
    return structure(converter(), block, kind, where=where)


def _figure_hook(kind: Any, result: cattrs.Converter) -> Any:
    build = record_hook(kind, result)

    def structure_figure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise Reject("figure.bare", "{value} is bare; a figure is {{value, unit, source}}", value=shown(value))
        figure = build(value, kind)
        if figure.unit not in kind.UNITS:
            raise Reject(
                "figure.unit", "unit {unit!r} is none of {units}{hint}",
                unit=figure.unit, units=kind.UNITS, hint=did_you_mean(figure.unit, kind.UNITS),
            )
        if not figure.source.strip():
            raise Reject("figure.source", "the source is empty")
        if figure.value < 0 or (figure.value == 0 and kind is not Power):
            raise Reject("figure.positive", "{value} must be above 0", value=figure.value)
        if figure.base > LARGEST:
            raise Reject("figure.large", "{value} {unit} is more than there is", value=figure.value, unit=figure.unit)
        return figure

    return structure_figure


def provenance_of(record: Any, sources: Mapping[str, str], prefix: str = "") -> dict[str, Provenance]:
    """Every figure inside a record by its path, with its source written out."""
    return {
        path: Provenance(figure.value, figure.unit, cited(figure.source, sources)) for path, figure in figures_in(record, prefix)
    }


def assumed_in(record: Any) -> tuple[str, ...]:
    """Paths of the figures of a record that nobody published."""
    return tuple(path for path, figure in figures_in(record) if figure.assumed)


def cited(source: str, sources: Mapping[str, str]) -> str:
    """A source written out: a key of the file's table of sources, or its own text."""
    return sources.get(source, source)


def figures_in(record: Any, prefix: str = "") -> Iterator[tuple[str, Figure]]:
    """Figures of a record, its nested records and mappings, depth first."""
    if isinstance(record, Figure):
        yield prefix, record
    elif isinstance(record, dict):
        for key, value in record.items():
            yield from figures_in(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(record, Struct):
        for name in record.__struct_fields__:
            yield from figures_in(getattr(record, name), f"{prefix}.{name}" if prefix else name)
