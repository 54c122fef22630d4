from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from deepspeed_family import broken, case_of, findings, layout_of, read

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.tables import table_keys
from meshwright.testing import legal_plans

NAME = "ms-swift-megatron"
EIGHT = "NPROC_PER_NODE=8"
PLAIN = "--model Qwen/Qwen3-30B-A3B --dataset mine --max_length 4096 --global_batch_size 32 --bf16 true"
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def launch(words="", verb="sft", before=EIGHT, plain=PLAIN):
    return File(path="run.sh", text=f"{ALLOCATOR} {before} megatron {verb} {plain} {words}\n")


def settings(**values):
    return File(path="sft.yaml", text=yaml.safe_dump(values))


def ids(*files, case=None):
    return {id.removeprefix(f"{NAME}.") for id in findings(NAME, *files, case=case)}


def test_flags_of_a_launch_are_read():
    words = """--tensor_model_parallel_size 2 --pipeline_model_parallel_size 2 --sequence_parallel true \\
      --expert_model_parallel_size 2 --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \\
      --overlap_grad_reduce true"""
    reading = read(NAME, launch(words))
    layout = reading.layout
    assert layout is not None, [str(each) for each in reading.messages]
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel, layout.sequence_parallel) == (2, 2, 2, True)
    assert (layout.expert_parallel, layout.expert_tensor_parallel, layout.recompute, layout.zero_stage) == (2, 1, Full(), 1)
    assert (layout.overlap.gradient_reduce, layout.overlap.parameter_gather, layout.num_microbatches) == (True, False, 16)
    assert (reading.said.task, reading.said.sequence_tokens, reading.said.devices, reading.said.precision) == (
        "sft", 4096, 8, "bf16")


def test_what_is_not_said_is_sixteen_samples_that_recompute_the_attention_core():
    reading = read(NAME, launch(plain="--model m --dataset d"))
    assert (reading.said.global_batch_sequences, reading.layout.num_microbatches) == (16, 2)
    assert (reading.layout.recompute, reading.layout.zero_stage) == (Selective(), 1)
    silent = read(NAME, launch("--recompute_granularity none --use_distributed_optimizer false"))
    assert (silent.layout.recompute, silent.layout.zero_stage) == (NoRecompute(), 0)
    assert read(NAME, launch("--optimizer dist_muon")).layout.zero_stage == 0  # switched off in silence


def test_flags_win_over_the_yaml_whose_env_fills_the_environment():
    file = settings(model="m", dataset=["a", "b"], max_length=2048, tensor_model_parallel_size=4, sequence_parallel=True,
                    ENV={"NPROC_PER_NODE": 8, "CUDA_DEVICE_MAX_CONNECTIONS": 1})
    script = File(path="run.sh", text="megatron sft sft.yaml --tensor_model_parallel_size 2\n")
    reading = read(NAME, script, file)
    assert (reading.said.devices, reading.layout.tensor_parallel, reading.layout.data_parallel) == (8, 2, 4)
    assert reading.layout.sequence_parallel and reading.source.environment["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"
    assert [each.id for each in read(NAME, script, devices=8).messages] == ["import.config-file"]


def test_every_spelling_that_the_parser_takes_is_read_and_kept():
    script = launch("--tensor-model-parallel-size 2 --sequence_parallel --no_overlap_p2p_comm --pipeline_model_parallel_size 4 "
                    "--virtual_pipe 3", before="NPROC_PER_NODE=16")
    reading = read(NAME, script)
    layout = reading.layout
    assert (layout.tensor_parallel, layout.sequence_parallel, layout.virtual_stages) == (2, True, 3)
    assert not layout.overlap.point_to_point
    case = case_of(NAME, "qwen3-30b-a3b", devices=16, batch=32, sequence=4096, task="sft")
    other = replace(layout, tensor_parallel=1, data_parallel=4, num_microbatches=8, sequence_parallel=False, optimizer_shards=4,
                    overlap=replace(layout.overlap, point_to_point=True))
    (changed,) = edit(framework(NAME), reading, case, other).files
    assert "--tensor-model-parallel-size 1 " in changed.text and "overlap_p2p_comm" not in changed.text
    assert read(NAME, changed).layout == other


def test_generation_counts_completions_and_pairs_are_told():
    rl = read(NAME, launch("--rlhf_type grpo --vllm_mode colocate --max_completion_length 1024", verb="rlhf"))
    assert (rl.said.sequence_tokens, rl.said.task, rl.said.global_batch_sequences) == (5120, None, 32)
    pairs = read(NAME, launch("--tuner_type lora", verb="rlhf"))
    assert (pairs.said.task, [each.id for each in pairs.messages]) == ("lora", [f"{NAME}.pairs"])
    ray = read(NAME, launch("--use_ray true --config x.yaml", verb="rlhf"))
    assert ray.layout is None and [each.id for each in ray.messages] == [f"{NAME}.ray"]


def test_what_does_not_divide_is_said_in_its_words():
    (said,) = read(NAME, launch("--global_batch_size 100")).messages
    assert said.words == "global batch size (100) is not divisible by micro batch size (1) times data parallel size (8)."
    (number,) = read(NAME, launch("--micro_batch_size 0")).messages
    assert number.words == "micro_batch_size is 0: at least 1 is expected"


GRPO = "--rlhf_type grpo --vllm_mode colocate --num_generations 8 --global_batch_size 64 --sleep_level 1 --offload_model true " \
       "--offload_optimizer true --vllm_gpu_memory_utilization 0.4"
MISTAKES = {
    "recompute-method": "--recompute_method uniform",
    "recompute-count": "--recompute_num_layers 2",
    "recompute-modules": "--recompute_modules mlp --recompute_granularity none",
    "recompute-none": "--recompute_granularity none --recompute_method uniform",
    "recompute-full": "--recompute_granularity full --recompute_method uniform",
    "group-by-length": "--group_by_length true",
    "decoder-layers": "--decoder_last_pipeline_num_layers 3",
    "tensor-overlap-alone": "--tp_comm_overlap true",
    "sequence-parallel-alone": "--sequence_parallel true",
    "virtual-alone": "--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 1",
    "freeze-ratio": "--pipeline_model_parallel_size 2 --freeze_parameters_ratio 0.5",
    "adapter-bridge": "--bridge_backend megatron-bridge --tuner_type lora",
    "connections-fsdp": "--use_megatron_fsdp true",
    "fsdp-distributed": "--use_megatron_fsdp true --use_distributed_optimizer false",
    "fsdp-optimizer": "--use_megatron_fsdp true --optimizer muon",
    "strategy-alone": "--data_parallel_sharding_strategy optim_grads",
    "muon-overlap": "--optimizer muon --overlap_grad_reduce true",
    "muon-sharding": "--optimizer dist_muon",
    "gather-alone": "--overlap_param_gather true",
    "moment-types": "--exp_avg_dtype bf16",
    "offload-precision-aware": "--optimizer_cpu_offload true",
    "float32": "--torch_dtype float32 --bf16 false",
    "padding": "--packing true --padding_free false",
    "unfused": "--attention_backend unfused",
    "lazy": "--packing true --lazy_tokenize true",
    "streaming": "--streaming true",
    "streaming-epoch": "--streaming true --train_iters 5 --save_strategy epoch",
    "split": "--truncation_strategy split",
    "deepep-alone": "--moe_enable_deepep true",
    "saves": "--save_total_limit 1",
    "async-saves": "--save_total_limit 2 --async_save true",
}
GENERATION = {
    "generation": {
        "--num_generations 3": "generation_batch_size (64) must be divisible by num_generations (3).",
        "--generation_batch_size 96": "generation_batch_size (96) must be divisible by global_batch_size (64)",
        "--generation_batch_size 64 --steps_per_generation 2":
            "generation_batch_size (64) must equal global_batch_size (64) * steps_per_generation (2) = 128.",
        "--global_batch_size 32": "num_rollout_prompt (4) = generation_batch_size (32) // num_generations (8) must be divisible by "
                                  "dp_size (8).",
        "--micro_batch_size 2": "Per-device rollout prompt count (1) = (generation_batch_size (64) // num_generations (8)) // "
                                "dp_size (8) must be divisible by micro_batch_size (2).",
    },
    "iterations": {"--num_iterations 2": "num_iterations > 1 is not supported for Megatron GRPO right now"},
    "engine": {"--use_vllm false": "use_vllm must be True for Megatron GRPO"},
    "asynchronous": {"--async_generate true": "async_generate is not supported for Megatron GRPO right now"},
    "truncation": {"--truncation_strategy right": "GRPO requires `truncation_strategy 'left' or 'delete'`, Current value: "
                                                  "`truncation_strategy='right'`."},
    "virtual-stages": {"--pipeline_model_parallel_size 4 --virtual_pipeline_model_parallel_size 2":
                       "GRPO currently does not support VPP."},
    "engine-ranks": {"--vllm_tensor_parallel_size 3": "vllm_tensor_parallel_size (3) must divide world size (8) evenly."},
    "engine-memory": {"--vllm_gpu_memory_utilization 0.9 --sleep_level 0":
                      "the engine takes 0.9 of all memory of a GPU and keeps it while the policy is trained (sleep_level 0)"},
}


def test_mistakes_are_found():
    assert not ids(launch()) and not ids(launch(GRPO, verb="rlhf"))
    for name, words in MISTAKES.items():
        assert name in ids(launch(words)), name
    assert "length" in ids(launch(plain="--model m --dataset d"))
    assert "mtp" in ids(launch(), case=case_of(NAME, "deepseek-v3"))
    assert "connections-fsdp" not in ids(launch("--use_megatron_fsdp true", before=f"CUDA_DEVICE_MAX_CONNECTIONS=32 {EIGHT}"))
    assert "connections" in ids(launch("--tensor_model_parallel_size 2", before=f"CUDA_DEVICE_MAX_CONNECTIONS=8 {EIGHT}"))
    assert "segments" in ids(File(path="a.sh", text=f"{EIGHT} megatron sft {PLAIN}\n"))


def test_mistakes_of_sampled_completions_are_found_in_its_words():
    for name, words in GENERATION.items():
        for each, said in words.items():
            found = findings(NAME, launch(f"{GRPO} {each}", verb="rlhf"))
            assert found[f"{NAME}.{name}"].message.words == said
    assert "engine-mode" in ids(launch("--rlhf_type grpo --global_batch_size 64", verb="rlhf"))
    assert "generation" not in ids(launch("--num_generations 3"))  # nothing is sampled


def test_unknown_names_are_refused_and_those_of_before_are_told():
    there = framework(NAME)
    assert there.unknown_keys("sequence_paralel") == ("error", "remaining_argv: ['--{key}']")
    assert "tuner_type" in there.unknown_keys("train_type")[1]
    assert not {"train_type", "seq_length"} & set(there.surface().keys)
    assert table_keys(NAME) == frozenset(there.surface().keys)


@pytest.mark.parametrize(("words", "model", "knobs"), [
    ("", "llama3-8b", {"zero": 1, "tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2}),
    ("context-kind", "llama3-8b", {"context_parallel": 2}),
    ("instances", "llama3-8b", {"optimizer_shards": 4}),
    ("fsdp-pipeline", "llama3-8b", {"zero": 3, "pipeline_parallel": 2}),
    ("softmax", "gpt-oss-120b", {"attention": "flash"}),
    ("expert-count", "qwen3-30b-a3b", {"expert_parallel": 3}),
])
def test_limits(words, model, knobs):
    case = case_of(NAME, model)
    found = {id.removeprefix(f"{NAME}.") for id in broken(NAME, case, layout_of(case, **knobs))}
    assert (words in found) if words else not found


def test_limits_of_the_training():
    def hit(**training):
        case = case_of(NAME, **training)
        return {id.removeprefix(f"{NAME}.") for id in broken(NAME, case, layout_of(case, zero=1))}

    assert not hit(task="lora") and not hit(recipe="fp8-blockwise")
    assert (hit(recipe="fp8-torchao"), hit(optimizer="muon")) == (
        {"precision"}, {"muon-sharding", "muon-overlap"})


def words_of(case, **knobs):
    files = {file.path: file.text for file in framework(NAME).write(case, layout_of(case, **{"context_kind": "ring"} | knobs))}
    return files["launch.sh"]


def test_a_script_says_what_its_defaults_would_change():
    plain = words_of(case_of(NAME, "qwen3-30b-a3b"))
    assert "megatron pt" in plain and "--packing true" in plain and "--truncation_strategy split" in plain
    assert "--recompute_granularity none" in plain and "--use_distributed_optimizer false" in plain
    assert "export NPROC_PER_NODE=8" in plain and "export CUDA_DEVICE_MAX_CONNECTIONS=1" in plain
    sharded = words_of(case_of(NAME, task="lora"), zero=3)
    assert "--use_megatron_fsdp true" in sharded and "export CUDA_DEVICE_MAX_CONNECTIONS=32" in sharded
    assert "megatron sft" in sharded and "--lora_rank 16" in sharded and "expert" not in sharded
    sinks = words_of(case_of(NAME, "gpt-oss-120b"), zero=1)
    assert "--attention_backend fused" in sinks and "--padding_free false" in sinks and "--packing false" in sinks
    assert "--mtp_num_layers 1" in words_of(case_of(NAME, "deepseek-v3"), zero=1)


def test_what_is_written_is_read_back_as_its_case():
    for case, layout in legal_plans(NAME, 12, seed=3):
        script = next(file for file in framework(NAME).write(case, layout) if file.path == "launch.sh")
        reading = read(NAME, script, model=case.model)
        assert reading.layout == framework(NAME).normal(case, layout)
        said = reading.said
        assert (said.devices, said.global_batch_sequences, said.sequence_tokens) == (
            layout.world, case.batch.global_batch_sequences, case.batch.sequence_tokens)
        assert (said.task, said.precision, said.optimizer) == (
            case.training.task, case.training.precision.name, case.training.optimizer.name)
