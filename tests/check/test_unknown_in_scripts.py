"""Names that a framework does not know, in scripts whose words are its settings whatever stands before them."""

import pytest

import meshwright as mw

SCRIPTS = {
    "ms-swift-megatron": "NPROC_PER_NODE=8 megatron sft --model m --dataset d --max_length 4096 --micro_batch_sise 2\n",
    "llama-factory-hf": "llamafactory-cli train --stage sft --model_name_or_path m --dataset d --cutoff_lenn 4096\n",
    "verl-megatron": "python3 -m verl.trainer.main_ppo model_engine=megatron actor_rollout_ref.actor.ppo_mini_batch_sise=8\n",
    "slime": "ray job submit -- python3 train.py --rollout-batch-size 8 --micro-batch-sise 2 --sglang-any 1\n",
    "megatron": "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --micro-batch-sise 2\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_misspelt_setting_of_a_script_is_an_error_with_what_was_meant(name, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(SCRIPTS[name])
    found = mw.check(mw.CheckRequest(files=[str(script)], from_=name)).checked.findings
    (unknown,) = [each for each in found if each.message.id == f"{name}.unknown-key"]
    assert unknown.severity == "error"
    assert "did you mean" in str(unknown.message)
