"""Megatron-Bridge's recipes: their values stand beneath what a user's files set, and above the defaults of the dataclasses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import lcm

import pytest
from test_bridge_adapter import case_of, found, layout_of

from meshwright.catalog import load_model
from meshwright.domain.label import label
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.domain.training import Lora
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.bridge import surface
from meshwright.frameworks.bridge.recipe_values import PACKS, layouts, names_with_values, recipe_values
from meshwright.frameworks.bridge.recipes import exists, recipes
from meshwright.frameworks.editing import edit
from meshwright.frameworks.megatron.stages import unrolled
from meshwright.frameworks.settings import Given
from meshwright.frameworks.surface import typed
from meshwright.testing.promises import read_back

BRIDGE = framework("bridge")
SETTER = "set_deepseek_v3_pipeline_model_parallel_layout"
NAMED = [(release, name, model) for release in BRIDGE.releases for model, recipe in recipes(release).items()
         for name in (recipe.function(task) for task in sorted(recipe.tasks))]
"""Every recipe of a model of the catalogue: release, function, model."""
REFUSED = {
    "glm45_355b_peft_config": "moe-sequence-parallel", "glm45_355b_sft_config": "moe-sequence-parallel",
    "glm45_air_106b_pretrain_config": "sequence-parallel-alone", "nemotron_3_super_peft_config": "sequence-parallel-alone",
    "nemotron_3_ultra_pretrain_config": "sequence-parallel-alone",
}
"""Recipes that set what Megatron-Core refuses of anybody: sequence parallelism alone, or tensor-parallel experts without it."""


def script(recipe, *lines, start="pretrain(cfg, forward_step)", imports=""):
    """A user's program: a recipe, a few fields, and Bridge's entry point."""
    body = "\n".join((f"cfg = {recipe}()", *lines, start))
    heads = f"from megatron.bridge.recipes import {recipe}\nfrom megatron.bridge.training.pretrain import pretrain\n{imports}\n"
    return File(path="train.py", text=f"{heads}{body}\n")


def launch(words):
    return File(path="run.sh", text=f"torchrun --nproc-per-node 8 scripts/training/run_recipe.py {words}\n")


def read(*files, devices, version="0.3", model=None):
    return BRIDGE.read(files, version=version, given=Given(num_devices=devices, model=load_model(model) if model else None))


def least(values):
    """Devices of one replica, experts included."""
    tp, pp, cp, ep = (values.get(f"model.{name}_parallel_size", 1) for name in (
        "tensor_model", "pipeline_model", "context", "expert_model"))
    return lcm(tp * pp * cp, pp * ep * values.get("model.expert_tensor_parallel_size", 1))


# The table.


@cache
def all_values():
    return [recipe_values(name, release) for release in BRIDGE.releases for name in sorted(names_with_values(release))]


def test_every_recipe_of_a_model_of_the_catalogue_has_its_values_and_its_model():
    told = {(release, name): recipe_values(name, release) for release, name, _ in NAMED}
    assert {key: each and each.model for key, each in told.items()} == {(release, name): model for release, name, model in NAMED}
    assert all(load_model(each.model) for each in all_values() if each.model)


def test_every_value_is_one_of_its_field_at_its_release():
    for each in all_values():
        for key, value in each.values.items():
            known = surface().find(key, each.release)
            if key == "model.freeze_vision_model":
                continue  # of providers with a tower alone
            assert known is not None, (each.name, key)
            typed(known, value, strict=True)


def test_a_layout_of_a_recipe_or_of_a_function_has_a_place_for_every_chunk():
    for each in all_values():
        values = each.values
        if cells := values.get("model.pipeline_model_parallel_layout"):
            pp, chunks = values["model.pipeline_model_parallel_size"], values.get("model.virtual_pipeline_model_parallel_size", 1)
            assert len(unrolled(cells)) == pp * chunks, each.name
    for release in BRIDGE.releases:
        for name, each in layouts(release).items():
            assert all(cells is None or len(unrolled(cells)) == pp * vp for (pp, vp), cells in each.known.items()), name
            assert name.startswith("set_") or any(other.startswith(f"{name}_") for other in names_with_values("main"))


def test_packs_are_as_the_table_of_recipes_says():
    for release, name, model in NAMED:
        if "_pretrain_" not in name:
            packed = f"{PACKS[release]}.packed_sequence_size" in recipe_values(name, release).values
            assert packed == recipes(release)[model].packs, (release, name)


@pytest.mark.parametrize(("release", "name", "model"), [each for number, each in enumerate(NAMED) if number % 4 == 0])
def test_a_bare_recipe_is_a_model_and_a_layout_that_bridge_runs(release, name, model):
    values = recipe_values(name, release).values
    reading = read(script(name), devices=2 * least(values), version=release, model=model)
    said, messages = reading.said, (*reading.messages, *reading.source.remarks)
    assert reading.layout is not None and not messages, messages
    assert (said.model, said.global_batch_sequences) == (model, values["train.global_batch_size"])
    case = case_of(model, devices=reading.layout.world, batch=said.global_batch_sequences, sequence=said.sequence_tokens or 4096,
                   task=said.task)
    broken = {message.id.removeprefix("bridge.") for message in BRIDGE.at(release).check(case, reading.layout)}
    assert broken - {"expert-grid"} == ({REFUSED[name]} if name in REFUSED else set())
    assert found(reading) <= {"bridge.peft-checkpoint", "bridge.sequence-length"}


@pytest.mark.parametrize(("release", "model", "task"), [
    ("0.3", "deepseek-v3", "pretrain"), ("main", "deepseek-v3", "pretrain"), ("0.3", "llama3-70b", "pretrain"),
    ("main", "llama3-8b", "lora"), ("0.3", "gemma2-9b", "sft"), ("main", "nemotron-3-nano-30b-a3b", "sft"),
    ("main", "kimi-k2", "pretrain"),
])
def test_a_plan_is_read_back_over_whatever_its_recipe_sets(release, model, task):
    case = case_of(model, task=task, batch=256)
    for layout in (layout_of(case), layout_of(case, pipeline_parallel=2)):
        if BRIDGE.at(release).check(case, layout):
            continue
        reading = read_back(BRIDGE.at(release), case, BRIDGE.at(release).write(case, layout))
        said = reading.said
        assert reading.layout == BRIDGE.normal(case, layout)
        assert (said.precision, said.optimizer, said.sequence_tokens, said.task) == ("bf16", "adamw", 4096, task)
        assert said.gradient_dtype in (None, "fp32")


# Files upon a recipe.

DEEPSEEK = "deepseek_v3_pretrain_config"
STAGES = "tp2 pp16 ep8 dp8 mb1 sp zero1 recompute=selective:core_attn layers=[4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1]"


def test_an_ordinary_script_is_what_its_recipe_makes_of_it():
    reading = read(
        script(DEEPSEEK, "cfg.model.pipeline_model_parallel_size = 16", "cfg.model.expert_model_parallel_size = 8",
               "cfg.train.global_batch_size = 2048"), devices=256)
    said = reading.said
    assert (label(reading.layout), reading.messages, reading.source.remarks) == (STAGES, (), ())
    assert (said.model, said.sequence_tokens, said.global_batch_sequences, said.precision) == ("deepseek-v3", 4096, 2048, "bf16")
    assert (said.optimizer, said.gradient_dtype, said.task) == ("adamw-bf16-moments", "bf16", "pretrain")
    assert said.launch == "graphs=none host=bound routing=natural dispatcher=flex"
    assert reading.source.setting("model.seq_length").place == "recipe deepseek_v3_pretrain_config of 0.3"


@pytest.mark.parametrize("start", ["pretrain(cfg, forward_step)", "pretrain(config=cfg, forward_step_func=forward_step)"])
def test_bridges_own_entry_point_changes_nothing(start):
    assert not read(script(DEEPSEEK, start=start), devices=1024).source.remarks


def test_a_function_of_the_users_own_may_change_a_configuration():
    remarks = read(script(DEEPSEEK, "tweaked(cfg)"), devices=1024).source.remarks
    assert [remark.id for remark in remarks] == ["python.handed"]


@pytest.mark.parametrize("line", ["cfg.model.tensor_model_parallel_size = 1", "cfg.model.seq_length = 2048"])
def test_a_file_wins_over_the_recipe_and_the_recipe_over_the_default(line):
    bare, own = read(script(DEEPSEEK), devices=1024), read(script(DEEPSEEK, line), devices=1024)
    key, said = line.removeprefix("cfg.").split(" = ")
    assert (own.source.value(key), bare.source.value(key)) == (int(said), recipe_values(DEEPSEEK, "0.3").values[key])
    assert surface().find(key, "0.3").default != str(bare.source.value(key)) != said


def test_null_takes_out_what_the_recipe_sets():
    lines = ("cfg.model.recompute_granularity = None", "cfg.comm_overlap = None")
    reading = read(script("llama3_70b_pretrain_config", "cfg.comm_overlap = None"), devices=64)
    assert not reading.layout.overlap.tensor and read(script("llama3_70b_pretrain_config"), devices=64).layout.overlap.tensor
    assert isinstance(read(script(DEEPSEEK, *lines), devices=1024).layout.recompute, NoRecompute)


def test_a_section_that_is_set_anew_has_nothing_of_the_recipe():
    reading = read(script(DEEPSEEK, "cfg.model = GPTModelProvider(num_layers=8, seq_length=1024)"), devices=1024)
    assert (reading.said.model, reading.said.sequence_tokens, label(reading.layout)) == (None, 1024, "tp1 pp1 dp1024 mb1 zero1")
    wrapped = read(script(DEEPSEEK, "cfg.model = wrapped(cfg.model)"), devices=1024)
    assert wrapped.said.model == "deepseek-v3"


@pytest.mark.parametrize("recipe", ["my_pretrain_config", "qwen9_8b_pretrain_config"])
def test_a_recipe_that_is_not_known_decides_and_is_said_to(recipe):
    reading = read(script(recipe, "cfg.model.tensor_model_parallel_size = 2", "cfg.train.global_batch_size = 64"), devices=16)
    assert [message.id for message in reading.messages] == ["bridge.recipe"] and reading.said.model is None


def test_a_recipe_imported_under_another_name_or_from_its_module_is_known():
    text = ("from megatron.bridge.recipes.qwen.qwen3 import qwen3_8b_pretrain_config as base\nimport megatron.bridge.recipes as r\n"
            "teacher_cfg = r.qwen3_32b_pretrain_config()\ncfg = {}()\ncfg.train.global_batch_size = 64\n")
    for call, model in (("base", "qwen3-8b"), ("r.qwen3_14b_pretrain_config", "qwen3-14b")):
        assert read(File(path="a.py", text=text.format(call)), devices=8).said.model == model


def test_words_of_a_command_line_stand_upon_their_recipe():
    words = "--recipe llama3_70b_pretrain_config model.context_parallel_size=1 train.global_batch_size=64"
    reading = read(launch(words), devices=64)
    assert label(reading.layout) == "tp4 pp4 vp5 dp4 mb1 sp zero1 overlap=grad,param,tp,p2p"
    assert reading.said.model == "llama3-70b" and not reading.messages
    reading = read(launch("--model llama3_8b --mode lora checkpoint.pretrained_checkpoint=x"), devices=8, version="main")
    assert (reading.said.task, reading.said.lora) == ("lora", Lora(rank=8))


def test_names_that_run_recipe_finds_elsewhere_are_not_known():
    name = "llama3_70b_sft_32gpu_h100_bf16_config"
    assert "bridge.recipe" in {message.id for message in read(launch(f"--recipe {name}"), devices=32, version="main").messages}
    assert read(script(name), devices=32, version="main").said.model == "llama3-70b"


def test_the_length_that_run_recipe_of_main_gives_a_model_is_that_of_its_data():
    words = launch("--model llama3_8b --mode pretrain dataset.seq_length=2048")
    reading = read(words, devices=8, version="main")
    assert reading.said.sequence_tokens == 2048 and "bridge.sequence-length" not in found(reading)
    reading = read(script("llama3_8b_pretrain_config", "cfg.model.seq_length = 2048"), devices=8)
    assert "bridge.sequence-length" in found(reading)


# Pipeline layouts.


@pytest.mark.parametrize(("pp", "chunks"), [(12, None), (32, None)])
def test_stages_that_do_not_divide_the_recipes_layout_are_refused_in_megatrons_words(pp, chunks):
    reading = read(script(DEEPSEEK, f"cfg.model.pipeline_model_parallel_size = {pp}"), devices=64 * pp)
    message = reading.messages[0]
    assert reading.layout is None and message.path == "train.py:5"
    assert message.words.startswith("pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size "
                                    f"(len(layout)=16, pipeline_model_parallel_size={pp})")
    assert message.words.endswith("the layout is that of recipe deepseek_v3_pretrain_config of 0.3")


def test_stages_that_divide_it_make_chunks_unless_chunks_are_told():
    halved = "cfg.model.pipeline_model_parallel_size = 8"
    assert read(script(DEEPSEEK, halved), devices=1024).layout.virtual_stages == 2
    told = read(script(DEEPSEEK, halved, "cfg.model.virtual_pipeline_model_parallel_size = 4"), devices=1024)
    assert "bridge.layout-twice" in found(told)


@pytest.mark.parametrize(("release", "pp", "layers"), [("0.3", 8, 8), ("main", 4, 16)])
def test_a_script_that_sets_the_layout_again_has_that_of_its_stages(release, pp, layers):
    stages, again = f"cfg.model.pipeline_model_parallel_size = {pp}", f"{SETTER}(cfg.model)"
    imports = f"from megatron.bridge.recipes.deepseek.deepseek_v3 import {SETTER}"
    after = read(script(DEEPSEEK, stages, again, imports=imports), devices=1024, version=release)
    assert after.layout.stage_layers == ((*[layers] * (pp - 1), 61 - layers * (pp - 1)),) and not after.source.remarks
    before = read(script(DEEPSEEK, again, stages, imports=imports), devices=1024, version=release)
    assert before.layout.virtual_stages == 16 // pp, "the layout of sixteen stages stands"
    own = read(script(DEEPSEEK, f'{SETTER}(cfg.model, "Et*30|t*31mL")', "cfg.model.pipeline_model_parallel_size = 2",
                      imports=imports), devices=1024, version=release)
    assert own.layout.stage_layers == ((30, 31),)


def test_run_recipe_of_main_makes_the_layout_of_the_stages_that_words_say():
    words = "--model deepseek_v3 --mode pretrain model.pipeline_model_parallel_size={}"
    assert read(launch(words.format(8)), devices=1024, version="main").layout.stage_layers == ((8, 8, 8, 8, 8, 8, 8, 5),)
    reading = read(launch(words.format(32)), devices=1024, version="main")
    assert reading.layout is None and "Invalid PP and VP size: 32 and 1" in str(reading.messages[0])
    assert read(launch("--recipe deepseek_v3_pretrain_config model.pipeline_model_parallel_size=8"), devices=1024,
                version="0.3").layout.virtual_stages == 2


# What else asks for values.


def test_what_a_recipe_leaves_to_its_user_is_found_beneath_his_files():
    sft = script("llama3_8b_sft_config", "cfg.model.context_parallel_size = 2", "cfg.train.micro_batch_size = 2")
    assert {"bridge.per-token-loss", "bridge.packed-microbatch"} <= found(read(sft, devices=8))
    assert "bridge.peft-checkpoint" in found(read(script("llama3_8b_peft_config"), devices=8))
    one = read(script("llama3_70b_pretrain_config", "cfg.model.pipeline_model_parallel_size = 1"), devices=64)
    assert "bridge.virtual-alone" in found(one)


def test_an_edit_writes_out_what_the_recipe_would_bring_back():
    reading = read(script(DEEPSEEK, "cfg.train.global_batch_size = 4096"), devices=1024)
    case = case_of("deepseek-v3", devices=1024, batch=4096)
    other = replace(reading.layout, recompute=NoRecompute(), tensor_parallel=1, sequence_parallel=False, data_parallel=64,
                    optimizer_shards=64, num_microbatches=64)
    edited = edit(BRIDGE, reading, case, other)
    assert "cfg.model.recompute_granularity = None" in edited.files[0].text and not edited.messages
    full = edit(BRIDGE, reading, case, replace(reading.layout, recompute=Full()))
    again = read(*full.files, devices=1024)
    assert again.layout.recompute == Full() and not isinstance(reading.layout.recompute, Full)
    words = read(launch(f"--recipe {DEEPSEEK} train.global_batch_size=4096"), devices=1024)
    assert isinstance(words.layout.recompute, Selective)
    assert "model.recompute_granularity=null" in edit(BRIDGE, words, case, other).files[0].text


def test_every_name_of_the_table_is_one_that_a_script_can_import():
    assert exists("deepseek_v3_pretrain_config_32nodes", "0.3")
    assert all(exists(name, "main") or not name.endswith("gpu_h100_bf16_config") for name in names_with_values("main"))
    on_gpus = script("llama3_8b_pretrain_2gpu_h100_bf16_config")
    assert BRIDGE.read([on_gpus]).version == "main" and "bridge.recipe" in found(read(on_gpus, devices=8))
    assert not found(read(script("gpt3_175b_pretrain_config"), devices=32)) & {"bridge.recipe"}


@pytest.mark.parametrize(("told", "said"), [("5", True), ('["*.layers.0.*.linear_qkv"]', True), ('["linear_qkv"]', False)])
def test_adapters_on_no_module_that_is_known_are_said(told, said):
    text = (
        "from megatron.bridge.recipes.llama import llama3_8b_peft_config\nfrom megatron.bridge.training.finetune import finetune\n"
        f"cfg = llama3_8b_peft_config()\ncfg.peft.target_modules = {told}\nfinetune(config=cfg)\n"
    )
    reading = BRIDGE.read([File(path="train.py", text=text)], given=Given(num_devices=8))
    assert any(each.id == "import.adapters" for each in reading.messages) is said
