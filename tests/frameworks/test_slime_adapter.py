from __future__ import annotations

from dataclasses import replace

import pytest
from deepspeed_family import broken, case_of, findings, layout_of, read

from meshwright.domain.layout import Full
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.tables import table_keys
from meshwright.testing import legal_plans

NAME = "slime"
MODEL = "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --num-experts 128 --max-position-embeddings 4096"
ROLLOUT = "--rollout-batch-size 32 --n-samples-per-prompt 8 --num-rollout 9 --rollout-max-context-len 4096"
PLAIN = f"{ROLLOUT} --global-batch-size 256 --colocate --attention-dropout 0 --hidden-dropout 0 --expert-tensor-parallel-size 1"
ENVIRONMENT = '{"env_vars": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONPATH": "/root/Megatron-LM"}}'


def launch(words="", model=MODEL, plain=PLAIN, program="train.py", before="", environment=ENVIRONMENT):
    return File(path="run.sh", text=f"""\
{before}
MODEL_ARGS=({model})
PERF_ARGS=(
  {words}
)
ray start --head --num-gpus 8
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{environment}' -- python3 {program} {plain} \\
  ${{MODEL_ARGS[@]}} ${{PERF_ARGS[@]}}
""")


def ids(*files, case=None):
    return {id.removeprefix(f"{NAME}.") for id in findings(NAME, *files, case=case)}


def test_a_job_of_ray_is_read_with_what_slime_sets_by_itself():
    words = "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --expert-model-parallel-size 4 " \
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --actor-num-nodes 2"
    reading = read(NAME, launch(words))
    layout, said = reading.layout, reading.said
    assert layout is not None, [str(each) for each in reading.messages]
    assert (layout.world, layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel) == (16, 2, 2, 4)
    assert (layout.expert_parallel, layout.expert_tensor_parallel, layout.recompute, layout.zero_stage) == (4, 1, Full(), 1)
    assert (layout.microbatch_sequences, layout.num_microbatches) == (1, 64)
    assert (said.devices, said.global_batch_sequences, said.sequence_tokens) == (16, 256, 4096)
    assert (said.precision, said.task) == ("bf16", None)
    assert reading.source.environment["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"
    assert read(NAME, launch("--fp16 --loss-type sft_loss")).said.precision == "fp16"
    assert read(NAME, launch("--loss-type sft_loss")).said.task == "sft"


def test_the_model_s_file_is_read_where_the_script_reads_it():
    script = launch(before='source "${SCRIPT_DIR}/models/mine.sh"', words="${SIZES[@]}")
    sizes = File(path="models/mine.sh", text="LAYERS=${LAYERS:-4}\nSIZES=(--pipeline-model-parallel-size $LAYERS)\n")
    assert read(NAME, script, sizes).layout.pipeline_parallel == 4
    reading = read(NAME, script, sizes)
    other = replace(reading.layout, recompute=Full())
    edited = edit(framework(NAME), reading, case_of(NAME, "qwen3-30b-a3b", devices=8, batch=256, sequence=4096), other)
    assert [file.path for file in edited.files] == ["run.sh"] and not edited.messages
    alone = read(NAME, script)
    (message,) = [each for each in alone.messages if each.id == f"{NAME}.arrays"]
    assert message.values["arrays"] == "$SIZES"
    with pytest.raises(InputError, match="launches no training"):
        read(NAME, sizes)


@pytest.mark.parametrize(("words", "size", "count"), [
    ("--micro-batch-size 4", 4, 8),
    ("--use-dynamic-batch-size --max-tokens-per-gpu 8192", 2, 16),
    ("--use-dynamic-batch-size --max-tokens-per-gpu 8192 --context-parallel-size 2", 4, 16),
    ("--use-dynamic-batch-size --max-tokens-per-gpu 100", 1, 32),
    ("--use-dynamic-batch-size --max-tokens-per-gpu 40000 --pipeline-model-parallel-size 2 "
     "--num-virtual-stages-per-pipeline-rank 2", 8, 8),
])
def test_micro_batches_are_counted_or_packed(words, size, count):
    layout = read(NAME, launch(words)).layout
    assert (layout.microbatch_sequences, layout.num_microbatches) == (size, count)


def test_the_samples_of_a_step():
    def samples(words):
        return read(NAME, launch(plain=f"{ROLLOUT} {words}")).said.global_batch_sequences

    assert (samples("--num-steps-per-rollout 4"), samples("--global-batch-size 128"), samples("")) == (64, 128, 8)
    (said,) = read(NAME, launch(plain=f"{ROLLOUT} --global-batch-size 100")).messages
    assert said.words == "global batch size (100) is not divisible by micro batch size (1) times data parallel size (8)"


MISTAKES = {
    "few-samples": ("--global-batch-size 512", "num_rollouts (256) < global_batch_size (512); need at least one rollout per step."),
    "steps": ("--num-steps-per-rollout 2", "global_batch_size 256 is not equal to rollout_batch_size 32 * n_samples_per_prompt 8 "
                                           "// num_steps_per_rollout 2"),
    "dropped": ("--global-batch-size 96", "64 of the 256 samples of a rollout are generated and then dropped without a word: steps "
                                          "take 96 each"),
    "no-cap": ("--use-dynamic-batch-size", "max_tokens_per_gpu must be set when use_dynamic_batch_size is set"),
    "flops": ("--balance-by-flops", "--balance-by-flops requires --use-dynamic-batch-size"),
    "packs": ("--global-batch-size 8 --use-dynamic-batch-size --max-tokens-per-gpu 8192 --pipeline-model-parallel-size 4 "
              "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 8",
              "dynamic path: could only produce 8 mbs after maximal splitting; need 16. step 0 has 8 samples, below the alignment "
              "threshold (16)."),
    "counted": ("--global-batch-size 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
                "--microbatch-group-size-per-virtual-pipeline-stage 8",
                "static path: num_mbs (8) is not a multiple of dp_size * mb_group (16); got step_size=8, micro_batch_size=1, "
                "dp_size=2, mb_group=8. Splitting static mbs would break the fixed-size invariant; adjust the config so step_size "
                "% (dp_size * micro_batch_size * mb_group) == 0."),
    "long-samples": ("--use-dynamic-batch-size --max-tokens-per-gpu 1024 --context-parallel-size 2",
                     "samples of up to 4096 tokens are longer than a pack (2048 tokens: --max-tokens-per-gpu x 2): they get one of "
                     "their own without a word, and memory that the cap does not bound"),
    "oversampling": ("--over-sampling-batch-size 8",
                     "over_sampling_batch_size 8 should be greater than or equal to rollout_batch_size 32"),
    "rollout-left-over": ("--rollout-num-gpus-per-engine 3", "engines of 3 GPUs leave 2 of 8 idle without a word"),
    "rollout-stages": ("--rollout-num-gpus-per-engine 2 --sglang-pp-size 4",
                       "rollout_num_gpus_per_engine (2) must be divisible by sglang_pipeline_parallel_size (4)"),
    "release": ("--release-train", "--release-train requires --save so the next Megatron actor can reload."),
    "delta-transport": ("--update-weight-mode delta", "--update-weight-mode=delta requires --update-weight-transport=disk, got "
                                                      "'nccl'."),
    "context-length": ("--rollout-max-prompt-len 4096", "args.rollout_max_prompt_len (4096) must be smaller than "
                       "args.rollout_max_context_len (4096) so that there is at least one generated token to compute loss."),
}
FOUND = {
    "flops-cap": "--balance-by-flops --use-dynamic-batch-size --max-tokens-per-gpu 4096",
    "balance": "--use-dynamic-batch-size --max-tokens-per-gpu 4096", "log-probs-cap": "--log-probs-max-tokens-per-gpu 9000",
    "unread-microbatch": "--micro-batch-size 2 --use-dynamic-batch-size --max-tokens-per-gpu 9000",
    "unread-cap": "--max-tokens-per-gpu 9000", "custom-config": "--custom-config-path x.yaml",
    "both-kl": "--kl-coef 0.1 --kl-loss-coef 0.1", "reference": "--use-kl-loss", "idle-reference": "--use-kl-loss --ref-load /x",
    "normalization": "--advantage-estimator reinforce_plus_plus", "critic": "--advantage-estimator ppo",
    "two-log-probs": "--use-tis --use-rollout-logprobs", "mismatch-metrics": "--get-mismatch-metrics", "teacher": "--use-opd",
    "mtp": "--enable-mtp-training", "frozen": "--only-train-params-name-list a --freeze-params-name-list b",
    "save": "--save-interval 3", "evaluation": "--eval-interval 3", "decoder-layers": "--decoder-last-pipeline-num-layers 20",
    "gathered-context": "--allgather-cp --context-parallel-size 2", "dispatcher": "--moe-token-dispatcher-type allgather",
    "tensor-overlap": "--tp-comm-overlap", "tensor-overlap-alone": "--tp-comm-overlap", "vocabulary": "--balance-data",
    "positions-short": "--max-position-embeddings 2048", "unread": "--cross-entropy-loss-fusion",
    "small-nodes": "--actor-num-gpus-per-node 4",
    "rollout-memory": "--sglang-mem-fraction-static 60",
    "temperature": "--rollout-temperature 0", "no-dataset": "--num-epoch 1 --disable-rollout-global-dataset",
    "delta-colocated": "--update-weight-mode delta", "delta-local": "--update-weight-mode delta",
    "disk": "--update-weight-transport disk", "offload-precision-aware": "--optimizer-cpu-offload",
}


def test_mistakes_are_found():
    assert not ids(launch())
    for name, (words, said) in MISTAKES.items():
        found = findings(NAME, launch(words))
        assert found[f"{NAME}.{name}"].message.words == said
    for name, words in FOUND.items():
        plain = PLAIN.replace("--num-rollout 9", "") if name == "no-dataset" else PLAIN
        assert name in ids(launch(words, plain=plain)), name


def test_mistakes_of_a_launch():
    assert {"prompts", "length", "dropout", "rollout-gpus"} <= ids(launch(plain="--micro-batch-size 1"))
    assert "rollout-gpus" not in ids(launch(plain="--rollout-num-gpus 8"))
    assert "colocated-async" in ids(launch(program="train_async.py"))
    assert "batch-default" in ids(launch(plain=ROLLOUT))
    tp = "--tensor-model-parallel-size 2"
    assert "connections-unless-blackwell" in ids(launch(tp, environment="{}"))
    assert not {"connections-unless-blackwell", "segments"} & ids(launch(tp), launch(tp, environment="$(made)"))
    segments = ENVIRONMENT.replace("PYTHONPATH", "PYTORCH_CUDA_ALLOC_CONF").replace("/root/Megatron-LM", "expandable_segments:True")
    assert "segments" in ids(launch(environment=segments))


def test_unknown_flags_are_told_and_those_of_the_engine_left_alone():
    there = framework(NAME)
    assert there.unknown_keys("--tensr-model-parallel-size")[0] == "error"
    assert there.unknown_keys("--sglang-enable-dp-attention-x") is None
    assert "--tensor-model-parallel-size" in there.surface().hint("--tensr-model-parallel-size", there.version)
    assert there.adds_keys(read(NAME, launch()).source) == ""
    assert there.adds_keys(read(NAME, launch(program="mine.py")).source) == "mine.py"
    assert table_keys(NAME) == frozenset(there.surface().keys)


@pytest.mark.parametrize(("words", "model", "knobs"), [
    ("", "llama3-8b", {"zero": 1, "tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2}),
    ("sharding", "llama3-8b", {"zero": 0}),
    ("context-kind", "llama3-8b", {"zero": 1, "context_parallel": 2}),
    ("virtual-batches", "llama3-8b", {"zero": 1, "pipeline_parallel": 4, "virtual_stages": 2, "schedule": "interleaved",
                                      "microbatch_sequences": 8}),
    ("batch", "llama3-8b", {"zero": 1, "microbatch_sequences": 3}),
    ("expert-count", "qwen3-30b-a3b", {"zero": 1, "expert_parallel": 3}),
])
def test_limits(words, model, knobs):
    case = case_of(NAME, model)
    found = {id.removeprefix(f"{NAME}.") for id in broken(NAME, case, layout_of(case, **knobs))}
    assert (words in found) if words else not found


def test_limits_of_the_training():
    def hit(**training):
        case = case_of(NAME, **training)
        return {id.removeprefix(f"{NAME}.") for id in broken(NAME, case, layout_of(case, zero=1))}

    assert not hit(task="sft") and not hit(recipe="fp8-blockwise")
    assert (hit(task="lora"), hit(recipe="fp8-torchao"), hit(optimizer="muon")) == ({"task"}, {"precision"}, {"optimizer"})
    assert "samples" in hit(batch=8)


def words_of(case, **knobs):
    return next(file.text for file in framework(NAME).write(case, layout_of(case, zero=1, **knobs)) if file.path == "run.sh")


def test_scripts_of_both_tasks():
    rl, sft = words_of(case_of(NAME)), words_of(case_of(NAME, task="sft"))
    assert "-- python3 train.py" in rl and "-- python3 train_async.py" in sft
    assert "--rollout-batch-size 8\n" in rl and "--n-samples-per-prompt 8\n" in rl and "--colocate" in rl
    assert "--loss-type sft_loss" in sft and "--debug-train-only" in sft and "--colocate" not in sft
    assert "expandable_segments" in sft and "expandable_segments" not in rl
    assert "--use-distributed-optimizer" not in rl and "--cross-entropy" not in rl
    assert "--enable-mtp-training" in words_of(case_of(NAME, "deepseek-v3"))


def test_what_is_written_is_read_back_as_its_case():
    for case, layout in legal_plans(NAME, 8, seed=3):
        script = next(file for file in framework(NAME).write(case, layout) if file.path == "run.sh")
        reading = read(NAME, script, model=case.model)
        assert reading.layout == framework(NAME).normal(case, layout)
        said = reading.said
        assert (said.devices, said.global_batch_sequences, said.sequence_tokens, said.precision) == (
            layout.world, case.batch.global_batch_sequences, case.batch.sequence_tokens, case.training.precision.name)


def test_a_cap_that_says_the_other_micro_batch_stays():
    script = launch("--use-dynamic-batch-size --max-tokens-per-gpu 9000 --tensor-model-parallel-size 1")
    reading = read(NAME, script)
    case = case_of(NAME, "qwen3-30b-a3b", devices=8, batch=256, sequence=4096)
    other = replace(reading.layout, tensor_parallel=2, sequence_parallel=True, data_parallel=4, optimizer_shards=4,
                    num_microbatches=32)
    (changed,) = edit(framework(NAME), reading, case, other).files
    assert "--max-tokens-per-gpu 9000" in changed.text and "--tensor-model-parallel-size 2" in changed.text
    smaller = replace(other, microbatch_sequences=1, num_microbatches=64)
    (changed,) = edit(framework(NAME), reading, case, smaller).files
    assert "--max-tokens-per-gpu 4096" in changed.text and read(NAME, changed).layout == smaller


@pytest.mark.parametrize(("environment", "words"), [
    ('{"env_vars": {"A": "1"}', "is no JSON (expecting ',' delimiter, character 24)"),
    ("[1]", "is a list and no object"), ('{"env_vars": ["A=1"]}', "has env_vars that are a list"),
    ('{"env_vars": {"A": 1}}', "has env_vars.A as a number, not in quotes"),
])
def test_what_ray_refuses_as_its_environment_is_said(environment, words):
    (message,) = [each for each in read(NAME, launch(environment=environment)).source.remarks if each.id == "slime.runtime-env"]
    assert f"--runtime-env-json {words}, so Ray refuses the job" in message.words
    assert message.words.endswith('{"env_vars": {"NAME": "value"}} is expected') and message.path == "run.sh:7"


@pytest.mark.parametrize("environment", [
    ENVIRONMENT, "{}", '{"env_vars": null}', '{"working_dir": "/x"}', '{"env_vars": {"A": "\'$WORLD\'"}}',
])
def test_what_ray_takes_or_only_the_run_knows_is_not(environment):
    assert not [each for each in read(NAME, launch(environment=environment)).source.remarks if each.id == "slime.runtime-env"]
