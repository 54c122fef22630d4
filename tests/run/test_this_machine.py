"""What runs here, as a cluster of the catalogue."""

from __future__ import annotations

import pytest

from meshwright.errors import InputError
from meshwright.run.here import by_catalogue, by_nothing


@pytest.mark.parametrize(
    ("driver", "device"),
    [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
     ("AMD Instinct MI300X", "mi300x")],
)  # fmt: skip
def test_a_device_is_found_by_the_name_that_its_driver_gives(monkeypatch: pytest.MonkeyPatch, driver: str, device: str) -> None:
    monkeypatch.setattr("meshwright.run.here.device_name", lambda: driver)
    found = by_catalogue("cuda", 2)
    assert found is not None
    assert (found.device.name, found.num_devices, found.scale_up_devices) == (device, 2, 2)


def test_a_device_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.run.here.device_name", lambda: "Some Card")
    assert by_catalogue("cuda", 1) is None
    with pytest.raises(InputError, match="Some Card is not in the catalogue"):
        by_nothing("cuda", 1)
