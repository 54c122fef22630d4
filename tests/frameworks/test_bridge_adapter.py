"""Megatron-Bridge: real recipes are read, mistakes are found, and the table of fields is that of its dataclasses."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from bridge_fields import configuration

from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout, Overlap, Selective
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.bridge import surface
from meshwright.frameworks.bridge.limits import OWN, PRECISIONS, limits_of
from meshwright.frameworks.bridge.recipes import recipe_of
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given

BRIDGE = framework("bridge")
SOURCE, CORE = os.environ.get("MESHWRIGHT_BRIDGE_SOURCE", ""), os.environ.get("MESHWRIGHT_MEGATRON_SOURCE", "")


def case_of(model="qwen3-30b-a3b", devices=64, batch=512, sequence=4096, **training):
    cluster = cluster_for("h100-sxm", num_devices=devices)
    return make_case(model, cluster, global_batch_sequences=batch, sequence_tokens=sequence, framework="bridge", calibration="none",
                     **training)


def layout_of(case, **knobs):
    plain = Layout(**knobs)
    dp = case.cluster.num_devices // (plain.tensor_parallel * plain.context_parallel * plain.pipeline_parallel)
    return Layout(**({
        "data_parallel": dp, "optimizer_shards": dp * plain.context_parallel,
        "num_microbatches": case.batch.global_batch_sequences // (dp * plain.microbatch_sequences),
        "schedule": "interleaved" if plain.virtual_stages > 1 else "1f1b",
    } | knobs))


def python(values, root="cfg"):
    """A recipe as Bridge's own are written."""
    lines = "\n".join(f"    {root}.{key} = {value!r}" for key, value in values.items())
    return File(path="recipe.py", text=f"def some_config():\n    {root} = _common()\n{lines}\n    return {root}\n")


def words(values, recipe="llama3_70b_pretrain_config"):
    """The same as overrides on a command line."""
    text = " ".join(shlex.quote(f"{key}={'null' if value is None else value}") for key, value in values.items())
    return File(
        path="run.sh",
        text=f"torchrun --nproc-per-node 8 scripts/training/run_recipe.py --recipe {recipe} {text}\n",
    )


def document(values):
    """The same as YAML."""
    nested = {}
    for key, value in values.items():
        section, name = key.split(".", 1)
        nested.setdefault(section, {})[name] = value
    return File(path="override.yaml", text=yaml.safe_dump(nested))


def read(*files, devices=None, model=None, batch=None, version=None):
    given = Given(num_devices=devices, model=load_model(model) if model else None, global_batch_sequences=batch)
    return BRIDGE.read(files, given=given, version=version)


def found(reading):
    return {finding.message.id for check in BRIDGE.checks for finding in check.findings(reading, None)}


# Facts of Bridge's own recipes: what they set, and what that is on so many GPUs.

DDP = {"ddp.overlap_grad_reduce": True, "ddp.overlap_param_gather": True, "ddp.use_distributed_optimizer": True,
       "ddp.use_megatron_fsdp": False, "ddp.data_parallel_sharding_strategy": "no_shard"}


def recipe(tp, pp, cp, *, ep=1, batch=None, sequence=4096, **more):
    """What a recipe sets, by the fields that matter."""
    degrees = {"model.tensor_model_parallel_size": tp, "model.pipeline_model_parallel_size": pp, "model.context_parallel_size": cp,
               "model.expert_model_parallel_size": ep, "model.expert_tensor_parallel_size": 1, "model.sequence_parallel": tp > 1,
               "model.seq_length": sequence, "train.micro_batch_size": 1, "train.global_batch_size": batch}
    return degrees | DDP | {f"model.{name}": value for name, value in more.items()}


ENDS = {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
TP_OVERLAP = {"comm_overlap.tp_comm_overlap": True}
RECIPES = {
    "llama3_70b 0.3": (64, "llama3-70b", recipe(4, 4, 2, batch=512, sequence=8192,
        virtual_pipeline_model_parallel_size=5) | TP_OVERLAP,
                       "tp4 cp2 pp4 vp5 dp2 mb1 sp zero1 overlap=grad,param,tp,p2p"),
    "llama3_8b_128k 0.3": (64, None, recipe(4, 2, 8, batch=512, sequence=131072), "tp4 cp8 pp2 dp1 mb1 sp zero1"),
    "gpt_oss_120b 0.3": (64, None, recipe(2, 4, 1, ep=16, batch=512), "tp2 pp4 ep16 dp8 mb1 sp zero1"),
    "glm45_355b 0.3": (128, None, recipe(2, 8, 1, ep=16, batch=2048, recompute_granularity="selective"),
                       "tp2 pp8 ep16 dp8 mb1 sp zero1 recompute=selective:core_attn"),
    "llama31_405b 0.3": (512, "llama3.1-405b", recipe(8, 8, 4, batch=512, sequence=131072,
        virtual_pipeline_model_parallel_size=2, **ENDS)
                         | TP_OVERLAP, "tp8 cp4 pp8 vp2 dp2 mb1 sp zero1 layers=[7,8,8,8,8,8,8,8;8,8,8,8,8,8,8,7] "
                         "overlap=grad,param,tp,p2p"),
    "qwen3_235b main": (256, "qwen3-235b-a22b", recipe(4, 16, 2, ep=8, batch=1024, **ENDS),
                        "tp4 cp2 pp16 ep8 dp2 mb1 sp zero1 layers=[5,6,6,6,6,6,6,6,6,6,6,6,6,6,6,5]"),
    "qwen3_30b main": (16, "qwen3-30b-a3b", recipe(1, 1, 1, ep=16, batch=1024) | TP_OVERLAP, "tp1 pp1 ep16 dp16 mb1 zero1"),
    "llama3_70b main": (32, "llama3-70b", recipe(4, 4, 2, batch=512, sequence=8192,
        virtual_pipeline_model_parallel_size=5) | TP_OVERLAP,
                        "tp4 cp2 pp4 vp5 dp1 mb1 sp zero1 overlap=grad,param,tp,p2p"),
}


@pytest.mark.parametrize("form", [python, partial(words, recipe="own_pretrain_config"), document])
@pytest.mark.parametrize("name", RECIPES)
def test_a_real_recipe_is_read_in_all_three_forms(name, form):
    devices, model, values, expected = RECIPES[name]
    reading = read(form(values), devices=devices, model=model)
    assert reading.layout is not None, reading.messages
    assert label(reading.layout) == expected
    assert reading.said.sequence_tokens == values["model.seq_length"]


def test_the_command_line_wins_over_yaml_and_yaml_over_the_recipe():
    values = RECIPES["llama3_70b 0.3"][2]
    files = (words({"model.tensor_model_parallel_size": 8}), document({"model.tensor_model_parallel_size": 2,
    "train.global_batch_size": 64}),
             python(values))
    reading = read(*files, devices=64, model="llama3-70b")
    assert (reading.layout.tensor_parallel, reading.said.global_batch_sequences) == (8, 64)
    assert read(*reversed(files), devices=64, model="llama3-70b").layout == reading.layout


def test_short_flags_of_its_script_are_fields():
    script = File(
        path="run.sh",
        text="torchrun --nproc-per-node 8 run_recipe.py --model llama3_8b --mode pretrain -tp 4 -pp 1 -cp 1 -gb 64 -mb 2\n",
    )
    reading = read(script, devices=8)
    assert label(reading.layout).startswith("tp4 pp1 dp2 mb2")
    assert reading.said.task == "pretrain"


@pytest.mark.parametrize("told", [{}, {"model.tensor_model_parallel_size": 4}])
def test_what_a_recipe_leaves_open_is_said(told):
    reading = read(document({"train.global_batch_size": 8, "train.micro_batch_size": 1} | told), devices=8)
    assert "bridge.recipe" in {message.id for message in reading.messages}
    assert (reading.layout is not None) == bool(told), "a layout is not made of nothing"


def test_a_layout_of_lists_is_read():
    cells = [["embedding"] + ["decoder"] * 3, ["decoder"] * 5, ["decoder"] * 5, ["decoder"] * 3 + ["loss"]]
    values = recipe(1, 2, 1, batch=64) | {"model.pipeline_model_parallel_layout": cells}
    layout = read(python(values), devices=8).layout
    assert (layout.virtual_stages, layout.stage_layers) == (2, ((3, 5), (5, 3)))


@pytest.mark.parametrize(("fields", "launch"), [
    ({}, None),
    ({"model.cuda_graph_impl": "none", "model.deterministic_mode": True}, "graphs=none deterministic=on"),
    ({"model.cuda_graph_impl": "transformer_engine", "model.cuda_graph_scope": ["attn"]}, "graphs=partial"),
    ({"model.cuda_graph_impl": "local", "model.cuda_graph_scope": ["full_iteration"], "train.manual_gc": True},
     "graphs=step host=bound"),
    ({"model.moe_router_force_load_balancing": False, "model.moe_token_dispatcher_type": "flex"},
     "routing=natural dispatcher=flex"),
])
def test_how_a_recipe_is_launched_is_read(fields, launch):
    assert read(python(recipe(1, 1, 1, batch=64) | fields), devices=8).said.launch == launch


@pytest.mark.parametrize("version", BRIDGE.releases)
def test_a_recipe_is_edited_in_place(version):
    values = RECIPES["llama3_70b 0.3"][2]
    reading = read(python(values), devices=64, model="llama3-70b", version=version)
    case = case_of("llama3-70b", batch=512, sequence=8192)
    other = replace(
        reading.layout, tensor_parallel=8, data_parallel=1, optimizer_shards=2, num_microbatches=512, recompute=Selective()
    )
    edited = edit(BRIDGE, reading, case, other)
    changed = [line[1:].strip() for line in edited.diff.splitlines() if line.startswith("+ ")]
    assert sorted(changed) == [
        "cfg.model.recompute_granularity = 'selective'", "cfg.model.recompute_modules = ['core_attn']",
        "cfg.model.tensor_model_parallel_size = 8",
    ]
    again = read(*edited.files, devices=64, model="llama3-70b", version=version)
    assert again.layout == other


@pytest.mark.parametrize(
    ("key", "release"), [("train.micro_batch_size", "0.3"), ("validation.eval_iters", "main"), ("train.eval_iters", "0.3")]
)
def test_the_release_is_told_by_the_fields(key, release):
    assert read(python(RECIPES["llama3_70b 0.3"][2] | {key: 3}), devices=64).version == release


def test_an_override_is_set_back_and_not_taken_out():
    reading = read(words(RECIPES["llama3_70b 0.3"][2]), devices=64, model="llama3-70b")
    case = case_of("llama3-70b", batch=512, sequence=8192)
    edited = edit(BRIDGE, reading, case, replace(reading.layout, virtual_stages=1, schedule="1f1b"))
    assert "model.virtual_pipeline_model_parallel_size=null" in edited.files[0].text


# Limits.

BASE = {"tensor_parallel": 4, "sequence_parallel": True, "pipeline_parallel": 2, "expert_parallel": 8}
BROKEN = {
    "sequence-parallel-alone": {"tensor_parallel": 1}, "parameter-overlap": {"overlap": Overlap(gradient_reduce=False)},
    "fsdp-pipeline": {"parameter_shards": 8, "gradient_shards": 8},
    "interleaved-batch": {"virtual_stages": 2, "num_microbatches": 63}, "expert-count": {"expert_parallel": 3},
    "tensor-overlap": {"sequence_parallel": False, "overlap": Overlap(tensor=True)},
    "microbatches": {"num_microbatches": 3},
}


def refused(case, layout, release="0.3"):
    return {limit.id.removeprefix("bridge.") for limit in limits_of(release) if limit.check(case, layout)}


@pytest.mark.parametrize("release", BRIDGE.releases)
def test_the_base_of_the_next_tests_is_legal(release):
    assert not refused(case_of(), layout_of(case_of(), **BASE), release)
    assert len({limit.id for limit in limits_of(release)}) == len(limits_of(release))


@pytest.mark.parametrize("id", BROKEN)
def test_a_rule_fires(id):
    assert id in refused(case_of(), layout_of(case_of(), **(BASE | BROKEN[id])))


@pytest.mark.parametrize(
    ("id", "case", "knobs"),
    [
        ("world", case_of(devices=48), {"tensor_parallel": 32, "data_parallel": 1}),
        ("context-sequence", case_of(sequence=4098), {"context_parallel": 4}),
        ("packed-microbatch", case_of(task="sft"), {"microbatch_sequences": 2}),
        ("precision", case_of(precision="fp8-torchao"), {}),
        ("device", replace(case_of(), cluster=cluster_for("ascend-910b", num_devices=64)), {}),
    ],
)
def test_a_rule_of_the_case_fires(id, case, knobs):
    assert id in refused(case, layout_of(case, **knobs))


def test_every_rule_of_its_own_is_tested():
    tested = {*BROKEN, "world", "context-sequence", "precision", "device", "packed-microbatch",
              "model", "own-stages", "hybrid-virtual", "packed-delta",  # those of hybrids and of packs: test_hybrids.py
              "tower"}  # test_bridge_towers.py
    assert {rule.name for rule in OWN} <= tested


@pytest.mark.parametrize("name", PRECISIONS)
def test_precisions_are_written_and_read(name):
    device = "b200" if name in {"fp8-mx", "nvfp4"} else "h100-sxm"
    cluster = cluster_for(device, num_devices=8)
    case = make_case("llama3-8b", cluster, global_batch_sequences=64, sequence_tokens=4096, framework="bridge", calibration="none",
                     precision=name)
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True, recompute=Full())
    reading = read(*[file for file in BRIDGE.write(case, layout) if not file.path.endswith(".md")], devices=8)
    assert reading.said.precision == name


# Checks of files.

CLEAN = recipe(4, 2, 1, batch=64) | {"dataset.seq_length": 4096}
MISTAKES = {
    "parameter-overlap-key": {"ddp.overlap_grad_reduce": False}, "sequence-length": {"dataset.seq_length": 4090},
    "sequence-parallel-key": {"model.tensor_model_parallel_size": 1},
    "expert-tensor-parallel": {"model.expert_model_parallel_size": 4, "model.expert_tensor_parallel_size": None},
    "pipeline-dtype": {"model.pipeline_dtype": None},
    "virtual-alone": {"model.pipeline_model_parallel_size": 1, "model.virtual_pipeline_model_parallel_size": 2},
    "layout-twice": {"model.pipeline_model_parallel_layout": "Ettt|ttttt|tttL|tt", "model.virtual_pipeline_model_parallel_size": 4},
    "fsdp-checkpoint": {"ddp.use_megatron_fsdp": True, "checkpoint.save": "x",
    "ddp.data_parallel_sharding_strategy": "optim_grads"},
    "fsdp-strategy": {"dist.use_megatron_fsdp": True},
    "two-fsdp": {"dist.use_megatron_fsdp": True, "dist.use_torch_fsdp2": True},
    "packed-microbatch": {"train.micro_batch_size": 2, "dataset.packed_sequence_specs.packed_sequence_size": 4096},
    "two-packings": {"dataset.enable_offline_packing": True, "dataset.enable_in_batch_packing": True},
    "attention-text": {"model.attention_backend": "flash"},
    "peft-checkpoint": {"peft.dim": 16},
    "layout-split": {"model.pipeline_model_parallel_layout": "Ett|tt|tt|tL", "model.account_for_loss_in_pipeline_split": True},
    "recompute-graphs": {"model.recompute_granularity": "full", "model.recompute_method": "uniform",
                         "model.cuda_graph_impl": "transformer_engine"},
    "recompute-method": {"model.recompute_granularity": "full"},
    "expert-overlap-alone": {"model.overlap_moe_expert_parallel_comm": True},
    "teacher": {"model.teacher.num_layers": 80}, "teacher-differs": {"model.teacher.tensor_model_parallel_size": 2},
    "teacher-chunks": {"model.teacher.num_layers": 80, "model.virtual_pipeline_model_parallel_size": 2},
    "precision-aware": {"optimizer.use_precision_aware_optimizer": True, "optimizer.use_distributed_optimizer": False,
                        "ddp.use_distributed_optimizer": False},
}
SFT = "--model qwen3_8b --mode sft"
WORDS = {
    "recipe": ("0.3", "--recipe gpt_oss_999b_pretrain_config", {}),
    "field": ("0.3", "--recipe llama3_70b_peft_config", {"peft.dim": 8, "checkpoint.pretrained_checkpoint": "x"}),
    "section": ("main", "--model llama3_70b --mode pretrain", {}),
    "weights": ("main", "--model llama3_70b --mode lora", {}),
    "per-token-loss": ("0.3", "--recipe qwen3_8b_sft_config", {"model.context_parallel_size": 2,
                                                               "model.calculate_per_token_loss": False}),
    "packed-microbatch": ("0.3", "--recipe qwen3_8b_sft_config", {"train.micro_batch_size": 2}),
}
"""Release, how the recipe is asked for, and words: what run_recipe refuses of a command line."""
TAKEN = (
    ("0.3", "--recipe llama3_70b_pretrain_config", {}), ("main", SFT, {}),
    ("main", SFT, {"model.context_parallel_size": 2, "model.calculate_per_token_loss": False}),
    ("0.3", "--recipe glm45_355b_sft_config", {"train.micro_batch_size": 2}),
    ("main", "--recipe llama3_8b_pretrain_2gpu_h100_bf16_config", {"model.tensor_model_parallel_size": None}),
)


def test_the_unmutated_recipe_is_clean():
    assert not found(read(python(CLEAN), devices=16))


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_is_found(id):
    assert f"bridge.{id}" in found(read(python(CLEAN | MISTAKES[id]), devices=16))


@pytest.mark.parametrize(
    ("value", "fsdp", "wrong"), [("1", False, False), ("8", False, True), ("1", True, True), ("8", True, False)]
)
def test_the_number_of_connections(value, fsdp, wrong):
    values = CLEAN | ({"ddp.use_megatron_fsdp": True, "ddp.data_parallel_sharding_strategy": "optim_grads_params"} if fsdp else {})
    script = words(values)
    reading = read(File(path="run.sh", text=f"export CUDA_DEVICE_MAX_CONNECTIONS={value}\n{script.text}"), devices=16)
    assert ("bridge.connections" in found(reading)) == wrong


def test_every_check_is_tested():
    assert {check.id for check in BRIDGE.checks} == {f"bridge.{id}" for id in (*MISTAKES, *WORDS, "connections")}


def asked(recipe, values):
    """A launch of run_recipe with another recipe."""
    script = words(CLEAN | {"model.seq_length": 4096} | values)
    return File(path="run.sh", text=script.text.replace("--recipe llama3_70b_pretrain_config", recipe).replace(
        "model.tensor_model_parallel_size=null ", ""))


@pytest.mark.parametrize("id", WORDS)
def test_a_mistake_of_a_command_line_is_found(id):
    release, recipe, values = WORDS[id]
    assert f"bridge.{id}" in found(read(asked(recipe, values), devices=16, version=release))


@pytest.mark.parametrize(("release", "recipe", "values"), TAKEN)
def test_what_run_recipe_takes_is_no_mistake(release, recipe, values):
    ids = found(read(asked(recipe, values), devices=16, version=release))
    assert not ids & {f"bridge.{id}" for id in (*WORDS, *MISTAKES)} - {"bridge.section"}
    assert ("bridge.section" in ids) == ("llama3_8b" in recipe and release == "main")


@pytest.mark.parametrize(("release", "ranks"), [("0.3", 4), ("main", 1)])
def test_experts_are_cut_as_the_release_does_where_nothing_is_said(release, ranks):
    values = recipe(4, 1, 1, ep=4, batch=64) | {"model.expert_tensor_parallel_size": None}
    reading = read(python(values), devices=16, model="qwen3-30b-a3b", version=release)
    assert reading.layout.expert_tensor_parallel == ranks
    assert ("bridge.expert-tensor-parallel" in found(reading)) == (ranks > 1)


# What is written.


@pytest.mark.parametrize("release", BRIDGE.releases)
@pytest.mark.parametrize("task", ["pretrain", "sft", "lora"])
@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_files_start_a_recipe_that_exists_or_a_program_of_their_own(release, task, model):
    case = case_of(model, task=task)
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True, context_parallel=2)
    files = {file.path: file.text for file in BRIDGE.at(release).write(case, layout)}
    recipe = recipe_of(case, release)
    assert ("run_recipe.py" in files["launch.sh"]) == ("train.py" not in files)
    assert ("train.py" in files) == (recipe is None or task == "lora"), "no word reaches the rank of adapters"
    assert "peft.dim=" not in files["launch.sh"]
    assert ("config.peft.dim = 16" in files.get("train.py", "")) == (task == "lora")
    assert ('PRETRAINED_CHECKPOINT:?' in files["launch.sh"]) == (task != "pretrain")
    assert ("calculate_per_token_loss=True" in files["launch.sh"]) == (task != "pretrain")
    nested = release == "main" and model == "llama3-8b"
    assert ("model.transformer.tensor_model_parallel_size=2" in files["launch.sh"]) == nested
    assert "checkpoint.save=\"'$HERE/checkpoints'\"" in files["launch.sh"], "a folder for each plan"
    for word in ("cuda_graph_impl=none", "optimizer.use_precision_aware_optimizer=False", "comm_overlap=null",
                 "account_for_loss_in_pipeline_split=False"):
        assert word in files["launch.sh"], "what a recipe may have set is set back"


def test_a_model_that_is_not_the_catalogues_has_no_recipe():
    case = case_of("llama3-8b")
    other = replace(case, model=replace(case.model, pattern=case.model.pattern[:8]))
    assert recipe_of(case, "0.3") is not None and recipe_of(other, "0.3") is None
    program = next(file.text for file in BRIDGE.write(other, layout_of(other)) if file.path == "train.py")
    assert "num_layers=8" in program and "rotary_base=500000" in program


@pytest.mark.parametrize(("precision", "gradients", "own"), [("bf16", "fp32", False), ("bf16", "bf16", True)])
def test_gradients_are_reduced_in_the_planned_type(precision, gradients, own):
    case = case_of("llama3-8b", precision=precision, gradient_dtype=gradients)
    files = {file.path: file.text for file in BRIDGE.write(case, layout_of(case))}
    assert ("grad_reduce_in_fp32 = False" in files.get("train.py", "")) == own


def test_fields_of_main_are_edited_where_they_stand():
    case = case_of("llama3-8b", devices=16, batch=64)
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True)
    files = [file for file in BRIDGE.at("main").write(case, layout) if not file.path.endswith(".md")]
    reading = read(*files, devices=16, model="llama3-8b")
    assert (reading.version, reading.layout) == ("main", BRIDGE.normal(case, layout))
    other = replace(reading.layout, tensor_parallel=4, data_parallel=4, optimizer_shards=4, num_microbatches=16)
    edited = edit(BRIDGE, reading, case, other)
    assert "model.transformer.tensor_model_parallel_size=4" in edited.files[0].text
    assert "model.tensor_model_parallel_size" not in edited.files[0].text


def test_names_of_the_command_line_are_told_apart_from_fields():
    severity, words_ = BRIDGE.unknown_keys("model.decoder_first_pipeline_num_layers")
    assert severity == "error" and "num_layers_in_first_pipeline_stage" in words_
    assert BRIDGE.unknown_keys("model.hidden_sise")[0] == "warning"


# The table of fields.


@pytest.mark.oracle
@pytest.mark.skipif(not (SOURCE and CORE), reason="MESHWRIGHT_BRIDGE_SOURCE and MESHWRIGHT_MEGATRON_SOURCE name no checkouts")
def test_names_types_and_defaults_are_those_of_the_dataclasses():
    theirs = configuration(Path(SOURCE, "src", "megatron", "bridge"), Path(CORE, "megatron"))
    ours = {name: key for name, key in surface().at("main").items() if name.count(".") == 1}
    assert set(ours) == set(theirs)
    kinds = {"int": "int", "float": "float", "bool": "bool", "str": "str"}
    for name, (annotation, default) in theirs.items():
        plain = annotation.removeprefix("Optional[").removesuffix("]").removesuffix(" | None")
        if plain in kinds:
            assert ours[name].kind == kinds[plain], name
        if default and not default.startswith(("lambda", "field")):
            assert ours[name].default == default, name


# Models that it builds from the files of their class.

@pytest.mark.parametrize(("model", "release"), [
    ("gemma2-9b", "0.3"), ("gemma3-27b", "main"), ("minimax-m2", "main"), ("falcon-h1-34b", "main"), ("gemma4-31b", "main"),
])
def test_models_of_no_field_are_built_by_autobridge(model, release):
    case = make_case(model, cluster_for("h100-sxm", num_devices=64), global_batch_sequences=64, sequence_tokens=4096,
                     framework=f"bridge@{release}", calibration="none", precision="fp8-cs" if model == "gemma2-9b" else "bf16")
    layout = layout_of(case, data_parallel=32, pipeline_parallel=2, num_microbatches=2, optimizer_shards=32)
    if model != "gemma2-9b":
        assert not {"model", "own-stages"} & refused(case, layout, release)
    own = replace(case, model=replace(case.model, name="mine"))  # of no recipe
    program = next(file.text for file in BRIDGE.at(release).write(own, layout) if file.path == "train.py")
    compile(program, "train.py", "exec")
    assert f"shape.architectures = ['{case.model.architecture}']" in program
    assert "AutoBridge.from_hf_config(shape).to_megatron_provider(load_weights=False)" in program
    assert f"config.model.num_layers = {case.model.num_layers}" in program


def test_what_no_recipe_and_no_class_has_is_refused():
    case = make_case("gemma3-27b", cluster_for("h100-sxm", num_devices=64), global_batch_sequences=64, sequence_tokens=4096,
                     calibration="none")
    layout = layout_of(case, data_parallel=64)
    assert "model" in refused(case, layout, "0.3")
    assert "model" not in refused(case, layout, "main")
    small = replace(case, model=load_model("gemma3-1b"))
    assert "model" not in refused(small, layout, "0.3")  # its recipe builds it


def test_a_class_that_places_its_layers_itself_has_stages_alike():
    case = make_case("falcon-h1-34b", cluster_for("h100-sxm", num_devices=64), global_batch_sequences=64, sequence_tokens=4096,
                     framework="bridge@main", calibration="none")
    even = layout_of(case, data_parallel=32, pipeline_parallel=2, num_microbatches=2)
    assert "own-stages" not in refused(case, even, "main")
    assert "own-stages" in refused(case, replace(even, stage_layers=((37, 35),)), "main")
    assert "hybrid_layer_pattern" not in "".join(file.text for file in BRIDGE.at("main").write(case, even))


@pytest.mark.parametrize("recompute", [Full(layers=5), Full()])
@pytest.mark.parametrize("knobs", [{}, {"pipeline_parallel": 2}])
def test_a_class_that_counts_whole_layers_is_read_back_as_it_was_written(recompute, knobs):
    case = make_case("falcon-h1-7b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=64, sequence_tokens=4096,
                     framework="bridge@main", calibration="none")
    layout = layout_of(case, recompute=recompute, **knobs)
    files = [each for each in BRIDGE.at("main").write(case, layout) if each.path in {"launch.sh", "train.py"}]
    assert ("model.recompute_num_layers=5 " in "".join(each.text for each in files)) == (recompute == Full(layers=5))
    reading = read(*files, devices=8, model="falcon-h1-7b", version="main")
    assert (reading.layout.recompute, reading.layout.stage_layers) == (recompute, None)
    assert reading.said.figures["layers"] == case.model.num_layers
