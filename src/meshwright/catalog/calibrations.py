"""Calibrations by name. ``none@0`` is the priors of ``data/constants.yaml`` for the device's family."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.sheets import data_path
from meshwright.domain.calibration import LEVELS, Calibration, Constants, Freedom, Tile
from meshwright.errors import fault
from meshwright.readers.safe import load_yaml, require_mapping
from meshwright.units import FACTORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.cluster import Device

FILE = "constants.yaml"


@cache
def _document() -> Mapping[str, object]:
    return require_mapping(load_yaml(data_path(FILE)), FILE)


def constant_figures(family: str) -> Mapping[str, Mapping[str, object]]:
    """Every prior of a device family with value, unit and source; what the family does not say comes from the defaults."""
    defaults = require_mapping(_document()["defaults"], FILE)
    families = require_mapping(_document()["families"], FILE)
    own = require_mapping(families.get(family, {}), FILE)
    return {name: require_mapping(own.get(name, figure), f"{FILE}: {name}") for name, figure in defaults.items() if name != "tiles"}


@cache
def _constants(family: str) -> Constants:
    values: dict[str, float] = {}
    for name, figure in constant_figures(family).items():
        value, unit = figure["value"], figure["unit"]
        assert isinstance(value, int | float), f"{FILE}: {name}"
        assert figure["source"], f"{FILE}: {name} has no source"
        values[name] = float(value) * FACTORS[str(unit)]
    rows = require_mapping(_document()["defaults"], FILE)["tiles"]
    assert isinstance(rows, list), f"{FILE}: tiles"
    tiles = tuple(Tile(rows=int(row["rows"]), columns=int(row["columns"]), ratio=float(row["ratio"])) for row in rows)
    values["attention_rows"] = int(values["attention_rows"])
    return Constants(tiles=tiles, **values)  # type: ignore[arg-type]


@cache
def freedoms() -> tuple[Freedom, ...]:
    """What a fit may move, from ``data/constants.yaml``."""
    found: list[Freedom] = []
    for name, block in require_mapping(_document()["fitted"], FILE).items():
        spreads = {key: float(str(value)) for key, value in require_mapping(block, f"{FILE}: fitted.{name}").items()}
        maximum = spreads.pop("maximum", None)
        assert set(spreads) <= set(LEVELS), f"{FILE}: fitted.{name}: unknown level"
        found.append(Freedom(name=name, spreads=spreads, maximum=maximum))
    return tuple(found)


def calibration(name: str, device: Device) -> Calibration:
    """A calibration for a device; only ``none`` exists until runs have been fitted."""
    if name.split("@", maxsplit=1)[0] != "none":
        raise fault("calibration.unknown", "unknown calibration {name!r}; known: none", name=name)
    return Calibration(name="none", version="0", constants=_constants(device.family))
