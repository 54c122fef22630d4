"""One device: the distributed optimizer shards nothing there, and optimizers that are only there with it run all the same."""

import pytest

import meshwright as mw
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.frameworks import framework
from meshwright.testing.promises import read_back


@pytest.mark.parametrize("words", ["megatron@0.16", "bridge@0.3", "bridge@main"])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-bf16-moments"])
def test_an_optimizer_with_states_of_its_own_types_is_a_plan_for_one_device(words, optimizer):
    case = make_case("llama3.2-1b", cluster_for("h100-sxm", num_devices=1), global_batch_sequences=8, sequence_tokens=1024,
                     framework=words, optimizer=optimizer)
    runner, layout = framework(words), Layout(num_microbatches=8)
    assert not runner.check(case, layout)
    files = runner.write(case, layout)
    reading = read_back(runner, case, files)
    assert (reading.said.optimizer, reading.layout.zero_stage, reading.messages) == (optimizer, 0, ())
    assert not [each for check in runner.checks for each in check.findings(reading, case) if each.severity == "error"]


@pytest.mark.parametrize("release", ["0.3", "main"])
def test_a_recipe_for_one_device_is_no_error(tmp_path, release):
    script = tmp_path / "run.sh"
    script.write_text("torchrun --nproc_per_node 1 scripts/training/run_recipe.py --recipe olmoe_7b_peft_config "
                      "checkpoint.pretrained_checkpoint=/x\n")
    found = mw.check(mw.CheckRequest(files=[str(script)], from_=f"bridge@{release}", device="h100-sxm", devices=1)).checked
    assert [each.message.id for each in found.findings if each.severity == "error"] == []
