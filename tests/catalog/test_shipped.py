"""The files of this package are converted by msgspec; here each is read as strange files are, and is the same."""

import msgspec
import pytest

from meshwright.catalog import clusters, devices, models
from meshwright.catalog import guides as all_guides
from meshwright.catalog.calibrations import DEFAULT, calibration_table, read_table
from meshwright.catalog.cluster_sheet import cluster_provenance
from meshwright.catalog.device_sheet import read_device
from meshwright.catalog.families import families
from meshwright.catalog.figures import converter
from meshwright.catalog.implementations import implementation, implementations
from meshwright.catalog.model_sheet import published_parameters
from meshwright.catalog.recipes import optimizer, optimizers, precision, precisions
from meshwright.catalog.sheets import data_path, shipped
from meshwright.readers.structure import structure

READ = {"DeviceRecord", "ClusterRecord", "ModelRecord", "ConfiguredRecord", "Guides", "Implementation", "Precision",
        "OptimizerRecord", "_Document"}


def test_every_record_is_what_the_strict_reader_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, seen = msgspec.convert, set[str]()

    def both(data: object, kind: type) -> object:
        found = convert(data, kind)
        assert repr(found) == repr(structure(converter(), data, kind, where="")), "a fault, or another value"
        seen.add(kind.__name__)
        return found

    monkeypatch.setattr(msgspec, "convert", both)
    for name in devices():
        read_device(shipped("devices.yaml"), name)
    for name in clusters():
        cluster_provenance(name)
    for name in models():
        published_parameters(name)
    for read, names in ((implementation, implementations()), (precision, precisions()), (optimizer, optimizers())):
        for name in names:
            read.__wrapped__(name)
    all_guides.__wrapped__()
    families.__wrapped__()
    assert seen == READ


def test_the_shipped_calibration_is_what_the_strict_reader_makes_of_it() -> None:
    assert calibration_table(DEFAULT) == read_table(data_path("calibrations") / f"{DEFAULT}.json")
