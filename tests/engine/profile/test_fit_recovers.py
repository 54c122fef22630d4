"""A fit finds the constants of a machine that behaves as the cost model says, and says its samples again through the file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.profile.synthetic import KINDS, SEEN_BYTES, cpu_world, gpu_world, machine, samples
from tests.strategies import examples

from meshwright.catalog import calibration, implementation, load_cluster
from meshwright.domain.mesh import group
from meshwright.engine.profile.clusterfile import cluster_text
from meshwright.engine.profile.fit import fit
from meshwright.engine.profile.fit_compute import formula_s
from meshwright.errors import InputError
from meshwright.perf.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from meshwright.perf.elementwise import kind_bytes, memory_bound_s

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.domain.sample import Sample

FREE = ("gemm_setup_k", "gemm_weight_gradient_ratio", "collective_fixed_s", "peer_s", "kernel_gap_s")


@settings(examples(6), phases=[Phase.generate])
@given(
    setup=st.floats(20.0, 300.0), weight=st.floats(0.5, 1.2), start=st.floats(5e-5, 1e-3), forward=st.floats(0.05, 0.8),
    seed=st.integers(0, 2**31),
)
def test_known_constants_are_found_again(setup: float, weight: float, start: float, forward: float, seed: int) -> None:
    world = cpu_world(
        gemm_setup_k=setup, gemm_weight_gradient_ratio=weight, collective_fixed_s=start, attention_forward_ratio=forward
    )
    found = fit(samples(world, noise=0.01, seed=seed), world.machine)
    rate = world.cluster.device.peak_flops_per_s["bf16"] * float(world.constants.gemm_ratio)
    fitted = {name: each.value for name, each in found.constants.items()}
    peak = found.cluster.device.peak_flops_per_s["bf16"]
    assert peak * fitted["gemm_ratio"] == pytest.approx(rate, rel=0.06)
    for name in FREE:
        near = 10.0 if name == "gemm_setup_k" else 0.0  # of the 384 and more that products sum over
        assert fitted[name] == pytest.approx(float(getattr(world.constants, name)), rel=0.2, abs=near), name
    for direction in ("forward", "backward"):
        name = f"attention_{direction}_ratio"
        expected = float(getattr(world.constants, name)) * world.cluster.device.peak_flops_per_s["bf16"]
        assert fitted[name] * peak == pytest.approx(expected, rel=0.05)
    assert found.cluster.scale_up.bytes_per_s == pytest.approx(1.5e9, rel=0.05)
    assert found.cluster.scale_up.latency_s == pytest.approx(1e-4, rel=0.2)
    assert found.cluster.device.memory_bytes_per_s == pytest.approx(13e9, rel=0.05)
    for kind, speed in KINDS.items():
        assert found.passes[kind].value * fitted["memory_ratio"] == pytest.approx(speed * 0.7, rel=0.08), kind


@settings(examples(6), phases=[Phase.generate])
@given(ratio=st.floats(0.3, 1.0), seed=st.integers(0, 2**31))
def test_experts_of_less_than_a_wave_tell_what_grouping_costs(ratio: float, seed: int) -> None:
    """A processor's wave is one tile, so there grouping costs nothing that could be told."""
    world = gpu_world()
    world = replace(world, constants=replace(world.constants, grouped_gemm_ratio=ratio))
    found = fit(samples(world, noise=0.01, seed=seed, scale=4), world.machine)
    assert found.constants["grouped_gemm_ratio"].value == pytest.approx(ratio, rel=0.1)


def test_host_times_and_contention_are_those_of_their_samples() -> None:
    world = cpu_world()
    fitted = {name: each.value for name, each in fit(samples(world), world.machine).constants.items()}
    expected = {
        "collective_host_s": 4e-4, "shard_host_s": 6e-4, "microbatch_host_s": 8e-4, "contention_slowdown": 0.5,
        "contention_slowdown_scale_up": 0.5, "overlap_ratio": 0.75,
    }
    assert {name: fitted[name] for name in expected} == pytest.approx(expected)
    assert "launch_s" not in fitted


def test_predictions_through_the_file_are_the_samples(tmp_path: Path) -> None:
    world = cpu_world()
    taken = samples(world)
    (tmp_path / "here.yaml").write_text(cluster_text(taken, world.machine, name="here"))
    cluster = load_cluster(str(tmp_path / "here.yaml"))
    constants = calibration("none", cluster).constants
    products = [each for each in taken if each.bench == "product"]
    np.testing.assert_allclose(formula_s(products, cluster.device, constants), [each.seconds for each in products], rtol=2e-3)
    timed = {"all-reduce": all_reduce_s, "all-gather": all_gather_s, "reduce-scatter": reduce_scatter_s}
    for each in taken:
        if each.bench == "collective" and each.arguments["operation"] in timed:
            formula = timed[str(each.arguments["operation"])]
            seconds = formula(each.arguments["payload_bytes"], group(2.0, 1.0, cluster), cluster, constants)
            assert float(seconds) == pytest.approx(each.seconds, rel=1e-4)
    reference = implementation("reference")
    for each in taken:
        if each.bench == "pass":
            kind, direction, elements = (each.arguments[name] for name in ("kind", "direction", "elements"))
            moved = float(elements) * (kind_bytes(reference, str(kind), str(direction)) or SEEN_BYTES[str(kind)])
            seconds = memory_bound_s(moved, cluster.device, constants, kind=str(kind)) + 3.0 * constants.kernel_gap_s
            assert float(seconds) == pytest.approx(each.seconds, rel=0.01), each.arguments


def test_samples_that_no_formula_says_are_said_by_their_corrections(tmp_path: Path) -> None:
    """All-gathers that take three times as long as reduce-scatters, which the formulas hold to be the same."""
    world = cpu_world()
    taken = [_slower(each, "all-gather", 3.0) for each in samples(world)]
    (tmp_path / "here.yaml").write_text(cluster_text(taken, world.machine, name="here"))
    cluster = load_cluster(str(tmp_path / "here.yaml"))
    constants = calibration("none", cluster).constants
    both = group(2.0, 1.0, cluster)
    for payload in (2**10, 2**20, 2**24):
        gather = float(all_gather_s(payload, both, cluster, constants))
        scatter = float(reduce_scatter_s(payload, both, cluster, constants))
        assert gather == pytest.approx(3.0 * scatter, rel=1e-4)


def _slower(sample: Sample, operation: str, factor: float) -> Sample:
    return replace(sample, seconds=factor * sample.seconds) if sample.arguments.get("operation") == operation else sample


def test_both_tiers_of_two_hosts_are_found(tmp_path: Path) -> None:
    one = cpu_world(network_ratio=1.0)
    network = replace(one.cluster.network, bytes_per_s=2.5e8, latency_s=4e-4)
    cluster = replace(one.cluster, num_devices=4, network=network)
    world = replace(one, cluster=cluster, machine=machine(ranks=4, ranks_per_node=2))
    taken = samples(world, noise=0.005, seed=7)
    found = fit(taken, world.machine).cluster
    assert (found.num_devices, found.devices_per_node, found.scale_up_devices) == (4, 2, 2)
    assert found.scale_up.bytes_per_s == pytest.approx(1.5e9, rel=0.05)
    assert found.network.bytes_per_s == pytest.approx(2.5e8, rel=0.05)
    assert found.network.latency_s == pytest.approx(4e-4, rel=0.1)
    (tmp_path / "pair.yaml").write_text(cluster_text(taken, world.machine, name="pair"))
    read = load_cluster(str(tmp_path / "pair.yaml"))
    constants = calibration("none", read).constants
    for ranks, stride in ((2.0, 1.0), (2.0, 2.0), (4.0, 1.0)):
        times = [
            float(all_reduce_s(2**20, group(ranks, stride, each), each, fixed))
            for each, fixed in ((read, constants), (world.cluster, world.constants))
        ]
        assert times[0] == pytest.approx(times[1], rel=0.03), (ranks, stride)


def test_messages_between_nodes_of_one_rank_each_are_those_of_the_network() -> None:
    one = cpu_world(network_ratio=1.0)
    network = replace(one.cluster.network, bytes_per_s=2.5e8, latency_s=4e-4)
    cluster = replace(one.cluster, devices_per_node=1, scale_up_devices=1, network=network)
    world = replace(one, cluster=cluster, machine=machine(ranks_per_node=1))
    taken = [each for each in samples(world) if each.arguments.get("tier") == "network"]
    found = fit([*taken, *samples(world)[:2]], world.machine).cluster
    assert found.measured is not None
    sent = [each.ratio for each in found.measured.network if each.operation == "send"]
    assert sent == pytest.approx([1.0] * len(sent), rel=0.1)
    assert sent


def test_a_gpu_times_itself_and_its_tiers_are_inside_and_between_nodes() -> None:
    """No host time is taken off its products; cards on PCIe, which the catalogue joins by the network, were measured on a node."""
    world = gpu_world()
    products = [each for each in samples(world, scale=8) if each.bench == "product"][:6]
    host = replace(products[0], bench="operator", arguments={"kind": "plain"}, seconds=1e-5)
    here = replace(world.machine, name="NVIDIA L40S")
    found, without = (fit(each, here) for each in ([*products, host], products))
    assert found.cluster.device.name == "l40s"
    assert found.cluster.scale_up_devices == found.cluster.devices_per_node == 8
    assert found.constants == without.constants


def test_a_gpu_of_the_catalogue_keeps_its_published_peaks() -> None:
    world = gpu_world()
    found = fit(samples(world, noise=0.005, seed=3, scale=8), world.machine, name="node")
    fitted = {name: each.value for name, each in found.constants.items()}
    assert found.cluster.device.peak_flops_per_s == world.cluster.device.peak_flops_per_s
    assert found.cluster.device.name == "h100-sxm"
    assert not found.cluster.device.synchronous
    assert found.cluster.device.num_units == 132
    assert fitted["gemm_ratio"] == pytest.approx(0.66, rel=0.05)
    assert fitted["attention_forward_ratio"] == pytest.approx(0.5, rel=0.05)
    assert fitted["launch_s"] == pytest.approx(float(world.constants.kernel_gap_s), rel=0.05)
    assert "kernel_gap_s" not in fitted
    assert found.cluster.scale_up_devices == 8
    text = cluster_text(samples(world, scale=8), world.machine, name="node")
    assert "not measured; NVIDIA H100" in text


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_a_device_that_nobody_knows_has_the_peaks_that_were_seen(kind: str, tmp_path: Path) -> None:
    world = gpu_world()
    strange = machine(name="Card of Tomorrow", kind=kind, memory_bytes=2**36, ranks=8, ranks_per_node=8, num_units=132)
    taken = samples(world, scale=8)
    (tmp_path / "new.yaml").write_text(cluster_text(taken, strange, name="new"))
    cluster = load_cluster(str(tmp_path / "new.yaml"))
    constants = calibration("none", cluster).constants
    assert set(cluster.device.peak_flops_per_s) == {"bf16"}
    assert cluster.device.memory_bytes == 2**36
    reached = cluster.device.peak_flops_per_s["bf16"] * float(constants.gemm_ratio)
    assert reached == pytest.approx(0.66 * world.cluster.device.peak_flops_per_s["bf16"], rel=0.05)


def test_a_few_wild_samples_change_little() -> None:
    world = cpu_world()
    taken = samples(world, noise=0.01, seed=5)
    quiet = fit(taken, world.machine)
    products = [place for place, each in enumerate(taken) if each.bench == "product"]
    for place in products[::9]:
        taken[place] = replace(taken[place], seconds=8.0 * taken[place].seconds)
    wild = fit(taken, world.machine)
    for name in ("gemm_ratio", "gemm_weight_gradient_ratio"):
        assert wild.constants[name].value == pytest.approx(quiet.constants[name].value, rel=0.12), name


def test_few_samples_leave_priors() -> None:
    """One rank, one product: no collectives, no hosts, no passes."""
    world = cpu_world()
    alone = [each for each in samples(world) if each.bench == "product"][:1]
    found = fit(alone, machine(ranks=1, ranks_per_node=1))
    assert found.cluster.num_devices == 1
    assert set(found.constants) == {"gemm_ratio", "gemm_setup_k", "gemm_weight_gradient_ratio", "memory_ratio"}
    assert "collective" in found.not_measured
    assert cluster_text(alone, machine(ranks=1, ranks_per_node=1), name="one")


def test_without_products_nothing_is_said() -> None:
    with pytest.raises(InputError, match="no matrix product was timed"):
        fit([], machine())
