"""The cluster file that ships as an example is one that ``profile`` wrote, and plans take it."""

from __future__ import annotations

from pathlib import Path

from meshwright.catalog import load_cluster
from meshwright.engine.profile.clusterfile import MARK

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-cores.yaml"


def test_the_example_is_a_measured_cluster() -> None:
    assert EXAMPLE.read_text().startswith(MARK)
    cluster = load_cluster(str(EXAMPLE))
    assert cluster.device.synchronous and cluster.num_devices == 2
    assert cluster.measured is not None
    assert "gemm_ratio" in cluster.measured.constants
    assert {each.operation for each in cluster.measured.scale_up} >= {"all-reduce", "send"}
