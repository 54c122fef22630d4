from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace

import pytest
from megatron_cases import MODELS, arguments_of, case_of, environment_of, layout_of, random_layout

from meshwright.catalog import load_model
from meshwright.domain.layout import Full, Overlap, Selective
from meshwright.domain.training import Lora
from meshwright.errors import InputError
from meshwright.estimate import estimate as predict
from meshwright.frameworks import Options, framework
from meshwright.frameworks.megatron.flags import Arguments, parse_version, surface
from meshwright.frameworks.megatron.model_arguments import add_model, expression
from meshwright.frameworks.megatron.pipeline import layout_string

MEGATRON = framework("megatron")


def write(case, layout, **kwargs):
    return {file.path: file for file in MEGATRON.write(case, layout, **kwargs)}


def flags(case, layout, **kwargs):
    """Flag -> its values, as bash passes them on."""
    found: dict[str, list[str]] = {}
    for word in arguments_of(write(case, layout, **kwargs)["train.sh"].text):
        if word.startswith("--"):
            assert word not in found, f"{word} twice"
            found[word] = values = []
        else:
            values.append(word)
    return found


def legal(count, seed, **kwargs):
    rng = random.Random(seed)
    while count:
        case = case_of(rng.choice(MODELS), devices=rng.choice([16, 64, 128]), **kwargs)
        layout = random_layout(case, rng)
        if not MEGATRON.check(case, layout):
            count -= 1
            yield case, layout


@pytest.mark.parametrize("seed", range(4))
def test_every_legal_layout_gives_valid_bash_with_known_flags(seed):
    for case, layout in legal(10, seed):
        script = write(case, layout)["train.sh"].text
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        found = flags(case, layout)
        assert set(found) <= set(surface().at("0.16"))
        assert found["--mock-data"] == []
        assert script == write(case, layout)["train.sh"].text
        assert script.isascii()


def test_the_degrees_the_batch_and_the_expert_grid_are_always_explicit():
    case = case_of("qwen3-30b-a3b")
    layout = layout_of(case, tensor_parallel=4, sequence_parallel=True, expert_parallel=8, microbatch_sequences=2)
    found = flags(case, layout)
    wanted = {
        "--tensor-model-parallel-size": "4", "--pipeline-model-parallel-size": "1", "--context-parallel-size": "1",
        "--expert-model-parallel-size": "8", "--expert-tensor-parallel-size": "1", "--micro-batch-size": "2",
        "--global-batch-size": "256", "--seq-length": "2048",
    }
    assert {flag: found[flag][0] for flag in wanted} == wanted
    assert "--sequence-parallel" in found


def test_uneven_stages_become_a_layout_string_and_even_ones_a_count():
    case = case_of("llama3-70b")
    even = flags(case, layout_of(case, pipeline_parallel=4, virtual_stages=5))
    assert even["--num-virtual-stages-per-pipeline-rank"] == ["5"]
    assert even["--microbatch-group-size-per-virtual-pipeline-stage"] == ["4"]
    split = ((19, 21, 21, 19),)
    uneven = flags(case, layout_of(case, pipeline_parallel=4, stage_layers=split))
    assert uneven["--pipeline-model-parallel-layout"] == ["Et*19|(t*21|)*2t*19L"]
    old = flags(case, layout_of(case, pipeline_parallel=4, stage_layers=split), version="0.12")
    assert (old["--decoder-first-pipeline-num-layers"], old["--decoder-last-pipeline-num-layers"]) == (["19"], ["19"])


def unrolled(text):
    """Cells of a layout string, by the rules of its grammar."""
    text = re.sub(r"\(([^)]+)\)\*([0-9]+)", lambda found: found[1] * int(found[2]), text)
    return re.sub(r"(.)\*([0-9]+)", lambda found: found[1] * int(found[2]), text).split("|")


def test_layout_strings_hold_every_layer_in_its_place():
    rng = random.Random(0)
    for _ in range(300):
        stages, chunks, extra = rng.randint(2, 9), rng.randint(1, 4), rng.choice([0, 0, 1, 2])
        split = tuple(tuple(rng.choice([0, 1, 2, 2, 2, 13]) for _ in range(stages)) for _ in range(chunks))
        cells = unrolled(layout_string(split, extra))
        assert [cell.count("t") for cell in cells] == [count for chunk in split for count in chunk]
        assert cells[0].startswith("E")
        assert cells[-1].endswith("m" * extra + "L")


def test_expressions_evaluate_to_their_pattern():
    rng = random.Random(0)
    for _ in range(300):
        period = [rng.randint(0, 1) for _ in range(rng.randint(1, 6))]
        pattern = (period * 20)[: rng.randint(1, 61)]
        text = expression(pattern)
        assert re.fullmatch(r"[,0-9\[\]()+*]+", text)  # what Megatron-LM lets pass
        assert eval(text) == pattern


def test_models_keep_their_shape():
    deepseek = flags(case_of("deepseek-v3", devices=128), layout_of(case_of("deepseek-v3", devices=128), expert_parallel=64))
    assert deepseek["--moe-layer-freq"] == ["[0]*3+[1]*58"]
    assert {"--multi-latent-attention", "--moe-router-enable-expert-bias", "--qk-layernorm"} <= set(deepseek)
    assert deepseek["--mtp-num-layers"] == ["1"]
    assert deepseek["--vocab-size"] == [str(load_model("deepseek-v3").vocabulary - 1)]
    oss = flags(case_of("gpt-oss-120b"), layout_of(case_of("gpt-oss-120b"), expert_parallel=8))
    assert (oss["--window-size"], oss["--window-attn-skip-freq"]) == (["127,0"], ["([1]*1+[0]*1)*18"])
    assert oss["--softmax-type"] == ["learnable"]
    assert not {"--disable-bias-linear", "--swiglu"} & set(oss)
    gpt3 = flags(case_of("gpt3-175b"), layout_of(case_of("gpt3-175b"), tensor_parallel=8))
    assert gpt3["--position-embedding-type"] == ["learned_absolute"]
    assert not {"--swiglu", "--group-query-attention", "--rotary-base", "--disable-bias-linear"} & set(gpt3)
    qwen = flags(case_of("qwen2.5-7b"), layout_of(case_of("qwen2.5-7b")))
    assert {"--add-qkv-bias", "--disable-bias-linear", "--group-query-attention"} <= set(qwen)


def test_sharding_becomes_the_distributed_optimizer_its_instances_or_fsdp():
    case = case_of("llama3-8b")
    assert "--use-distributed-optimizer" not in flags(case, layout_of(case, zero=0))
    assert "--overlap-param-gather" not in flags(case, layout_of(case, zero=0))
    partial = flags(case, layout_of(case, optimizer_shards=8))
    assert partial["--num-distributed-optimizer-instances"] == ["8"]
    third = layout_of(case, zero=3, tensor_parallel=2)
    found = flags(case, third)
    assert found["--data-parallel-sharding-strategy"] == ["optim_grads_params"]
    assert found["--ckpt-format"] == ["fsdp_dtensor"]
    assert "--init-model-with-meta-device" in found
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in write(case, third)["train.sh"].text
    assert "--use-custom-fsdp" in flags(case, third, version="0.13")
    hybrid = layout_of(case, zero=3, gradient_shards=8, parameter_shards=8)
    assert flags(case, hybrid)["--outer-dp-sharding-strategy"] == ["optim"]


def test_hybrid_context_parallelism_exchanges_heads_inside_and_rings_outside():
    """Megatron takes the sizes from the innermost: heads are exchanged among two ranks of a node, four nodes are a ring."""
    case = case_of("llama3-8b", devices=32)
    layout = layout_of(case, tensor_parallel=4, sequence_parallel=True, context_parallel=8, context_kind="hybrid")
    found = flags(case, layout)
    assert found["--cp-comm-type"] == ["a2a+p2p"]
    assert found["--hierarchical-context-parallel-sizes"] == ["2", "4"]


@pytest.mark.parametrize(("knobs", "device", "value"), [
    ({"tensor_parallel": 2}, "h100-sxm", "1"), ({"context_parallel": 2}, "h100-sxm", "1"), ({}, "h100-sxm", None),
    ({"tensor_parallel": 2}, "b200", None), ({"zero": 3, "tensor_parallel": 2}, "h100-sxm", None),
])
def test_connections_are_one_only_where_megatron_demands_it(knobs, device, value):
    case = case_of("llama3-8b", device=device)
    script = write(case, layout_of(case, **knobs))["train.sh"].text
    assert environment_of(script).get("CUDA_DEVICE_MAX_CONNECTIONS") == value


def test_recomputation_in_all_its_forms():
    case = case_of("llama3-70b")
    modules = flags(case, layout_of(case, recompute=Selective(modules=("mlp", "core_attn"))))
    assert modules["--recompute-modules"] == ["mlp", "core_attn"]
    whole = flags(case, layout_of(case, recompute=Full()))
    assert (whole["--recompute-method"], whole["--recompute-num-layers"]) == (["uniform"], ["1"])
    few = flags(case, layout_of(case, pipeline_parallel=2, recompute=Full(layers=3)))
    assert (few["--recompute-method"], few["--recompute-num-layers"]) == (["block"], ["3"])
    same = flags(case, layout_of(case, pipeline_parallel=2, recompute=Full(layers=((7, 7),))))
    assert same["--recompute-num-layers"] == ["7"]
    with pytest.raises(InputError, match="same number of layers on every stage"):
        write(case, layout_of(case, pipeline_parallel=2, recompute=Full(layers=((3, 0),))))


@pytest.mark.parametrize(("name", "gradient", "wanted"), [
    ("bf16", None, {"--bf16": []}),
    ("bf16", "bf16", {"--bf16": [], "--grad-reduce-in-bf16": []}),
    ("fp16", None, {"--fp16": []}),
    ("fp8-delayed", None, {"--fp8-format": ["hybrid"], "--fp8-recipe": ["delayed"]}),
    ("fp8-cs", None, {"--fp8-format": ["hybrid"], "--fp8-recipe": ["tensorwise"]}),
    ("fp8-mx", None, {"--fp8-format": ["e4m3"], "--fp8-recipe": ["mxfp8"]}),
    ("fp8-blockwise", None, {"--fp8-format": ["e4m3"], "--fp8-recipe": ["blockwise"]}),
    ("nvfp4", None, {"--fp4-format": ["e2m1"], "--fp4-recipe": ["nvfp4"]}),
])
def test_precisions(name, gradient, wanted):
    case = case_of("llama3-8b", precision_name=name, gradient_dtype=gradient)
    found = flags(case, layout_of(case))
    assert {flag: found.get(flag) for flag in wanted} == wanted
    assert "--grad-reduce-in-bf16" not in found or gradient == "bf16"


def test_kernels_follow_the_implementation_that_was_planned_with():
    modern, old = case_of("gpt3-175b"), case_of("gpt3-175b", implementation_name="megatron-2022")
    new = flags(modern, layout_of(modern))
    assert (new["--attention-backend"], new["--cross-entropy-fusion-impl"]) == (["auto"], ["te"])
    assert new["--hidden-dropout"] == ["0.0"]
    main = flags(modern, layout_of(modern), version="main")
    assert main["--cross-entropy-fusion-impl"] == ["native"]
    eager = flags(old, layout_of(old))
    assert (eager["--attention-backend"], eager["--hidden-dropout"]) == (["unfused"], ["0.1"])
    assert "--cross-entropy-loss-fusion" not in eager


def test_optimizer_state_and_its_place():
    case = case_of("llama3-8b", optimizer_name="adamw-bf16-moments")
    assert flags(case, layout_of(case))["--exp-avg-dtype"] == ["bf16"]
    plain = case_of("llama3-8b")
    assert "--optimizer-cpu-offload" in flags(plain, layout_of(plain, offload=("optimizer",)))
    assert "--use-precision-aware-optimizer" not in flags(plain, layout_of(plain))


@pytest.mark.parametrize(("model", "words"), [
    ("bloom-176b", ["ALiBi", "norm behind the embedding"]), ("falcon-40b", ["in parallel"]),
    ("gemma3-27b", ["more norms"]), ("olmo2-7b", ["over all heads"]), ("opt-350m", ["final norm", "narrower"]),
    ("mpt-7b", ["ALiBi", "layer-no-bias norms"]), ("internlm-7b", ["choice of biases"]),
])
def test_a_model_that_cannot_be_built_is_refused_by_the_name_of_its_features(model, words):
    case = case_of("llama3-8b")
    with pytest.raises(InputError) as raised:
        write(replace(case, model=load_model(model)), layout_of(case))
    assert len([message for message in raised.value.messages if message.id == "megatron.model"]) == 1
    assert all(word in str(raised.value) for word in words)


def test_lora_is_refused_and_sft_names_its_data():
    case = case_of("llama3-8b")
    lora = replace(case, training=replace(case.training, task="lora", lora=Lora()))
    with pytest.raises(InputError, match="bridge"):
        write(lora, layout_of(case))
    sft = replace(case, training=replace(case.training, task="sft"))
    script = write(sft, layout_of(case))["train.sh"].text
    assert "--sft" in script
    assert "SFTTokenizer" in script
    with pytest.raises(InputError, match=r"--sft exists in Megatron-LM from 0.13 on; the target is 0.12"):
        write(sft, layout_of(case), version="0.12")


@pytest.mark.parametrize(("text", "minor"), [
    (None, 16), ("0.16", 16), ("0.16.1", 16), ("core_r0.13.0", 13), ("core_v0.14.0", 14), ("v0.15", 15), ("main", 20),
])
def test_versions_are_read_in_all_spellings(text, minor):
    assert parse_version(text).minor == minor


@pytest.mark.parametrize("text", ["0.7", "0.99", "1.0", "", "latest", "0.16; rm -rf /"])
def test_unknown_versions_are_refused(text):
    if text == "":
        assert parse_version(text).minor == 16
        return
    with pytest.raises(InputError, match=r"0\.11 to 0\.19, or main"):
        parse_version(text)


def test_a_flag_that_the_version_lacks_is_refused_with_the_version_that_has_it():
    case = case_of("gpt-oss-120b")
    with pytest.raises(InputError, match=r"exists in Megatron-LM from 0\.15 on; the target is 0\.13"):
        write(case, layout_of(case, expert_parallel=8), version="0.13")


def test_rotary_base_share_and_scale_of_the_experts_are_the_models():
    wanted = {
        "llama3-70b": {"--rotary-base": ["500000"]},
        "deepseek-v3": {"--rotary-base": ["10000"], "--moe-router-topk-scaling-factor": ["2.5"]},
        "deepseek-v2": {"--moe-router-topk-scaling-factor": ["16.0"], "--moe-router-pre-softmax": []},
        "glm4.5": {"--rotary-base": ["1000000"], "--rotary-percent": ["0.5"], "--moe-router-topk-scaling-factor": ["2.5"]},
        "gpt3-175b": {},
    }
    optional = {"--rotary-percent", "--moe-router-topk-scaling-factor", "--moe-router-pre-softmax"}
    for name, values in wanted.items():
        case = case_of(name)
        arguments = Arguments(version=parse_version(None))
        add_model(arguments, case)
        lines = "\n".join(arguments.lines())
        found = bash_words(lines, {})
        assert {flag for flag in optional if flag in found} == values.keys() - {"--rotary-base"}, name
        for flag, words in values.items():
            assert found[found.index(flag) + 1 :][: len(words)] == words, name
    assert "123" in bash_words('--rotary-base "${ROTARY_BASE:-500000}"', {"ROTARY_BASE": "123"})


def bash_words(lines, environment):
    """Words of an array as bash expands them; blanks that are unset are empty."""
    text = f"A=(\n{lines}\n); printf '%s\\n' \"${{A[@]}}\""
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


def test_a_base_that_is_known_is_no_blank_and_one_that_is_not_is_assumed():
    case = case_of("llama3-8b")
    known = write(case, layout_of(case))
    assert "ROTARY_BASE" not in known["README.md"].text
    assert flags(case, layout_of(case))["--rotary-base"] == ["500000"]
    unknown = replace(case, model=replace(case.model, rotary_base=None))
    files = write(unknown, layout_of(unknown))
    assert "| `ROTARY_BASE` | `10000` |" in files["README.md"].text
    assert "The base of RoPE is not known" in files["README.md"].text
    assert flags(unknown, layout_of(unknown))["--rotary-base"] == ["10000"]


def test_the_readme_quotes_blanks_switches_and_nothing_undefined():
    case = case_of("qwen3-30b-a3b")
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True, expert_parallel=8)
    text = write(case, layout, options=Options(label="first choice", train_iters=7))["README.md"].text
    assert "{{" not in text
    for word in ("first choice", "LEARNING_RATE", "MIN_LEARNING_RATE", "sbatch train.sh", "`--overlap-moe-expert-parallel-comm`"):
        assert word in text
    assert "| `TRAIN_ITERS` | `7` |" in text
    on = replace(layout, overlap=Overlap(expert=True))
    assert "`--overlap-moe-expert-parallel-comm`" not in write(case, on)["README.md"].text


def run(script, tmp_path, **environment):
    """The script with stand-ins for torchrun, srun and scontrol, which write down how they were called."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {
        "torchrun": 'printf "%s\\n" torchrun "$PWD" "$@"', "scontrol": "printf 'node-a\\nnode-b\\n'",
        "srun": 'echo srun "${@:1:6}"; shift 6; SLURM_NODEID=1 exec "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    path = tmp_path / "train.sh"
    path.write_text(script)
    done = subprocess.run(
        ["bash", path, "--extra", "a b"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin", "MEGATRON_PATH": str(tools)} | environment,
    )
    return done.stdout.splitlines()


def test_one_script_serves_torchrun_by_hand_and_slurm(tmp_path):
    case = case_of("llama3-8b", devices=16)
    script = write(case, layout_of(case, tensor_parallel=2))["train.sh"].text
    assert "#SBATCH --nodes=2" in script
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    by_hand = run(script, tmp_path / "a", NODE_RANK="1", MASTER_ADDR="boss")
    assert by_hand[:2] == ["torchrun", str(tmp_path / "a" / "tools")]
    assert by_hand[2:12] == [
        "--nnodes", "2", "--nproc-per-node", "8", "--node-rank", "1", "--master-addr", "boss", "--master-port", "6000",
    ]
    assert by_hand[12] == "pretrain_gpt.py"
    assert by_hand[-2:] == ["--extra", "a b"]
    slurm = run(script, tmp_path / "b", SLURM_JOB_ID="1", SLURM_JOB_NODELIST="node-[a-b]")
    assert slurm[0] == "srun --nodes 2 --ntasks 2 --ntasks-per-node 1"
    assert slurm[1] == "torchrun"
    assert slurm[7:11] == ["--node-rank", "1", "--master-addr", "node-a"]
    assert slurm[13:] == by_hand[12:]
    alone = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=False)
    assert (alone.returncode != 0, alone.stdout) == (True, "")
    assert "give NODE_RANK and MASTER_ADDR" in alone.stderr


def test_real_data_replaces_mock_data(tmp_path):
    case = case_of("llama3-8b", devices=8)
    script = write(case, layout_of(case))["train.sh"].text
    words = run(script, tmp_path, DATA_PATH="/data/x", TOKENIZER_MODEL="meta/llama", CHECKPOINT_DIR="/ckpt")
    assert "--mock-data" not in words
    assert words[words.index("--tokenizer-model") + 1] == "meta/llama"
    assert words[words.index("--padded-vocab-size") + 1] == "128256"
    assert words[words.index("--save") + 1] == "/ckpt"


def probe(case, layout, tmp_path, **kwargs):
    """Words and environment that probe.sh gives to python, with stand-ins for python and make."""
    files = write(case, layout, **kwargs)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {"python": 'printf \'%s\\n\' "$RANK" "$WORLD_SIZE" "$LOCAL_RANK" "$@"', "make": "true"}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    for file in files.values():
        (tmp_path / file.path).write_text(file.text)
    done = subprocess.run(
        ["bash", tmp_path / "probe.sh"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin", "MEGATRON_PATH": str(tools), "DATA_PATH": "/data/mine", "CHECKPOINT_DIR": "/ckpt"},
    )
    return done.stdout.splitlines(), files["README.md"].text


def test_the_probe_runs_the_fullest_stage_of_the_same_arguments_on_one_device(tmp_path):
    case = case_of("qwen3-30b-a3b")
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True, pipeline_parallel=4, expert_parallel=8)
    estimate = replace(predict(case, layout), peak_stage=2)
    words, readme = probe(case, layout, tmp_path, options=Options(estimate=estimate))
    assert words[:4] == ["32", "64", "0", "pretrain_gpt.py"]  # the third of four stages of 16 ranks
    assert {"--fake-process-group", "--mock-data", "--moe-router-force-load-balancing"} <= set(words)
    assert not {"--save", "--data-path"} & set(words)
    assert words[words.index("--train-iters") + 1] == "3"
    assert "--anchor-memory 2=XMiB" in readme
    assert set(words) & {"--pipeline-model-parallel-size", "--expert-model-parallel-size"}


def test_a_dense_model_needs_no_forced_balance_and_old_versions_and_flex_have_no_probe(tmp_path):
    case = case_of("llama3-8b")
    assert "--moe-router-force-load-balancing" not in probe(case, layout_of(case), tmp_path)[0]
    assert "probe.sh" not in write(case, layout_of(case), version="0.15")
    flex = case_of("qwen3-30b-a3b", implementation_name="megatron-te-deepep")
    assert "probe.sh" not in write(flex, layout_of(flex, expert_parallel=8))
    assert "## Probe" not in write(flex, layout_of(flex, expert_parallel=8))["README.md"].text


@pytest.mark.parametrize(("version", "model", "knobs", "device", "value"), [
    ("0.11", "llama3-8b", {}, "h100-sxm", "1"), ("0.12", "llama3-8b", {"tensor_parallel": 2}, "b200", "1"),
    ("0.12", "llama3-8b", {}, "h100-sxm", None),
])
def test_old_versions_ask_for_one_connection_more_often(version, model, knobs, device, value):
    case = case_of(model, device=device)
    script = write(case, layout_of(case, **knobs), version=version)["train.sh"].text
    assert environment_of(script).get("CUDA_DEVICE_MAX_CONNECTIONS") == value


def test_what_a_release_lacks_is_no_feature_of_it():
    old, new = MEGATRON.at("0.11").features, MEGATRON.at("main").features
    assert (old.zero_stages, old.selective_modules, old.optimizer_offload, old.uneven_stages) == (
        (0, 1),
        ("core_attn",),
        False,
        False,
    )
    assert (new.zero_stages, new.optimizer_offload, new.uneven_stages) == ((0, 1, 2, 3), True, True)
    assert "ep" in new.overlaps and "ep" not in MEGATRON.at("0.13").features.overlaps
    assert "shared_experts" not in MEGATRON.at("0.13").features.selective_modules
