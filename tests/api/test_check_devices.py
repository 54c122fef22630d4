"""Files that start another number of devices than the user says are found, whatever adapter reads them."""

import pytest

import meshwright as mw
from meshwright.frameworks import framework, frameworks
from meshwright.testing import legal_plans

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")
ABLE = [name for name in frameworks() if framework(name).interpreter is not None and framework(name).writer is not None]


@pytest.mark.parametrize("name", ABLE)
def test_files_that_start_more_devices_than_the_cluster_has_are_wrong(name, tmp_path):
    named = framework(name)
    case, layout = next((case, layout) for case, layout in legal_plans(name, 12, seed=3) if case.cluster.num_nodes > 1)
    paths = []
    for file in named.write(case, layout):
        if not file.path.startswith("probe") and not file.path.endswith((".md", ".patch")):
            (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file.path).write_text(file.text, encoding="utf-8")
            paths.append(str(tmp_path / file.path))

    def found(**size):
        request = mw.CheckRequest(files=paths, from_=name, device=case.cluster.device.name, **size)
        return {str(each.message) for each in mw.check(request).checked.findings if each.severity == "error"}

    own, per_node = case.cluster.num_devices, case.cluster.devices_per_node
    said = f"the files start {own} processes, the cluster has {per_node} devices"
    picotron = f"world_size must be equal to tp_size * pp_size * dp_size * cp_size: {per_node} is not {own}"
    assert {said, picotron}.isdisjoint(found(nodes=own // per_node, devices_per_node=per_node))
    assert {said, picotron} & found(nodes=1, devices_per_node=per_node)


FIGURES = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size ${MICRO:-1} --global-batch-size 128 "
    "--tensor-model-parallel-size 2 --sequence-parallel --bf16 --swiglu --vocab-size 128256 --train-iters 10"
)


@pytest.mark.parametrize(("nodes", "known"), [
    ("NODES=8", True), ("NODES=8 OTHER=${OTHER:-3}", True), ("NODES=${NODES:-8}", False), ("NODES=${NODES-8}", False),
    ("NODES=${1:-8}", False), ("NODES=$SLURM_NNODES", False),
])
@pytest.mark.parametrize("size", [{"nodes": 4}, {"devices": 32}])
def test_a_number_that_whoever_calls_the_script_may_say_contradicts_nobody(nodes, known, size, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/bash\n{nodes}\ntorchrun --nnodes $NODES --nproc_per_node 8 pretrain_gpt.py {FIGURES}\n")
    asked = mw.CheckRequest(files=[str(script)], from_="megatron", model="llama3-8b", device="h100-sxm", **size)
    found = {each.message.id: each.value for each in mw.check(asked).checked.findings}
    assert [value for id, value in found.items() if id in {"check.devices", "check.contradiction"}] == ([64] if known else [])
