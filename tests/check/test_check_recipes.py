"""What ``check`` says of files that start from a recipe: its model and its values are those of the run."""

import pytest

import meshwright as mw
from meshwright.api.fields import Faults
from meshwright.api.sources import take
from meshwright.catalog import load_model
from meshwright.check.context import Context, Question
from meshwright.check.figures import contradictions
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.settings import Given

SCRIPT = """from megatron.bridge.recipes.deepseek import deepseek_v3_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain
cfg = deepseek_v3_pretrain_config()
cfg.model.expert_model_parallel_size = 8
pretrain(cfg, forward_step)
"""
BRIDGE = framework("bridge")


@pytest.mark.usefixtures("alone", "unrivalled")
def test_a_recipe_names_its_model_and_its_layout_fits(tmp_path):
    script = tmp_path / "a.py"
    script.write_text(SCRIPT)
    found = mw.check(mw.CheckRequest(files=[str(script)], device="b300", nodes=32)).checked
    assert found.ok and not found.skipped and found.estimate.fits
    assert not [each for each in found.findings if each.severity == "warning"]


@pytest.mark.parametrize(("asked", "model", "contrary"), [
    ({}, "llama3-8b", "model"), ({"sequence_tokens": 8192}, "deepseek-v3", "tokens of a sequence"),
    ({"launch": "graphs=partial"}, "deepseek-v3", "graphs=none"), ({"launch": "dispatcher=flex deterministic=off"}, None, ""),
])
def test_flags_that_say_another_thing_than_the_recipe_contradict_it(asked, model, contrary):
    reading = BRIDGE.read([File(path="a.py", text=SCRIPT)], given=Given(num_devices=256))
    question = Question(framework=BRIDGE, reading=reading, asked=asked, model=load_model(model) if model else None)
    found = [each.message for each in contradictions(Context(question))]
    assert bool(found) == bool(contrary) and all(contrary in str(each) for each in found)


@pytest.mark.parametrize(("line", "layers", "lora"), [
    ("cfg.peft.dim = 64", 32, 64), ("cfg.model.num_layers = 8", 8, 8), ("cfg.model.hidden_size = 512", None, 8),
])
def test_files_that_cut_a_recipes_model_or_change_its_adapters_are_a_case_of_their_own(tmp_path, line, layers, lora):
    script = tmp_path / "a.py"
    script.write_text(f"from megatron.bridge.recipes import llama3_8b_peft_config\ncfg = llama3_8b_peft_config()\n{line}\n")
    taken = take({"files": [str(script)], "device": "h100-sxm", "nodes": 1, "from_": "bridge"}, Faults())
    assert (taken.model and taken.model.num_layers, taken.reading.said.lora.rank) == (layers, lora)
    assert taken.missing == (() if layers else ("model",)) and (taken.case is None or taken.case.case.training.lora.rank == lora)
