"""Devices, shapes of clusters, their provenance, and user files good and bad."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from meshwright.catalog import cluster_for, clusters, device, devices, load_cluster, provenance
from meshwright.catalog.cluster_sheet import MAX_DEVICES
from meshwright.catalog.device_sheet import device_names
from meshwright.errors import InputError
from meshwright.units import GIB

CONTRACT = (
    "v100-32g", "a100-40g-sxm", "a100-80g-sxm", "h100-sxm", "h100-96g", "h800", "h20", "h200", "b200", "b300",
    "gb200", "gb300", "l40s", "rtx-4090", "mi250x-gcd", "mi300x", "mi325x", "mi355x", "ascend-910a", "ascend-910b",
    "ascend-910c", "cpu",
)
CORPUS_SPELLINGS = (
    "h100-80g-sxm", "a100-40g-sxm", "a100-80g-sxm", "gb200", "gb300", "b200", "ascend-910b",
    "ascend-910b(Atlas 900 A2 PODc)", "b300", "b200-180g-sxm", "v100-32g-sxm", "ascend-910b(Atlas 800T A2 64G)",
    "h100-96g-sxm", "a800-80g", "ascend-910c(A3,per die)", "ascend-910a(Atlas 800 32G)",
)


@pytest.mark.parametrize("name", devices())
def test_every_device_is_plausible(name: str) -> None:
    one = device(name)
    assert one.name == name
    assert 10 * GIB < one.memory_bytes < 400 * GIB
    assert one.supports("bf16") or one.supports("fp16")
    assert one.num_units >= 2
    assert one.peak_flops_per_s.get("fp8", 1e30) >= one.peak_flops_per_s.get("bf16", 0.0)
    figures = provenance("device", name)
    assert set(one.assumed) <= set(figures)
    for path, figure in figures.items():
        assert figure.value > 0
        assert figure.unit
        assert len(figure.source) > 10, path
        assert figure.source.startswith("assumed") == (path in one.assumed), path


@pytest.mark.parametrize("name", [*CONTRACT, *CORPUS_SPELLINGS, "H100", "a100-80g"])
def test_contract_names_and_corpus_spellings_are_known(name: str) -> None:
    assert device(name).name in devices()


def test_every_device_of_the_shipped_corpus_is_known() -> None:
    found = list(Path(__file__).parents[2].glob("src/meshwright/**/measured_runs.csv"))
    if not found:
        pytest.skip("the corpus is not shipped")
    with found[0].open(encoding="utf-8") as stream:
        unknown = {row["gpu"] for row in csv.DictReader(stream) if device_names().find(row["gpu"]) is None}
    assert unknown == {"vr200"}  # Rubin: one run, reported as unread


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [("a100-80g-sxm", "bf16", 312), ("h100-sxm", "bf16", 989), ("h100-sxm", "fp8", 1979), ("b200", "bf16", 2250),
     ("b200", "fp8", 4500), ("gb200", "bf16", 2450), ("gb200", "fp8", 4900), ("v100-32g", "fp16", 125),
     ("mi300x", "bf16", 1307.4), ("mi250x-gcd", "bf16", 191.5)],
)
def test_dense_peaks(name: str, dtype: str, tera: float) -> None:
    assert device(name).peak_flops_per_s[dtype] == pytest.approx(tera * 1e12)


def test_scale_up_bandwidth_is_one_direction() -> None:
    wanted = {"h100": 450, "a100": 300, "a800": 200, "h800": 200, "h20": 450, "b200": 900, "mi300x": 448}
    assert {name: device(name).scale_up_bytes_per_s / 1e9 for name in wanted} == pytest.approx(wanted)


def test_an_unknown_device_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"unknown device 'H100-SMX'; did you mean h100-sxm"):
        device("H100-SMX")


@pytest.mark.parametrize("name", clusters())
def test_every_shape_is_plausible(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.num_devices >= cluster.devices_per_node
    assert 0 < cluster.network.bytes_per_s <= 110e9
    assert cluster.scale_up.latency_s < cluster.network.latency_s or cluster.scale_up_devices == 1
    assert all(figure.source for figure in provenance("cluster", name).values())


@pytest.mark.parametrize("name", devices())
def test_every_device_has_a_default_shape(name: str) -> None:
    cluster = cluster_for(name, nodes=2)
    assert cluster.device.name == name
    assert cluster.num_nodes == 2


def test_clusters_at_a_size() -> None:
    assert cluster_for("h100", num_devices=512).num_nodes == 64
    assert cluster_for("h100", nodes=3).num_devices == 24
    assert cluster_for("h100").num_devices == 8
    assert cluster_for("h100", num_devices=4).num_nodes == 1
    four = cluster_for("h100", nodes=2, devices_per_node=4)
    assert (four.num_devices, four.devices_per_node, four.scale_up_devices) == (8, 4, 4)
    rack = cluster_for("gb200", num_devices=144)
    assert (rack.devices_per_node, rack.scale_up_devices, rack.num_nodes) == (4, 72, 36)
    assert cluster_for("l40s", nodes=1).scale_up_devices == 1
    assert load_cluster("DGX-H100", nodes=4).num_devices == 32
    assert load_cluster("p5").network.latency_s > load_cluster("dgx-h100").network.latency_s


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cluster_for("h100", num_devices=10, nodes=2), "devices=10 is not nodes=2 times 8"),
        (lambda: cluster_for("h100", num_devices=0), "devices=0 is not within 1.."),
        (lambda: cluster_for("h100", devices_per_node=0), "devices_per_node=0 must be at least 1"),
        (lambda: load_cluster("dgx-h10"), "unknown cluster 'dgx-h10'; did you mean"),
        (lambda: load_cluster("./absent.yaml"), "no such file"),
        (lambda: provenance("device", "h10O"), "unknown device"),
    ],
)
def test_bad_requests(call, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()


def write(folder: Path, document: object) -> str:
    path = folder / "cluster.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def faults_of(path: str) -> str:
    with pytest.raises(InputError) as caught:
        load_cluster(path)
    return "\n".join(str(message) for message in caught.value.messages)


def test_a_user_file_like_a_shape(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, {"clusters": {"mine": {"like": "dgx-h100", "nodes": 16}}}))
    assert (cluster.name, cluster.num_devices, cluster.device.name) == ("mine", 128, "h100-sxm")


@pytest.mark.parametrize("key", ["devices_per_node", "scale_up_devices", "num_devices", "nodes", "pod_devices"])
@pytest.mark.parametrize(("count", "taken"), [(1, True), (MAX_DEVICES, True), (0, False), (MAX_DEVICES + 1, False)])
@pytest.mark.parametrize("beside", [{}, {"devics": 8}])
def test_counts_of_a_cluster_reach_from_one_to_the_largest(
    tmp_path: Path, key: str, count: int, taken: bool, beside: dict[str, int]
) -> None:
    """Also where another fault keeps the block from being a cluster at all."""
    path = write(tmp_path, {"clusters": {"mine": {"like": "dgx-h100", key: count, **beside}}})
    try:
        load_cluster(path)
        found = ""
    except InputError as error:
        found = str(error)
    assert (f"clusters.mine.{key}: {count} is not within 1..{MAX_DEVICES}" in found) != taken


def test_a_user_file_with_its_own_device(tmp_path: Path) -> None:
    figure = {"value": 1, "source": "our measurement"}
    own = {
        "family": "hopper", "cluster": "mine", "memory": figure | {"unit": "GiB"},
        "memory_bandwidth": figure | {"unit": "TB/s"}, "peak": {"bf16": figure | {"unit": "PFLOP/s"}},
        "units": figure | {"unit": "count"}, "scale_up": figure | {"unit": "GB/s"}, "power": figure | {"unit": "kW"},
    }
    document = {"devices": {"x1": own}, "clusters": {"mine": {"like": "hgx-h200", "device": "x1"}}}
    cluster = load_cluster(write(tmp_path, document))
    assert cluster.device.name == "x1"
    assert cluster.device.memory_bytes == GIB
    assert cluster.scale_up.bytes_per_s == 1e9


def test_a_user_file_reports_every_fault_with_its_path(tmp_path: Path) -> None:
    block = {
        "like": "dgx-h100",
        "devics_per_node": 8,
        "scale_up_devices": "8",
        "network": {"bandwidth": {"value": "1e-5", "unit": "GB/s", "source": "x"}, "latency": 4.0},
        "host_memory": {"value": 2, "unit": "GB/s", "source": "x"},
        "host_link": {"value": 2, "unit": "GB/s"},
        "node_power": {"value": 2, "unit": "kW", "source": " "},
    }
    text = faults_of(write(tmp_path, {"clusters": {"mine": block}}))
    assert "clusters.mine.devics_per_node: is no known key; did you mean devices_per_node" in text
    assert "clusters.mine.scale_up_devices: '8' is not a whole number but text; remove the quotes" in text
    assert "clusters.mine.network.bandwidth.value: '1e-5' is not a number but text; YAML reads 1e-5 as text" in text
    assert "clusters.mine.network.latency: 4.0 is bare; a figure is {value, unit, source}" in text
    assert "clusters.mine.host_memory: unit 'GB/s' is none of B, KiB" in text
    assert "clusters.mine.host_link.source: is missing" in text
    assert "clusters.mine.node_power: the source is empty" in text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"clusters": {"mine": {"like": "dgx-h100", "device": "h10"}}}, "unknown device 'h10'; did you mean"),
        ({"clusters": {"mine": {"like": "dgx-h1000"}}}, "unknown cluster 'dgx-h1000'; did you mean"),
        ({"clusters": {"a": {"like": "b"}, "b": {"like": "a"}}}, "holds 2 clusters"),
        ({"clusters": {"mine": {"like": "mine"}}}, "the cluster is like itself"),
        ({"clusters": {"mine": {"like": "dgx-h100", "nodes": 0}}}, "clusters.mine.nodes: 0 is not within 1.."),
        ({"clusters": {"mine": {"like": "dgx-h100", "nodes": 2, "num_devices": 16}}}, "give nodes or num_devices"),
        (
            {"clusters": {"mine": {"like": "dgx-h100", "host_memory": {"value": 1e300, "unit": "TB", "source": "x"}}}},
            "clusters.mine.host_memory: 1e+300 TB is more than there is",
        ),
        ({"clusters": {"mine": 3}}, "clusters.mine: 3 stands there, keys with values are expected"),
        ({"clusters": [1]}, "clusters: holds a list: names with blocks"),
        ({"cluster": {}}, "cluster: is no known section; did you mean clusters"),
        ({"sources": {"a": 1}, "clusters": {"mine": {"like": "dgx-h100"}}}, "sources.a: 1 is not text"),
        ({}, "holds 0 clusters"),
        ("", "holds nothing, keys with values were expected"),
        ("[1, 2]", "holds a list, keys with values were expected"),
        ("1: 2", "key 1 is not text"),
        ("clusters: {mine: {like: dgx-h100, like: dgx-a100}}", "key 'like' stands twice"),
    ],
)
def test_bad_user_files(tmp_path: Path, document: object, text: str) -> None:
    assert text in faults_of(write(tmp_path, document))
