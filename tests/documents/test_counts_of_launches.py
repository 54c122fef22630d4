"""Numbers of nodes and devices that no launcher can start are said, whatever the launcher, wherever they stand."""

from __future__ import annotations

import pytest

from draws import together
from meshwright.documents.launch import parse_launch
from meshwright.frameworks import File, framework

SCRIPTS = {
    "torchrun nodes": "torchrun --nnodes={} --nproc_per_node=8 train.py --x 1",
    "torchrun devices": "torchrun --nnodes 2 --nproc-per-node {} train.py --x 1",
    "ms-swift nodes": "NNODES={} NPROC_PER_NODE=8 megatron pt --max_length 4096",
    "ms-swift devices": "export NPROC_PER_NODE={} NNODES=2\nmegatron sft --max_length 4096",
    "llama-factory": "NNODES={} NPROC_PER_NODE=8 llamafactory-cli train a.yaml",
    "deepspeed": "deepspeed --num_nodes {} --num_gpus 8 train.py --x 1",
    "accelerate": "accelerate launch --num_machines 2 --num_processes {} train.py --x 1",
    "msrun": "msrun --worker_num={} --local_worker_num=8 run.py --x 1",
    "slurm": "#SBATCH --nodes={}\nsrun python pretrain_gpt.py --micro-batch-size 1",
}
BEYOND = ("99999999", "1" + "0" * 30)
WRONG = ("0", "-3", "8.0", "1e3", "NaN", "two", *BEYOND)
RIGHT = ("1", "4", "9999999", "2:2")


def said(script, value):
    remarks = parse_launch(f"{SCRIPTS[script].format(value)}\n", path="run.sh").remarks
    return [str(each) for each in remarks if each.id == "launch.count"]


@together("case", [(name, value) for name in SCRIPTS for value in (BEYOND if name == "slurm" else WRONG)])
def test_a_count_that_is_none_is_said(case):
    name, value = case
    (line,) = said(name, value)
    assert line.startswith("run.sh:") and f" is {value}: a number of " in line and "from 1 to 9,999,999 is expected" in line


@together("case", [(name, value) for name in SCRIPTS for value in (*RIGHT, "auto", "<NODES>", "${NODES}", "$SLURM_NNODES", "...")])
def test_a_count_that_is_one_or_left_to_the_run_is_not(case):
    assert not said(*case)


@pytest.mark.parametrize("value", ["0", "99999999", "two"])
def test_variables_of_a_yaml_are_counts_as_well(value):
    """ms-swift's ``ENV`` section of a YAML."""
    text = f"ENV:\n  NNODES: {value}\n  NPROC_PER_NODE: 8\nmax_length: 4096\nmicro_batch_size: 1\n"
    files = [File(path="run.sh", text="megatron pt run.yaml\n"), File(path="run.yaml", text=text)]
    (message,) = [each for each in framework("ms-swift-megatron").read(files).source.remarks if each.id == "launch.count"]
    assert f"NNODES is {value}: a number of nodes from 1" in str(message) and message.path == "run.yaml:2"
