"""Calibrations as data: what a fit may move, files that read back as they were, and figures that no fit writes."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.catalog import calibration, calibration_table, cluster_for, devices
from meshwright.catalog import device as device_named
from meshwright.catalog import freedoms as freedoms_named
from meshwright.catalog import priors as priors_named
from meshwright.catalog.calibration_faults import LARGEST, MOVABLE
from meshwright.catalog.calibrations import held_out_tables, is_none, read_table, table_text
from meshwright.catalog.sheets import data_path
from meshwright.domain.calibration import LEVELS, Constants
from meshwright.domain.uncertainty import OTHER
from meshwright.errors import InputError
from meshwright.evidence.rows.table import shipped_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHIPPED = data_path("calibrations") / "shipped.json"


def test_a_fit_moves_numbers_of_the_constants_alone() -> None:
    freedoms = freedoms_named()
    names = [each.name for each in freedoms]
    assert names
    assert len(set(names)) == len(names)
    assert set(names) <= MOVABLE < {field.name for field in fields(Constants)}
    for each in freedoms:
        assert set(each.spreads) <= set(LEVELS), each.name
        assert all(0.0 < spread < LARGEST for spread in each.spreads.values()), each.name
        priors = [float(getattr(priors_named(device_named(device)).constants, each.name)) for device in devices()]
        assert all(prior > 0.0 for prior in priors), f"{each.name} cannot be moved by a factor"
        assert each.maximum is None or each.maximum >= max(priors), each.name


def test_the_shipped_calibration_reads_back_as_it_was(tmp_path: Path) -> None:
    table = calibration_table("shipped")
    text = table_text(table)
    (tmp_path / "again.json").write_text(text)
    again = calibration_table(str(tmp_path / "again.json"))
    assert again == table
    assert table_text(again) == text


def test_the_shipped_calibration_is_one_of_this_product() -> None:
    table = calibration_table("shipped")
    assert table.name == SHIPPED.stem
    assert calibration_table(f"shipped@{table.version}") is table
    assert set(table.offsets) <= {each.name for each in freedoms_named()}
    assert set(table.seen["device"]) <= set(devices())
    assert OTHER in table.fits
    assert table.provenance


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    for version in ("1", "2"):
        path.write_text(SHIPPED.read_text().replace(calibration_table("shipped").version, version))
        assert calibration_table(str(path)).version == version


def test_no_calibration_is_the_priors_of_version_0() -> None:
    cluster = cluster_for("h100-sxm", num_devices=8)
    for name in ("none", "none@0"):
        assert is_none(name)
        assert calibration(name, cluster) == priors_named(cluster.device)
    assert not is_none("nones")
    with pytest.raises(InputError, match="none has version 0, not '7'"):
        is_none("none@7")


def _offset(value: float) -> Callable[[Any], None]:
    return lambda data: data["offsets"]["gemm_ratio"]["by_level"].update(all={"": value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_offset(1e6), "by_level.all: 1e+06 is not within"),
        (_offset(-600.0), "by_level.all: -600 is not within"),
        (_offset(math.nan), "NaN is not JSON"),
        (_offset(math.inf), "Infinity is not JSON"),
        (_offset(int("9" * 400)), "a number of 400 characters"),
        (lambda data: data["offsets"].update(gem_ratio={"by_level": {}}), "gem_ratio: is no constant that a fit may move; did you"),
        (lambda data: data["offsets"].update(tiles={"by_level": {}}), "tiles: is no constant that a fit may move"),
        (lambda data: data["offsets"]["gemm_ratio"]["by_level"].update(model={"": 1.0}), "by_level.model: is none of all, family"),
        (lambda data: data["offsets"]["gemm_ratio"].update(maximum=-1), "maximum: -1.0 must be above 0"),
        (lambda data: data["fits"].pop("*"), "fits: has no curve '*'"),
        (lambda data: data["fits"]["*"].update(width=0), "width: 0 is not within"),
        (lambda data: data["fits"]["*"].update(failures=7), "failures: 7 is not within 0..1"),
        (lambda data: data["step"].update(quantiles={}), "step.quantiles: has no level 0.9"),
        (lambda data: data["step"]["quantiles"].update(abc=1.0), "step.quantiles.abc: is no share between 0 and 1"),
        (lambda data: data["step"]["shifts"].update(frmework=1.0),
         "step.shifts.frmework: stands in shifts and not in runs; in both: cell, framework, model, size"),
        (lambda data: data["step"]["runs"].pop("cell"),
         "step.shifts.cell: stands in shifts and not in runs; in both: framework, model, size"),
        (lambda data: data["step"].update(growth=2.0), "step.growth: 2 is not within 0..1"),
        (lambda data: data["step"].update(reaches={"size": 0.0}), "step.reaches.size: 0 is not within 0.001"),
        (lambda data: data["step"].update(own={"a cell": 99.0}), "step.own.a cell: 99 is not within"),
        (lambda data: data["step"].update(reaches={"framework": 1.0}, runs={**data["step"]["runs"], "framework": {"mine": 1.0}}),
         "step.runs.framework.mine: ends in no place, such as 12.0x5.0"),
        (lambda data: data["memory"].update(base=1e5), "memory.base: 100000 is not within"),
        (lambda data: data.update(ranking_ratio=-3), "ranking_ratio: -3 is not within"),
        (lambda data: data.update(mine=1), "mine: is no known key"),
        (lambda data: data.pop("seen"), "seen: is missing"),
        (lambda data: data.update(version=7), "version: 7 is not text"),
    ],
)
def test_what_no_fit_writes_is_refused(tmp_path: Path, change: Callable[[Any], None], words: str) -> None:
    data = json.loads(SHIPPED.read_text())
    change(data)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as error:
        read_table(path)
    assert len(error.value.messages) == 1
    assert words in str(error.value)


def test_all_faults_of_a_file_come_at_once(tmp_path: Path) -> None:
    data = json.loads(SHIPPED.read_text())
    for name in ("gemm_ratio", "memory_ratio"):
        data["offsets"][name]["by_level"]["all"] = {"": 99.0}
    (tmp_path / "mine.json").write_text(json.dumps(data))
    with pytest.raises(InputError) as error:
        read_table(tmp_path / "mine.json")
    assert len(error.value.messages) == 2


def test_fits_without_a_fold_are_those_of_the_shipped_corpus() -> None:
    digest = shipped_table().digest
    tables = held_out_tables(digest)
    assert [each.version for each in tables] == [f"fold {number}" for number in range(10)]
    assert held_out_tables(digest[::-1]) == ()


@pytest.mark.matrix
def test_fits_without_a_fold_are_made_again_as_they_ship() -> None:
    from benchmarks.held_out import texts

    assert all(path.read_text(encoding="utf-8") == text for path, text in texts().items())
