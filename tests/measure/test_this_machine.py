"""What runs here, as a cluster of the catalogue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from meshwright.errors import InputError
from meshwright.measure.here import by_catalogue, by_file, by_nothing, by_profile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("driver", "device"),
    [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
     ("AMD Instinct MI300X", "mi300x")],
)
def test_a_device_is_found_by_the_name_that_its_driver_gives(monkeypatch: pytest.MonkeyPatch, driver: str, device: str) -> None:
    monkeypatch.setattr("meshwright.measure.here.device_name", lambda: driver)
    found = by_catalogue("cuda", 2)
    assert found is not None
    assert (found.device.name, found.num_devices, found.scale_up_devices) == (device, 2, 2)


def test_a_device_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.measure.here.device_name", lambda: "Some Card")
    assert by_catalogue("cuda", 1) is None
    with pytest.raises(InputError, match="Some Card is not in the catalogue"):
        by_nothing("cuda", 1)


def test_predictions_of_other_devices_are_refused() -> None:
    assert by_file("cpu", "cpu", 2).num_devices == 2
    with pytest.raises(InputError, match="dgx-h100 is made of h100-sxm, and ranks run on cpu"):
        by_file("h100-sxm", "cpu", 2)
    with pytest.raises(InputError, match="is made of cpu, and ranks run on cuda"):
        by_file("workstation", "cuda", 1)


def test_the_profile_of_another_machine_is_refused(tmp_path: Path) -> None:
    machine = {
        "name": "Another Processor", "kind": "cpu", "cores": 64, "memory_bytes": 2**40, "host_memory_bytes": 2**40, "num_units": 1,
        "ranks": 2, "ranks_per_node": 2, "threads": 1, "torch": "1.0", "host": "elsewhere", "date": "2020-01-01",
    }
    (tmp_path / "cluster-2.yaml").write_text("clusters: {this-machine-2: {like: workstation}}\n")
    (tmp_path / "cluster-2.samples.jsonl").write_text(json.dumps({"format": "meshwright samples 1", "machine": machine}) + "\n")
    with pytest.raises(InputError, match=r"holds the profile of another machine: .*Another Processor"):
        by_profile(tmp_path, "cpu", 2, quick=False, write=lambda *_: None, tick=None)
