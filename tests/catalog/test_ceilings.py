"""Constants that a fit holds at what physics allows."""

from dataclasses import replace

import pytest

from meshwright.catalog import priors
from meshwright.catalog.calibrations import calibration_table
from meshwright.catalog.ceilings import ceilings
from meshwright.catalog.device_sheet import device
from meshwright.domain.calibration import Offsets


def test_a_constant_at_its_maximum_is_said_and_one_below_is_not():
    table = replace(calibration_table("shipped"), seen={"cell": {"h100-sxm|megatron|bf16": 3}})
    prior = float(priors(device("h100-sxm")).constants.gemm_ratio)
    for offset, binds in ((0.1, False), (0.5, True)):
        moved = Offsets(by_level={"framework": {"megatron": offset}}, maximum=0.95)
        found = ceilings(replace(table, offsets={"gemm_ratio": moved}))
        assert bool(found) is binds
    assert found[0].wanted == pytest.approx(prior * 1.6487, rel=1e-3)
    assert (found[0].constant, found[0].maximum) == ("gemm_ratio", 0.95)


def test_every_cell_that_a_fit_saw_can_be_looked_at():
    found = ceilings(calibration_table("shipped"))
    assert all(each.wanted == pytest.approx(each.maximum, rel=6e-3) or each.wanted > each.maximum for each in found)
    assert list(found) == sorted(found, key=lambda each: -each.wanted / each.maximum)
