from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from deepspeed_family import broken, case_of, findings, layout_of, read

from meshwright.domain.layout import Full
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.tables import table_keys

NAME = "llama-factory-megatron"
EIGHT = "USE_MEGATRON_BRIDGE=1 NPROC_PER_NODE=8"


def train(*, without=(), **values):
    """A training YAML of full supervised fine-tuning, changed."""
    plain = {
        "model_name_or_path": "Qwen/Qwen3-30B-A3B", "stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "mine",
        "cutoff_len": 4096, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "bf16": True,
    } | values
    return File(path="train.yaml", text=yaml.safe_dump({key: value for key, value in plain.items() if key not in without}))


def launch(words="", before=EIGHT):
    return File(path="run.sh", text=f"{before} llamafactory-cli train train.yaml {words}\n")


def ids(*files, case=None):
    return {id.removeprefix(f"{NAME}.") for id in findings(NAME, *files, case=case)}


def test_arguments_and_extra_fields_are_read():
    files = train(
        tensor_model_parallel_size=2, pipeline_model_parallel_size=2, sequence_parallel=True, recompute_granularity="full",
        recompute_method="uniform", recompute_num_layers=1, overlap_param_gather=False,
        extra_config='{"train.train_iters": 5, "model.expert_tensor_parallel_size": 2}',
    )
    reading = read(NAME, files, launch())
    layout = reading.layout
    assert layout is not None, [str(each) for each in reading.messages]
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel, layout.sequence_parallel) == (2, 2, 2, True)
    assert (layout.recompute, layout.zero_stage, layout.expert_tensor_parallel) == (Full(), 1, 2)
    assert (layout.overlap.gradient_reduce, layout.overlap.parameter_gather) == (True, False)
    assert (reading.said.global_batch_sequences, layout.num_microbatches) == (16, 8)
    assert (reading.said.task, reading.said.sequence_tokens, reading.said.devices) == ("sft", 4096, 8)


def test_a_number_that_is_none_is_said_once_and_by_its_own_name():
    reading = read(NAME, train(per_device_train_batch_size=0), launch())
    said = [each.words for each in reading.messages if each.id == "setting.degree"]
    assert said == ["per_device_train_batch_size is 0: at least 1 is expected"]


def test_what_is_not_said_is_lora_of_eight_samples_over_all_devices():
    bare = train(without=("finetuning_type", "per_device_train_batch_size", "gradient_accumulation_steps", "cutoff_len"))
    reading = read(NAME, bare, launch("stage=sft"))
    assert reading.layout is not None and (reading.layout.data_parallel, reading.layout.microbatch_sequences) == (8, 8)
    assert (reading.said.task, reading.said.sequence_tokens, reading.layout.zero_stage) == ("lora", 2048, 1)


@pytest.mark.parametrize(("ep", "steps", "batch"), [(1, 1, 8), (8, 8, 8), (8, 16, 16), (4, 8, 16), (8, 1, None), (4, 6, None)])
def test_experts_are_a_factor_of_the_batch(ep, steps, batch):
    """micro x accumulation x world // (tp pp cp ep), while Megatron counts replicas without ep."""
    reading = read(NAME, train(expert_model_parallel_size=ep, gradient_accumulation_steps=steps), launch())
    assert (reading.layout is None) == (batch is None)
    if batch is None:
        assert [each.id for each in reading.messages] == [f"{NAME}.expert-batch"]
        assert f"accumulation must be a multiple of {ep}" in str(reading.messages[0])
    else:
        assert reading.said.global_batch_sequences == batch


MISTAKES = {
    "parallel-size": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 4},
    "sequence-parallel": {"sequence_parallel": True},
    "stage": {"stage": "dpo"},
    "method": {"finetuning_type": "freeze"},
    "quantized": {"quantization_bit": 4, "finetuning_type": "lora"},
    "deepspeed": {"deepspeed": "ds.json"},
    "hyper-parallel": {"use_hyper_parallel": True},
    "packing-stage": {"stage": "pt", "neat_packing": True},
    "pretrain-adapters": {"stage": "pt", "finetuning_type": "lora"},
    "targets": {"finetuning_type": "lora", "lora_target": "q_proj"},
    "packing": {"packing": True},
    "packed-microbatch": {"use_packed_sequences": True, "per_device_train_batch_size": 2},
    "unread": {"enable_liger_kernel": True},
    "gather-alone": {"overlap_grad_reduce": False},
    "recompute-method": {"recompute_granularity": "full"},
}


def test_mistakes_are_found():
    connections = f"CUDA_DEVICE_MAX_CONNECTIONS=1 {EIGHT}"
    assert not ids(train(), launch(before=connections))
    for name, values in MISTAKES.items():
        assert name in ids(train(**values), launch(before=connections)), name
    assert "dataset" in ids(train(without=("dataset",)), launch(before=connections))
    assert "back-end" in ids(train(), launch(before="NPROC_PER_NODE=8"))
    found = findings(NAME, train(**MISTAKES["parallel-size"]), launch())
    assert "(16) exceeds `world_size` (8)." in str(found[f"{NAME}.parallel-size"].message)


def test_unknown_keys_are_refused_and_extra_fields_are_not():
    there = framework(NAME)
    assert there.unknown_keys("expert_tensor_parallel_size") == (
        "error", "Some keys are not used by the HfArgumentParser: ['{key}']")
    assert there.unknown_keys("extra_config.model.tensor_parallel")[0] == "warning"
    assert table_keys(NAME) == frozenset(there.surface().keys)


def test_limits():
    dense, mixed = case_of(NAME), case_of(NAME, "qwen3-30b-a3b")

    def hit(case, **knobs):
        return {id.removeprefix(f"{NAME}.") for id in broken(NAME, case, layout_of(case, **knobs))}

    assert not hit(dense, zero=1, tensor_parallel=2, sequence_parallel=True, pipeline_parallel=2)
    too_many = {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2, "expert_parallel": 8}
    assert "parallel-size" in hit(mixed, zero=1, **too_many)
    assert "sequence-parallel-alone" in hit(dense, sequence_parallel=True)
    assert "even-stages" in hit(case_of(NAME, "gpt-oss-120b"), pipeline_parallel=8)
    assert hit(case_of(NAME, optimizer="muon")) == {"optimizer"}


def written(case, **knobs):
    files = {file.path: file.text for file in framework(NAME).write(case, layout_of(case, zero=1, **knobs))}
    return files, yaml.safe_load(files["train.yaml"])


def test_accumulation_counts_ep_and_other_fields_stand_in_the_extra_config():
    case = case_of(NAME, "qwen3-30b-a3b", task="lora")
    files, text = written(case, expert_parallel=4, tensor_parallel=2, sequence_parallel=True)
    assert (text["gradient_accumulation_steps"], text["expert_model_parallel_size"], text["lora_rank"]) == (32, 4, 16)
    assert json.loads(text["extra_config"])["model.expert_tensor_parallel_size"] == 1
    assert "export USE_MEGATRON_BRIDGE=1" in files["launch.sh"]
    _, dense = written(case_of(NAME))
    assert "expert_model_parallel_size" not in dense and "expert" not in dense.get("extra_config", "")


def test_an_edit_keeps_what_else_stands_in_the_extra_config():
    files = (train(extra_config='{"train.train_iters": 5}'), launch())
    reading = read(NAME, *files)
    case = case_of(NAME, "qwen3-30b-a3b", devices=8, batch=64, sequence=4096, task="sft")
    other = replace(reading.layout, tensor_parallel=2, sequence_parallel=True, expert_parallel=2)
    other = replace(other, data_parallel=4, optimizer_shards=4, num_microbatches=16)
    changed = yaml.safe_load(edit(framework(NAME), reading, case, other).files[0].text)
    assert json.loads(changed["extra_config"])["train.train_iters"] == 5
    assert (changed["tensor_model_parallel_size"], changed["gradient_accumulation_steps"]) == (2, 32)
