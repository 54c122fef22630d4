"""Network interfaces of the launch: blanks of their own in scripts of several nodes, and judged by check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.frameworks import Options, framework, frameworks
from meshwright.frameworks.manual import bindings
from meshwright.frameworks.variables import habits

WRITES_SCRIPTS = ("train.sh", "launch.sh", "msrun.sh", "run.sh")


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", frameworks())
def test_scripts_of_several_nodes_have_the_interfaces_as_blanks(name, nodes):
    ascend = name.startswith("mind")
    case = make_case(
        "llama2-7b", cluster_for("ascend-910b" if ascend else "h100-sxm", num_devices=8 * nodes), global_batch_sequences=64,
        sequence_tokens=4096, framework=name,
    )
    runner = framework(name).for_case(case)
    world = 8 * nodes
    able = []
    for stage in runner.features.zero_stages:
        shards = [world if stage >= least else 1 for least in (1, 2, 3)]
        layout = Layout(data_parallel=world, num_microbatches=64 // world, optimizer_shards=shards[0], gradient_shards=shards[1],
                        parameter_shards=shards[2])
        layout = replace(layout, overlap=runner.overlap(case, layout))
        able += [] if runner.check(case, layout) else [layout]
    if runner.writer is None or not able:
        pytest.skip("writes nothing for this case")
    files = runner.write(case, able[0], options=Options(estimate=estimate(case, able[0]), label="dp"))
    scripts = {file.path: file.text for file in files if file.path in WRITES_SCRIPTS}
    (readme,) = (file.text for file in files if file.path == "README.md")
    assert scripts
    for blank in bindings(case, 2):
        for text in scripts.values():
            assert (f'{blank.name}="${{{blank.name}:-}}"' in text) == (nodes > 1)
        assert (f"`{blank.name}`" in readme) == (nodes > 1)


@pytest.mark.parametrize(("name", "value", "bad"), [
    ("NCCL_IB_HCA", "mlx5", True), ("NCCL_IB_HCA", "mlx5,bnxt", True), ("NCCL_IB_HCA", "=mlx5_0,mlx5_1", False),
    ("NCCL_IB_HCA", "mlx5_0:1", False), ("NCCL_IB_HCA", "^mlx5", False), ("NCCL_IB_HCA", "", False),
    ("NCCL_SOCKET_IFNAME", "lo", True), ("NCCL_SOCKET_IFNAME", "docker0", True), ("NCCL_SOCKET_IFNAME", "eth0", False),
    ("HCCL_SOCKET_IFNAME", "lo", True), ("GLOO_SOCKET_IFNAME", "", False),
])
def test_bindings_that_hurt_are_named(name, value, bad):
    (habit,) = (each for each in habits() if each.variable == name)
    assert habit.bad(value) == bad
    assert habit.across_nodes
