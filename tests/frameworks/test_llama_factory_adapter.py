from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from deepspeed_family import broken, case_of, findings, json_file, layout_of, read

from meshwright.documents.launch import parse_launch
from meshwright.domain.layout import Full, NoRecompute
from meshwright.domain.training import Packing
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.tables import table_keys
from meshwright.testing.promises import read_back

NAME = "llama-factory-hf"
STAGE_3 = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"}, "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "overlap_comm": False, "reduce_bucket_size": "auto"},
}
STAGE_2 = STAGE_3 | {"zero_optimization": {"stage": 2, "overlap_comm": True}}
FSDP2 = {
    "distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 8,
    "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
}


def train(*, without=(), **values):
    """A training YAML of full supervised fine-tuning, changed."""
    plain = {
        "model_name_or_path": "Qwen/Qwen3-8B", "stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "mine",
        "template": "qwen3", "cutoff_len": 4096, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True,
    } | values
    return File(path="train.yaml", text=yaml.safe_dump({key: value for key, value in plain.items() if key not in without}))


def accelerate_file(values):
    return File(path="fsdp.yaml", text=yaml.safe_dump(values))


def launch(words="", before="FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 MASTER_ADDR=one", command="llamafactory-cli train"):
    return File(path="run.sh", text=f"#!/bin/bash\n{before} {command} train.yaml {words}\n")


def ids(*files, devices=None, case=None):
    return {id.removeprefix(f"{NAME}.") for id in findings(NAME, *files, devices=devices, case=case)}


# Reading: facts of the shipped examples (examples/train_full, train_lora, accelerate, deepspeed).
PUBLIC = {
    "stage 3 on two nodes": (
        (train(deepspeed="ds_z3_config.json"), json_file(STAGE_3), launch()),
        {"data_parallel": 16, "zero_stage": 3, "parameter_shards": 16, "recompute": Full(), "microbatch_sequences": 2,
         "num_microbatches": 4},
        {"task": "sft", "global_batch_sequences": 128, "sequence_tokens": 4096, "precision": "bf16", "devices": 16},
    ),
    "LoRA without an engine": (
        (train(without=("cutoff_len", "per_device_train_batch_size", "gradient_accumulation_steps", "finetuning_type")),
         launch(before="NPROC_PER_NODE=8")),
        {"data_parallel": 8, "zero_stage": 0, "microbatch_sequences": 8, "num_microbatches": 1, "recompute": Full()},
        {"task": "lora", "global_batch_sequences": 64, "sequence_tokens": 2048},
    ),
    "words over the file": (
        (train(), launch("per_device_train_batch_size=1 disable_gradient_checkpointing=true flash_attn=disabled stage=pt fp16=true "
                         "bf16=false")),
        {"microbatch_sequences": 1, "recompute": NoRecompute(), "attention": "math", "zero_stage": 0},
        {"task": "pretrain", "precision": "fp16"},
    ),
    "flags alone": (
        (File(path="run.sh", text="NPROC_PER_NODE=4 lmf train --stage sft --finetuning_type full --per_device_train_batch_size 2 "
                                  "--disable_gradient_checkpointing True --torch_compile True\n"),),
        {"microbatch_sequences": 2, "data_parallel": 4, "compiled": True, "recompute": NoRecompute()}, {"task": "sft"},
    ),
    "accelerate": (
        (train(), accelerate_file(FSDP2),
         launch(before="", command="accelerate launch --config_file fsdp.yaml src/train.py")),
        {"data_parallel": 8, "zero_stage": 3, "recompute": Full(), "overlap.parameter_gather": True}, {"devices": 8},
    ),
    "AutoTP": (
        (train(deepspeed="ds.json"), json_file(STAGE_2 | {"tensor_parallel": {"autotp_size": 2}}), launch()),
        {"tensor_parallel": 2, "data_parallel": 8, "zero_stage": 2, "optimizer_shards": 8}, {"global_batch_sequences": 64},
    ),
    "the JSON within the YAML": (
        (train(deepspeed=STAGE_2), launch()), {"zero_stage": 2, "overlap.gradient_reduce": True}, {"devices": 16},
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_configurations_are_read(name):
    files, layout, said = PUBLIC[name]
    reading = read(NAME, *files)
    assert reading.layout is not None, [str(each) for each in reading.messages]
    for path, value in layout.items():
        found = reading.layout
        for part in path.split("."):
            found = getattr(found, part)
        assert found == value, path
    assert {key: getattr(reading.said, key) for key in said} == said
    assert reading.version == ("fsdp2" if name == "accelerate" else "0.9.5")


REFUSED = {
    "import.config-file": (train(deepspeed="ds_z3_config.json"), launch()),
    "accelerate.options": (
        train(), accelerate_file(FSDP2), launch(before="", command="accelerate launch --use_fsdp src/train.py")),
    "llama-factory-hf.unnamed": (train(), json_file(STAGE_3), launch()),
    "llama-factory-hf.engines": (train(deepspeed="ds.json"), json_file(STAGE_3), accelerate_file(FSDP2)),
    "llama-factory-hf.accelerate-deepspeed": (train(), accelerate_file(FSDP2 | {"distributed_type": "DEEPSPEED"})),
    "llama-factory-hf.mesh": (
        train(), accelerate_file(FSDP2 | {"parallelism_config": {"parallelism_config_cp_size": 2}})),
    "llama-factory-hf.megatron": (train(), launch(before="USE_MEGATRON_BRIDGE=1 NPROC_PER_NODE=8")),
    "llama-factory-hf.stage": (train(stage="dpo"), launch()),
    "llama-factory-hf.method": (train(finetuning_type="freeze"), launch()),
    "llama-factory-hf.fsdp": (train(fsdp="full_shard auto_wrap"), launch()),
    "llama-factory-hf.hyper-parallel": (train(use_hyper_parallel=True), launch()),
    "import.devices": (train(), launch(before="NNODES=2")),
    "launch.count": (train(), launch(before="NNODES=0 NPROC_PER_NODE=8")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_layout_is_said(name):
    reading = read(NAME, *REFUSED[name])
    assert reading.layout is None
    assert name in {message.id for message in (*reading.messages, *reading.source.remarks)}


def test_a_launch_without_its_file_asks_for_it():
    alone = read(NAME, train(), launch(before="", command="accelerate launch --config_file my/fsdp.yaml src/train.py"))
    assert "my/fsdp.yaml" in str(alone.messages[-1]) and alone.layout is None
    (message,) = (each for each in read(NAME, launch()).messages if each.id == "import.config-file")
    assert "train.yaml" in str(message) and message.path == "run.sh:2"
    unknown = File(path="run.sh", text="NNODES=$N NPROC_PER_NODE=8 llamafactory-cli train x.yaml\n")
    assert read(NAME, unknown, train()).layout is None


# Mistakes: values of the YAML -> what is found. The words are LLaMA-Factory's own where it has any.
PARSED = {
    "generate-stage": {"stage": "pt", "predict_with_generate": True, "val_size": 0.1},
    "packing-stage": {"stage": "pt", "neat_packing": True},
    "mask-stage": {"stage": "pt", "mask_history": True},
    "predict": {"do_predict": True, "val_size": 0.1},
    "streaming": {"streaming": True},
    "evaluation": {"do_eval": True},
    "two-evaluations": {"eval_dataset": "other", "val_size": 0.1},
    "samples-streamed": {"streaming": True, "max_samples": 10, "max_steps": 5},
    "two-masks": {"mask_history": True, "train_on_prompt": True},
    "mixing": {"interleave_probs": "0.5,0.5"},
    "layerwise": {"use_galore": True, "galore_layerwise": True},
    "badam-ratio": {"use_badam": True, "badam_mode": "ratio"},
    "badam-stage": {"use_badam": True},
    "low-rank-adapters": {"use_apollo": True, "finetuning_type": "lora"},
    "quantized": {"quantization_bit": 4},
    "quantized-map": {"quantization_device_map": "auto"},
    "adapter": {"adapter_name_or_path": "there"},
    "lora-only": {"use_dora": True},
    "serving": {"infer_backend": "vllm"},
    "two-precisions": {"fp16": True},
    "fp8-quantized": {"fp8": True, "quantization_bit": 8, "finetuning_type": "lora"},
    "mixed-samples": {"packing": True},
    "dense-mask": {"neat_packing": True, "flash_attn": "sdpa"},
    "neat-batch": {"neat_packing": True, "flash_attn": "fa2"},
    "packing-length": {"stage": "pt", "packing": True},
    "padding": {"stage": "pt", "packing": False},
    "checkpointing": {"gradient_checkpointing": False},
    "checkpoints-on-host": {"use_unsloth_gc": True, "disable_gradient_checkpointing": True},
    "precision": {"bf16": False},
    "pure-bf16": {"pure_bf16": True},
    "quantized-weights": {"quantization_bit": 4, "finetuning_type": "lora"},
    "fp8": {"fp8": True},
    "liger": {"enable_liger_kernel": True},
    "unread": {"lora_rank": 8},
    "batch-search": {"auto_find_batch_size": True},
}
STAGE_3_ONLY = {
    "generate-stage-3": {"predict_with_generate": True, "val_size": 0.1},
    "pissa-stage-3": {"pissa_init": True, "finetuning_type": "lora"},
    "incompatible-stage-3": {"pure_bf16": True}, "low-rank-deepspeed": {"use_galore": True},
}


def test_sound_files_have_no_findings():
    assert not ids(train(deepspeed="ds.json"), json_file(STAGE_3), launch())
    assert not ids(train(), accelerate_file(FSDP2), launch(before="", command="accelerate launch --config_file fsdp.yaml t.py"))


def test_mistakes_of_the_yaml_are_found():
    for name, values in PARSED.items():
        assert name in ids(train(**values), launch()), name
    assert "dataset" in ids(train(without=("dataset",)), launch())
    for name, values in STAGE_3_ONLY.items():
        named = values | {"deepspeed": "ds.json"}
        assert name in ids(train(**named), json_file(STAGE_3), launch()), name
        assert name not in ids(train(**named), json_file(STAGE_2), launch()) or name == "low-rank-deepspeed", name


def test_a_micro_batch_that_is_not_said_is_eight():
    packed = train(without=("per_device_train_batch_size",), neat_packing=True, flash_attn="fa2")
    assert "neat-batch" in ids(packed, launch())
    assert "neat-batch" not in ids(train(neat_packing=True, flash_attn="fa2", per_device_train_batch_size=1), launch())


def test_mistakes_of_the_launch_are_found():
    sharded = (train(deepspeed="ds.json"), json_file(STAGE_3))
    assert ids(*sharded, launch(before="NPROC_PER_NODE=1")) == {"torchrun"}
    assert ids(*sharded, launch(before="", command="python src/train.py"), devices=1) == {"torchrun"}
    assert not ids(*sharded, launch(before="", command="torchrun --nproc-per-node 1 src/train.py"))
    assert ids(train(), launch(before="NNODES=2 NPROC_PER_NODE=8")) == {"rendezvous"}
    other = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 NPROC_PER_NODE=8"
    assert ids(train(), launch(before=other)) == {"allocator"}
    assert not ids(train(), launch(before=f"OPTIM_TORCH=0 {other}"))


def test_numbers_of_the_json_must_be_those_of_the_yaml():
    told = STAGE_3 | {"train_micro_batch_size_per_gpu": 1, "train_batch_size": 128, "bf16": {"enabled": False}}
    found = findings(NAME, train(deepspeed="ds.json"), json_file(told), launch())
    message = str(found[f"{NAME}.mismatch"].message)
    assert "ds bf16.enabled=false vs hf bf16|bf16_full_eval=true" in message and "'auto'" in message
    reading = read(NAME, train(deepspeed="ds.json"), json_file(told), launch())
    check = next(each for each in framework(NAME).checks if each.id == f"{NAME}.mismatch")
    assert {each.value for each in check.findings(reading, None)} == {1, False}


def test_mistakes_of_an_engines_file_are_found_under_its_prefix():
    three = STAGE_2 | {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}
    assert ids(train(deepspeed="ds.json"), json_file(three), launch()) == {"offload-param"}
    section = FSDP2["fsdp_config"] | {"fsdp_activation_checkpointing": True, "fsdp_sync_module_states": True}
    files = (train(), accelerate_file(FSDP2 | {"fsdp_config": section}))
    assert ids(*files) == {"recomputed-twice", "ignored"}
    assert ids(train(disable_gradient_checkpointing=True), files[1]) == {"ignored"}


def test_findings_that_know_the_case():
    case = case_of(NAME, "llama3-8b", task="lora")
    assert ids(train(finetuning_type="lora"), launch(), case=case) == {"rank"}
    assert not ids(train(finetuning_type="lora", lora_rank=16), launch(), case=case)
    phi = case_of(NAME, architecture="PhimoeForCausalLM")
    assert "liger-model" in ids(train(enable_liger_kernel=True), launch(), case=phi)


def test_unknown_keys_are_answered_as_the_one_who_reads_them_does():
    there = framework(NAME)
    assert "HfArgumentParser: ['{key}']" in there.unknown_keys("expert_tensor_parallel_size")[1]
    assert "USE_MEGATRON_BRIDGE" in there.unknown_keys("tensor_model_parallel_size")[1]
    assert there.unknown_keys("deepspeed.zero_optimization.zero_stage")[0] == "error"
    assert there.unknown_keys("accelerate.fsdp_config.fsdp_shard")[0] == "warning"
    for words, expected in (("ALLOW_EXTRA_ARGS=1", "ALLOW_EXTRA_ARGS"), ("ALLOW_EXTRA_ARGS=0", "")):
        assert there.adds_keys(read(NAME, train(), launch(before=words)).source) == expected


def test_keys_have_the_releases_that_have_them():
    surface = framework(NAME).surface()
    assert surface.span("use_cache") == "from 0.9.5 on" and surface.span("kt_mode") == "in 0.9.4 only"
    assert surface.span("hyper_parallel_cp_size") == "from main on"
    assert table_keys(NAME) == frozenset(surface.keys)


# Limits.
def test_limits_say_what_no_file_says():
    case = case_of(NAME, devices=16)
    moe, lora, packed = case_of(NAME, "qwen3-30b-a3b"), case_of(NAME, task="lora"), packs(case_of(NAME, task="sft"))

    def hit(case, release="0.9.5", **knobs):
        return {id.removeprefix(f"{NAME}.") for id in broken(f"{NAME}@{release}", case, layout_of(case, **knobs))}

    assert not hit(case, zero=3) and not hit(case, zero=1, tensor_parallel=2) and not hit(case, "fsdp2", zero=2)
    assert hit(case, zero=3, tensor_parallel=2) == {"tensor-stage"} == hit(case, tensor_parallel=2)
    assert "tensor-engine" in hit(case, "fsdp2", zero=2, tensor_parallel=2)
    assert hit(lora, zero=1, tensor_parallel=2) == {"tensor-adapters"}
    assert "tensor-experts" in hit(moe, zero=1, tensor_parallel=2)
    assert hit(packed, microbatch_sequences=2) == {"neat-packing"}
    assert not hit(packed, "0.9.4", microbatch_sequences=2) and not hit(packed, microbatch_sequences=2, attention="math")
    assert "offload" in hit(case, offload=("optimizer",)) and not hit(case, zero=2, offload=("optimizer",))
    assert "offload-optimizer" in hit(case_of(NAME, optimizer="adamw-8bit"), zero=2, offload=("optimizer",))
    assert hit(case_of(NAME, optimizer="muon")) == {"optimizer"} and "precision" in hit(case_of(NAME, recipe="fp8-delayed"))
    assert hit(case, zero=3, parameter_shards=8) == set() and "shards" in hit(case, "fsdp2", zero=3, parameter_shards=8)
    unknown = case_of(NAME, "qwen3-30b-a3b", architecture="OtherMoeForCausalLM")
    assert hit(unknown, "0.9.4", zero=3) == {"stage-3-experts"} and not hit(unknown, zero=3)
    assert "attention-kernel" in hit(case_of(NAME, "gpt-oss-120b"), attention="math")
    for knob in ({"pipeline_parallel": 2}, {"context_parallel": 2}):
        assert {next(iter(knob)).replace("_parallel", "").replace("context", "context-parallel")} <= hit(case, **knob)


def packs(case):
    """The case with sequences that are packs of samples."""
    packing = Packing(samples_per_sequence=4.0, mean_sample_tokens=400.0, longest_sample_tokens=1500)
    return replace(case, batch=replace(case.batch, packing=packing))


# Writing.
def written(case, release="0.9.5", **knobs):
    there = framework(f"{NAME}@{release}")
    files = {file.path: file.text for file in there.write(case, layout_of(case, **knobs))}
    return files, yaml.safe_load(files["train.yaml"])


def test_what_is_trained_is_written_in_its_words():
    _, text = written(case_of(NAME))
    assert (text["stage"], text["finetuning_type"], "packing" in text, text["cutoff_len"]) == ("pt", "full", False, 2048)
    _, tuned = written(case_of(NAME, task="sft"))
    assert (tuned["stage"], tuned["packing"], tuned["flash_attn"]) == ("sft", False, "sdpa")
    _, packed = written(packs(case_of(NAME, task="sft")))
    assert (packed["packing"], packed["neat_packing"], packed["flash_attn"]) == (True, True, "fa2")
    _, adapted = written(case_of(NAME, task="lora"))
    assert (adapted["finetuning_type"], adapted["lora_rank"], adapted["lora_target"]) == ("lora", 16, "all")
    _, mixed = written(case_of(NAME, "qwen3-30b-a3b", task="lora"))
    assert mixed["lora_target"] == "q_proj,k_proj,v_proj,o_proj"
    assert written(case_of(NAME, "deepseek-v3", task="lora"))[1]["lora_target"].startswith("q_a_proj,")
    assert written(case_of(NAME, optimizer="adamw-8bit"))[1]["optim"] == "adamw_8bit"


def test_each_engine_has_its_file():
    case = case_of(NAME)
    replicas, text = written(case)
    assert set(replicas) == {"train.yaml", "launch.sh", "README.md"} and "deepspeed" not in text
    assert text["ddp_find_unused_parameters"] is False and "ddp_find_unused_parameters" not in written(case, zero=3)[1]
    sharded, text = written(case, zero=3)
    document = json.loads(sharded["ds_config.json"])
    assert text["deepspeed"] == "ds_config.json" and document["train_batch_size"] == "auto"
    assert document["zero_optimization"]["stage"] == 3 and document["bf16"] == {"enabled": True}
    meshed, text = written(case, "fsdp2", zero=3)
    assert "deepspeed" not in text and yaml.safe_load(meshed["accelerate_config.yaml"])["num_processes"] == 16
    assert "--module llamafactory.launcher" in meshed["launch.sh"]


def test_the_launch_starts_every_process():
    files, _ = written(case_of(NAME), zero=2)
    launched = parse_launch(files["launch.sh"])
    assert (launched.nodes, launched.devices_per_node, launched.shell.launch.launcher) == (2, 8, "llamafactory-cli")
    environment = {name: setting.value for name, setting in launched.environment().items()}
    assert environment["FORCE_TORCHRUN"] == "1" and "MASTER_ADDR" in environment


def test_checkpoints_on_the_host_are_written_and_read_back():
    case = case_of(NAME)
    there, layout = framework(NAME), layout_of(case, zero=2, recompute=Full())
    case = replace(case, launch=replace(case.launch, offloaded_checkpoints=True, given=frozenset({"checkpoints"})))
    files = there.write(case, layout)
    assert yaml.safe_load(files[0].text)["use_unsloth_gc"] is True
    assert "checkpoints=host" in read_back(there, case, files).said.launch


# Edits.
def edited(files, layout, **knobs):
    reading = read(NAME, *files)
    assert reading.layout is not None, [str(each) for each in reading.messages]
    case = case_of(NAME, devices=reading.layout.world, batch=reading.said.global_batch_sequences, sequence=4096)
    return edit(framework(NAME), reading, case, replace(reading.layout, **layout, **knobs))


def test_a_number_of_the_json_follows_and_auto_stays():
    half = {"microbatch_sequences": 1, "num_microbatches": 8}
    alone = edited((train(deepspeed="ds.json"), json_file(STAGE_3), launch()), half)
    assert [file.path for file in alone.files] == ["train.yaml"] and not alone.messages
    told = STAGE_3 | {"train_micro_batch_size_per_gpu": 2}
    both = edited((train(deepspeed="ds.json"), json_file(told), launch()), half)
    assert {file.path for file in both.files} == {"train.yaml", "ds_config.json"}
    changed = json.loads(next(file.text for file in both.files if file.path.endswith(".json")))
    assert changed["train_micro_batch_size_per_gpu"] == "auto"


def test_a_stage_changes_in_the_file_that_has_it():
    lower = edited((train(deepspeed="ds.json"), json_file(STAGE_2), launch()), {"parameter_shards": 16})
    assert [each.key for each in lower.edits] == ["deepspeed.zero_optimization.stage"]
    assert json.loads(lower.files[0].text)["zero_optimization"]["stage"] == 3


def test_an_engine_comes_into_the_yaml_where_there_is_none():
    sharded = edited((train(), launch()), {"optimizer_shards": 16, "gradient_shards": 16})
    (file,) = sharded.files
    assert yaml.safe_load(file.text)["deepspeed"]["zero_optimization"]["stage"] == 2 and not sharded.messages


def test_words_of_a_script_change_where_they_stand():
    files = (train(), launch("per_device_train_batch_size=2 disable_gradient_checkpointing=true"))
    changed = edited(files, {"microbatch_sequences": 1, "num_microbatches": 8, "recompute": Full()})
    texts = {file.path: file.text for file in changed.files}
    assert "per_device_train_batch_size=1 disable_gradient_checkpointing=false" in texts["run.sh"]
    assert yaml.safe_load(texts["train.yaml"])["gradient_accumulation_steps"] == 8
    flags = File(path="run.sh", text="NPROC_PER_NODE=16 lmf train --finetuning_type full --per_device_train_batch_size 2 "
                                     "--gradient_accumulation_steps 4 --cutoff_len 4096\n")
    text = edited((flags,), {"recompute": NoRecompute()}).files[0].text
    assert "--disable_gradient_checkpointing true" in text


def test_what_it_cannot_plan_is_refused_in_words():
    case = case_of(NAME)
    with pytest.raises(InputError, match="the Trainer has no pipeline: 2 stages"):
        framework(NAME).write(case, layout_of(case, pipeline_parallel=2))
