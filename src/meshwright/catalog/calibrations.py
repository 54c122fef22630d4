"""Calibrations by name. ``none@0`` is the priors of ``data/constants.yaml`` for the device's family."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from meshwright.catalog.calibration_faults import faults_of
from meshwright.catalog.sheets import data_path
from meshwright.domain.calibration import LEVELS, Calibration, CalibrationTable, Constants, Freedom, Key, Tile
from meshwright.domain.cluster import Cluster
from meshwright.domain.measured import with_measured
from meshwright.errors import InputError, fault, nearest
from meshwright.readers.safe import load_json, require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import make_converter, structure
from meshwright.units import FACTORS

if TYPE_CHECKING:
    from meshwright.domain.cluster import Device

FILE = "constants.yaml"
NONE, NONE_VERSION = "none", "0"


@cache
def _document() -> Mapping[str, object]:
    return require_mapping(load_shipped(data_path(FILE)), FILE)


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
    reached = reached_ratios()
    for name, block in require_mapping(_document()["fitted"], FILE).items():
        given = dict(require_mapping(block, f"{FILE}: fitted.{name}"))
        launch = bool(given.pop("launch", False))
        spreads = {key: float(str(value)) for key, value in given.items()}
        maximum = spreads.pop("maximum", None)
        assert set(spreads) <= set(LEVELS), f"{FILE}: fitted.{name}: unknown level"
        found.append(Freedom(name=name, spreads=spreads, maximum=maximum, reached=reached.get(name, {}), launch=launch))
    return tuple(found)


def own_shares() -> Mapping[str, float]:
    """Constant -> how far it is from a calibration for somebody whom that does not know, over the spread of all levels together."""
    return {name: float(str(share)) for name, share in require_mapping(_document()["own"], FILE).items()}


def reached_ratios() -> Mapping[str, Mapping[str, float]]:
    """Constant -> device -> the most that a benchmark of that device alone has reached."""
    found: dict[str, dict[str, float]] = {}
    for device, block in require_mapping(_document()["reached"], FILE).items():
        for name, given in require_mapping(block, f"{FILE}: reached.{device}").items():
            figure = require_mapping(given, f"{FILE}: reached.{device}.{name}")
            assert figure["source"], f"{FILE}: reached.{device}.{name} has no source"
            found.setdefault(name, {})[device] = float(str(figure["value"]))
    return found


DEFAULT = "shipped"
"""The calibration that ships with the product."""


def calibrations() -> tuple[str, ...]:
    """Names that ``calibration`` knows; a path to a file of ``meshwright calibrate`` is one more."""
    return (NONE, *sorted(path.stem for path in data_path("calibrations").glob("*.json")))


def calibration_table(name: str) -> CalibrationTable:
    """A table by name or by the path of a file that ``meshwright calibrate`` wrote.

    Errors:  ``InputError`` for an unknown name and for a file that is none.
    """
    bare, _, wanted = name.partition("@")
    if bare in calibrations() and bare != NONE:
        table = _shipped(bare)
        _check_version(table.name, table.version, wanted)
        return table
    if name.endswith(".json"):
        return read_table(Path(name))
    raise fault(
        "calibration.unknown", "unknown calibration {name!r}{hint}, or a .json file of `meshwright calibrate`",
        name=name, hint=nearest(name, calibrations()),
    )


@cache
def _shipped(name: str) -> CalibrationTable:
    """A table of this package, which a test holds to what ``read_table`` refuses."""
    return msgspec.json.decode((data_path("calibrations") / f"{name}.json").read_bytes(), type=CalibrationTable)


HELD_OUT = "held_out"
"""Folder of the fits that the shipped calibration is judged by: each to the runs of all folds but one (``benchmarks.held_out``)."""


def held_out_tables(digest: str) -> tuple[CalibrationTable, ...]:
    """The fits to the shipped corpus without each of its folds, in their order; none where they are of other rows or freedoms.

    ``digest``: of the corpus, as ``evidence.rows.table`` has it.
    """
    count = len(list((data_path("calibrations") / HELD_OUT).glob("*.json")))
    tables = tuple(read_table(data_path("calibrations") / HELD_OUT / f"{fold}.json") for fold in range(count))
    wanted = held_out_provenance(digest)
    return tables if all(each.provenance == wanted for each in tables) else ()


def held_out_provenance(digest: str) -> dict[str, str]:
    """What a fit without a fold was made from."""
    said = json.dumps([plain(each) for each in freedoms()], sort_keys=True)
    import hashlib  # loads OpenSSL, and only who fits or checks a calibration asks

    return {"corpus": f"sha256 {digest}", "freedoms": f"sha256 {hashlib.sha256(said.encode()).hexdigest()}"}


def is_none(name: str) -> bool:
    """Whether a name means the priors.

    Errors:  ``InputError`` for a version that they do not have.
    """
    bare, _, wanted = name.partition("@")
    if bare == NONE:
        _check_version(NONE, NONE_VERSION, wanted)
    return bare == NONE


def check_name(name: str) -> None:
    """Refuse what names no calibration, before the case is known."""
    if not is_none(name):
        calibration_table(name)


def _check_version(name: str, version: str, wanted: str) -> None:
    if wanted and wanted != version:
        raise fault(
            "calibration.version", "calibration {name} has version {version}, not {wanted!r}",
            name=name, version=version, wanted=wanted,
        )


def read_table(path: Path) -> CalibrationTable:
    """A table from a file; figures that no fit writes are refused, all of them at once."""
    data = require_mapping(load_json(path), str(path))
    table = structure(make_converter(), data, CalibrationTable, where=str(path))
    if wrong := faults_of(table, str(path)):
        raise InputError(wrong)
    return table


def table_text(table: CalibrationTable) -> str:
    """A table as the text of its file: one line a constant, so that versions compare line by line."""
    data = {
        key: {name: plain(each) for name, each in value.items()} if isinstance(value, Mapping) else plain(value)
        for key, value in ((field.name, getattr(table, field.name)) for field in fields(table))
    }
    lines = []
    for key, value in data.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items())
            lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plain(value: object) -> object:
    """Dataclasses and mappings as what JSON has."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    return value


MATRIX_UNITS = (
    "gemm_ratio", "gemm_fp8_ratio", "gemm_fp4_ratio", "attention_forward_ratio", "attention_backward_ratio", "scan_ratio",
)
"""Shares of the peak of matrix units."""


def priors(device: Device) -> Calibration:
    """The priors of a device's family, of matrix units as its power lets them: ``none@0``."""
    constants, share = _constants(device.family), power_share(device)
    if share < 1.0:
        constants = replace(constants, **{name: float(getattr(constants, name)) * share for name in MATRIX_UNITS})  # type: ignore[arg-type]
    return Calibration(name=NONE, version=NONE_VERSION, constants=constants)


def power_share(device: Device) -> float:
    """What a limit of power leaves of the rate that matrix units sustain.

        (P / P_peak)^(1/3), at most 1

    Symbols: P power of the device; P_peak power at which its kin sustain the family's share of the same peak.
    Units:   ratio.
    Holds:   the clock is what is lowered: dynamic power is f V^2, and voltage follows the clock. Memory keeps its own clock.
    Source:  largest BF16 matmuls of github stas00/ml-engineering, compute/accelerator: A100 of 300 W 0.93 of the one of 400 W (0.91
             here), GH200 of 900 W 1.04 and in FP8 1.09 of an H100 of 700 W (1.09 here).
    """
    return min(1.0, (device.power_w / device.peak_power_w) ** (1.0 / 3.0)) if device.peak_power_w else 1.0


def key_for(cluster: Cluster, *, framework: str, precision: str, release: str = "") -> Key:
    """What a calibration may know about a case."""
    device = cluster.device
    return Key(
        device=device.name, device_family=device.family, cluster=cluster.name, framework=framework, release=release,
        precision=precision,
    )


def calibration(
    name: str, cluster: Cluster | Device, *, framework: str = "", precision: str = "bf16", release: str = ""
) -> Calibration:
    """A calibration for a cluster under a framework family and a precision; ``none`` is the priors of its device's family.

    What a profile measured on the cluster stands above either; ``fitted`` is true then, and the label ends in ``+NAME@DATE``.

    Errors:  ``InputError`` for an unknown name.
    """
    device = cluster.device if isinstance(cluster, Cluster) else cluster
    prior = found = priors(device)
    if not isinstance(cluster, Cluster):
        assert is_none(name), "a fitted calibration knows links: give the cluster"
        return prior
    key = key_for(cluster, framework=framework, precision=precision, release=release)
    if not is_none(name):
        found = calibration_table(name).calibration(prior.constants, key)
    return with_measured(found, prior.constants, cluster.measured, key) if cluster.measured else found
