"""Files become a plan whose batch is theirs."""

import pytest

import meshwright as mw
from meshwright.api.launch_files import launch_files
from meshwright.errors import InputError
from meshwright.outputs import in_folder, write

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "sequence": 2048}


def test_a_plan_of_files_with_micro_batches_of_several_sequences(tmp_path):
    """Four replicas, three sequences at a time, five times: sixty."""
    answer = mw.estimate(mw.EstimateRequest(**CASE, global_batch=60, framework="megatron", layout="tp2 dp4 mb3 sp zero1"))
    write(in_folder(tmp_path / "out", launch_files(answer.given, answer.estimate.layout, answer.estimate)), force=False)
    files = [str(tmp_path / "out" / "train.sh")]
    saved = str(tmp_path / "plan.yaml")
    mw.import_(mw.ImportRequest(files=files, from_="megatron", **CASE, save=saved))
    found = mw.estimate(mw.EstimateRequest(request=saved))
    assert (found.estimate.label, found.estimate.step_s) == (answer.estimate.label, answer.estimate.step_s)
    with pytest.raises(InputError, match="the files train 60 sequences a step, --global-batch says 64"):
        mw.import_(mw.ImportRequest(files=files, from_="megatron", **CASE, global_batch=64, save=str(tmp_path / "other.yaml")))


def test_launch_settings_beside_files_leave_those_of_the_files(tmp_path):
    """The user says one setting more, and the files keep theirs; of one that both say the user's counts."""
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
        "--global-batch-size 64 --seq-length 4096 --bf16 --deterministic-mode\n", encoding="utf-8",
    )

    def launched(words):
        asked = mw.ImportRequest(files=[script], from_="megatron", model="llama3-8b", device="h100-sxm", launch=words)
        case = mw.import_(asked).taken.case.case
        return case.launch.deterministic, case.launch.plain_host

    assert launched(None) == (True, False)
    assert launched("host=plain") == (True, True)
    assert launched("host=plain deterministic=off") == (False, True)


def test_adapters_of_files_are_those_of_a_plan_or_no_plan_is_saved(tmp_path):
    """A plan has one kind of adapters; YAML had no word for those that files say, and a traceback came of it."""
    script = tmp_path / "train.py"
    recipe = (
        "from megatron.bridge.recipes.llama import llama3_8b_peft_config\nfrom megatron.bridge.training.finetune import finetune\n"
        "from megatron.bridge.training.gpt_step import forward_step\n\ncfg = llama3_8b_peft_config()\ncfg.peft.dim = {rank}\n"
        "finetune(config=cfg, forward_step_func=forward_step)\n"
    )

    def saved(rank, name, task=None):
        script.write_text(recipe.format(rank=rank), encoding="utf-8")
        asked = mw.ImportRequest(files=[script], from_="bridge", device="h100-sxm", nodes=1, task=task, save=str(tmp_path / name))
        return mw.import_(asked).taken.case.case.training.lora

    assert saved(16, "plan.yaml").rank == 16
    assert saved(32, "whole.yaml", task="sft") is None, "nobody asks for adapters"
    assert mw.estimate(mw.EstimateRequest(request=str(tmp_path / "plan.yaml"))).estimate.step_s > 0
    with pytest.raises(InputError, match=r"a plan has adapters of rank 16 on .*, not of rank 32 on"):
        saved(32, "other.yaml")
    assert not (tmp_path / "other.yaml").exists()
