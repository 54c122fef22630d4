"""torchtitan: TOML of 0.2.2, flags of 0.3.0, tokens of main, against the framework's own parsers and splits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomlkit
from judged import torchtitan_case
from megatron_cases import case_of, layout_of
from oracles_run import judge, needs
from tests.draws import draws, seed

from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Overlap, Selective
from meshwright.errors import InputError
from meshwright.frameworks import File, framework
from meshwright.frameworks.editing import edit
from meshwright.frameworks.settings import Given
from meshwright.frameworks.torchtitan.layout_keys import split_of
from meshwright.frameworks.torchtitan.stages import by_chunk, generated, in_order, split_keys
from meshwright.testing import any_plans, legal_plans, offered
from meshwright.testing.promises import read_back
from strategies import small_case

RELEASES = {"torchtitan@0.2.2": "torchtitan-0.2.2", "torchtitan@0.3.0": "torchtitan-0.3.0"}
OLD, NEW, MAIN = framework("torchtitan@0.2.2"), framework("torchtitan"), framework("torchtitan@main")
ALL = {"0.2": OLD, "0.3": NEW, "main": MAIN}


def case(model="llama3-8b", implementation="torchtitan", **more):
    return case_of(model, implementation_name=implementation, **more)


def plan(case, zero=3, **knobs):
    """A layout with FSDP over all data- and context-parallel ranks."""
    return layout_of(case, zero=zero, **({"sequence_parallel": True} if knobs.get("tensor_parallel", 1) > 1 else {}), **knobs)


def configuration(adapter, *what):
    return [file for file in adapter.write(*what) if file.path.endswith((".toml", ".sh")) and not file.path.startswith("probe")]


def found(adapter, reading, case=None):
    return {finding.message.id for check in adapter.checks for finding in check.findings(reading, case)}


def toml(settings):
    document = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        section = document
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
    return [File(path="train.toml", text=tomlkit.dumps(document))]


def script(*flags, before=""):
    text = (
        f"#!/bin/bash\n{before}\ntorchrun --nnodes 8 --nproc-per-node 8 -m torchtitan.train \\\n  " + " \\\n  ".join(flags) + "\n"
    )
    return [File(path="train.sh", text=text)]


LLAMA = ("--module llama3", "--config llama3_8b")


# --- oracles -------------------------------------------------------------------------------------------------------
def verdicts(oracle, adapter, plans):
    """One verdict for each plan."""
    return judge(oracle, [torchtitan_case((adapter.write(*plan), *plan)) for plan in plans])


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "oracle"), [pytest.param(name, oracle, marks=needs(oracle), id=oracle) for name, oracle in RELEASES.items()]
)
def test_torchtitan_takes_what_is_written_and_splits_the_model_as_planned(name, oracle):
    adapter = framework(name)
    plans = list(legal_plans(name, draws(40), seed=seed(0)))
    for feature in offered(adapter.features):
        plans += legal_plans(name, draws(4), feature=feature, seed=seed(0))
    for (there, layout), verdict in zip(plans, verdicts(oracle, adapter, plans), strict=True):
        assert verdict["accepted"], (there.model.name, layout, verdict["why"])
        if layout.pipeline_parallel > 1:
            counts = [sum(name.startswith("layers.") for name in part) for part in verdict["config"]["module_fqns"]]
            assert counts == in_order(split_of(there, layout), layout.schedule), (there.model.name, layout)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "oracle"), [pytest.param(name, oracle, marks=needs(oracle), id=oracle) for name, oracle in RELEASES.items()]
)
def test_what_torchtitan_takes_the_limits_take(name, oracle):
    """Random layouts: the limits refuse no more than 5 % of what the parsers take, beside what only building a model shows."""
    later = {"knobs", "heads", "key-value-heads", "width", "experts", "expert-width", "expert-sequence", "expert-parallel",
    "stages", "few",
             "sequence-maximum", "context-attention", "tied", "microbatches", "rounds", "dual-pipe", "data-parallel",
             "split"}
    adapter = framework(name)
    drawn = any_plans(name, draws(80), seed=seed(0))
    plans = [each for each in drawn if each[1].zero_stage != 1 and not isinstance(each[1].recompute, Mixed)]
    plans = [each for each in plans if not {"torchtitan.schedule", "torchtitan.split"} & {m.id for m in adapter.check(*each)}]
    judged = verdicts(oracle, replace(adapter, limits=()), plans)
    accepted = [each for each, verdict in zip(plans, judged, strict=True) if verdict["accepted"]]
    odd = [
        ids for each in accepted if (ids := {m.id.removeprefix("torchtitan.") for m in adapter.check(*each)}) and not ids <= later
    ]
    assert len(accepted) > draws(8)
    assert len(odd) <= 0.05 * len(accepted), odd


# --- real files ----------------------------------------------------------------------------------------------------
P, T, A = "parallelism.", "training.", "activation_checkpoint."
PER_OPERATOR = Selective(modules=("op",))
REAL = {
    "llama3_8b": ({"model.name": "llama3",
    "model.flavor": "8B", T + "local_batch_size": 1, T + "seq_len": 8192, P + "data_parallel_shard_degree": -1,
                   A + "mode": "selective", A + "selective_ac_option": "op"}, 8, {"data_parallel": 8,
                   "parameter_shards": 8, "recompute": PER_OPERATOR}, 8),
    "llama3_70b": ({"model.name": "llama3",
    "model.flavor": "70B", T + "local_batch_size": 8, T + "seq_len": 8192, P + "tensor_parallel_degree": 8,
                    A + "mode": "full"}, 256, {"tensor_parallel": 8, "sequence_parallel": True, "data_parallel": 32,
                    "recompute": Full()}, 256),
    "llama3_405b": ({"model.name": "llama3",
    "model.flavor": "405B", T + "local_batch_size": 2, T + "seq_len": 8192, P + "tensor_parallel_degree": 8,
                     P + "enable_async_tensor_parallel": True, A + "mode": "full", "compile.enable": True},
                    512, {"data_parallel": 64, "recompute": Full()}, 128),
    "llama3_debug": ({"model.name": "llama3",
    "model.flavor": "debugmodel", T + "local_batch_size": 8, T + "seq_len": 2048, A + "mode": "selective",
                      A + "selective_ac_option": "2"}, 8, {"recompute": Full(layers=((3,),))}, 64),
    "llama4_17bx128e": ({"model.name": "llama4", "model.flavor": "17bx128e", T + "local_batch_size": 1, T + "seq_len": 8192,
                         P + "tensor_parallel_degree": 8, P + "pipeline_parallel_degree": 4,
                         P + "pipeline_parallel_schedule": "1F1B", A + "mode": "full"},
                        256, {"pipeline_parallel": 4, "stage_layers": ((12, 13, 12, 11),), "parameter_shards": 1,
                        "gradient_shards": 8,
                              "expert_tensor_parallel": 8}, 8),
    "deepseek_v3_16b": ({"model.name": "deepseek_v3", "model.flavor": "16B", T + "local_batch_size": 4, T + "seq_len": 4096,
                         P + "expert_parallel_degree": 8, P + "pipeline_parallel_schedule": "Interleaved1F1B",
                         A + "mode": "selective",
                         A + "selective_ac_option": "op"}, 64, {"expert_parallel": 8, "expert_tensor_parallel": 1,
                         "schedule": "1f1b"}, 256),
    "deepseek_v3_671b": ({"model.name": "deepseek_v3", "model.flavor": "671B", T + "local_batch_size": 4, T + "seq_len": 4096,
                          P + "expert_parallel_degree": 1, A + "mode": "selective", A + "selective_ac_option": "op"},
                         1024, {"data_parallel": 1024, "microbatch_sequences": 4}, 4096),
    "qwen3_32b": ({"model.name": "qwen3", "model.flavor": "32B", T + "local_batch_size": 2, T + "seq_len": 4096,
        A + "mode": "full"},
                  64, {"data_parallel": 64, "microbatch_sequences": 2}, 128),
    "gpt_oss_debug": ({"model.name": "gpt_oss",
    "model.flavor": "debugmodel", T + "local_batch_size": 8, T + "seq_len": 2048, A + "mode": "none"},
                      8, {"recompute": NoRecompute()}, 64),
}
"""Facts of torchtitan 0.2.2's train_configs/*.toml: keys, ranks, what they mean, sequences of the global batch."""


@pytest.mark.parametrize("name", REAL)
def test_real_toml_is_read(name):
    settings, devices, expected, batch = REAL[name]
    reading = OLD.read(toml(settings), given=Given(num_devices=devices))
    assert reading.version == "0.2" and reading.messages == ()
    assert {field: getattr(reading.layout, field) for field in expected} == expected
    assert (reading.said.global_batch_sequences, reading.said.sequence_tokens) == (batch, settings[T + "seq_len"])


def test_a_registered_configuration_brings_its_values():
    reading = NEW.read(script("--module llama3", "--config llama3_70b", "--parallelism.pipeline-parallel-degree 2",
                              "--training.disable-cuda-graphs", "--training.local_batch_size=16"))
    layout = reading.layout
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel, layout.num_microbatches) == (8, 2, 4, 16)
    assert layout.recompute == Full() and reading.said.sequence_tokens == 8192 and reading.said.figures["layers"] == 80
    assert layout.stage_layers == ((40, 40),)


def test_flags_are_read_in_their_spellings():
    reading = NEW.read(script(*LLAMA, "--parallelism.tensor_parallel_degree=4", "--parallelism.no-enable-sequence-parallel",
                              "--compile.enable", "activation-checkpoint:full"))
    assert reading.layout.tensor_parallel == 4 and not reading.layout.sequence_parallel
    assert reading.layout.recompute == Full()
    assert reading.source.value("compile.enable") is True


@pytest.mark.parametrize(
    ("flags", "launch"),
    [((), None), (("--optimizer.implementation=fused",), None), (("--optimizer.implementation=foreach",), "optimizer=plain"),
     (("--optimizer.implementation=for-loop",), "optimizer=plain")],
)
def test_an_optimizer_that_is_not_fused_is_a_setting_of_the_launch(flags, launch):
    assert NEW.read(script(*LLAMA, *flags)).said.launch == launch


def test_main_counts_in_tokens():
    reading = NEW.read(script(*LLAMA, "--training.max-context-length 4096", "--training.num-tokens-per-microbatch-per-dp-rank 8192",
                              "--parallelism.pipeline-parallel-degree 2", "--parallelism.num-pp-microbatches 4",
                              "--training.disable-cuda-graphs"))
    assert reading.version == "main"
    assert (reading.layout.microbatch_sequences, reading.layout.num_microbatches, reading.layout.data_parallel) == (2, 4, 32)
    assert reading.said.global_batch_sequences == 256


@pytest.mark.parametrize(
    ("per_rank", "context", "step", "pp", "many", "expected"),
    [
        (8192, 4096, None, 1, 4, (2, 1, 128)), (8192, 4096, 8192 * 64 * 3, 1, 4, (2, 3, 384)),
        (8192, 4096, None, 2, 4, (2, 4, 256)),
        (8192, 4096, 8192 * 32 * 4 * 2, 2, 4, (2, 8, 512)), (8192, 4096, 8192 * 64 * 3 + 1, 1, 4, "must be divisible by"),
        (8192, 4096, 8192 * 32 * 3, 2, 2, "must be divisible by"), (8192, 4096, 0, 1, 4, "must be divisible by"),
        (8192, 3000, None, 1, 4, "no whole number of sequences of 3000"), (4096, 8192, None, 1, 4, "no whole number of sequences"),
    ],
)
def test_batches_in_tokens(per_rank, context, step, pp, many, expected):
    """64 devices: micro-batch, micro-batches, and the sequences of a step."""
    reading = NEW.read(script(*LLAMA, f"--training.max-context-length {context}", f"--parallelism.pipeline-parallel-degree {pp}",
                              f"--training.num-tokens-per-microbatch-per-dp-rank {per_rank}",
                              f"--parallelism.num-pp-microbatches {many}",
                              *([] if step is None else [f"--training.num-tokens-per-train-step {step}"]),
                              "--training.disable-cuda-graphs"))
    if isinstance(expected, str):
        assert expected in " ".join(map(str, reading.messages))
        return
    layout = reading.layout
    assert (layout.microbatch_sequences, layout.num_microbatches, reading.said.global_batch_sequences) == expected
    assert any("drains" in str(each) for each in reading.messages) == (pp > 1 and layout.num_microbatches > many)


def test_the_release_is_seen():
    for release, adapter in ALL.items():
        files = configuration(adapter, case(), plan(case()))
        assert NEW.read(files).version == release
    assert framework("torchtitan").version == "0.3"
    with pytest.raises(InputError, match="unknown"):
        NEW.at("0.1")


def test_accumulation_beside_a_pipeline_is_remarked():
    settings = REAL["llama3_8b"][0] | {P + "pipeline_parallel_degree": 2, T + "local_batch_size": 4, T + "global_batch_size": 64}
    reading = OLD.read(toml(settings), given=Given(num_devices=16))
    assert reading.layout.num_microbatches == 8 and "drains 2 times" in str(reading.messages[0])


@pytest.mark.parametrize(("change", "words"), [
    ({T + "global_batch_size": 500}, "global batch size must be multiple of local batch size"),
    ({P + "data_parallel_replicate_degree": 2, P + "data_parallel_shard_degree": 3}, "Invalid parallel dims: dp_replicate"),
    ({P + "pipeline_parallel_degree": 2, P + "pipeline_parallel_schedule": "ZBVZeroBubble"}, "ZBVZeroBubble has no model here"),
    ({P + "pipeline_parallel_degree": 2, P + "pipeline_parallel_microbatch_size": 3}, "must be divisible by microbatch_size 3"),
    ({P + "pipeline_parallel_degree": 4, P + "pipeline_parallel_layers_per_stage": 9},
     "must be divisible by pipeline parallel size"),
    ({P + "pipeline_parallel_degree": 4, P + "module_fqns_per_model_part": [["a"], ["b"]]}, "evenly divisible by pp_degree"),
    ({P + "tensor_parallel_degree": "2"}, "a whole number is expected"),
    ({P + "tensor_parallel_degree": 0}, "at least 1"),
    ({A + "mode": "memory_budget"}, "memory_budget has no model here"),
])
def test_what_gives_no_layout_says_why(change, words):
    settings = REAL["llama3_70b"][0] | {P + "tensor_parallel_degree": 1} | change
    reading = OLD.read(toml(settings), given=Given(num_devices=64))
    assert reading.layout is None
    assert words in " ".join(map(str, reading.messages))


def test_without_devices_the_shard_degree_is_unknown():
    reading = OLD.read(toml(REAL["llama3_8b"][0]))
    assert reading.layout is None and "give --devices" in str(reading.messages[0])


# --- splits --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "dualpipev", "zb1p"])
@pytest.mark.parametrize(("layers", "pp"), [(32, 4), (30, 4), (61, 8), (80, 2)])
def test_a_split_comes_back(schedule, layers, pp):
    chunks = {"interleaved": 3, "dualpipev": 2}.get(schedule, 1)
    counts = [layers // (pp * chunks)] * (pp * chunks)
    counts[-1] += layers - sum(counts)
    split = by_chunk(counts, pp, schedule)
    assert in_order(split, schedule) == counts
    keys = split_keys(split, schedule, "output")
    parts = keys.get(P + "module_fqns_per_model_part")
    if parts is None:
        first, last = keys[P + "pipeline_parallel_first_stage_less_layers"], keys[P + "pipeline_parallel_last_stage_less_layers"]
        assert generated(pp * chunks, layers, first, last) == counts
    else:
        assert [name for part in parts for name in part] == [
            "tok_embeddings",
            *(f"layers.{i}" for i in range(layers)),
            "norm",
            "output",
        ]


# --- limits --------------------------------------------------------------------------------------------------------
MOE = "qwen3-30b-a3b"
BROKEN = {
    "model": (case("llama2-7b"), {}),
    "precision": (case(precision_name="fp8-cs"), {}),
    "optimizer": (case(optimizer_name="sgd"), {}),
    "knobs": (case(), {"zero": 1}),
    "expert-parallel": (case(MOE), {"zero": 0, "expert_parallel": 2}),
    "experts": (case(), {"expert_parallel": 2}),
    "expert-width": (case(MOE, devices=80, batch=320), {"expert_tensor_parallel": 5, "expert_parallel": 2, "tensor_parallel": 5}),
    "heads": (case(devices=48, batch=192), {"tensor_parallel": 3}),
    "key-value-heads": (case(), {"tensor_parallel": 16}),
    "width": (case(devices=48, batch=192), {"tensor_parallel": 3}),
    "sequence": (case(sequence=2050), {"context_parallel": 2, "context_kind": "all-gather", "tensor_parallel": 2}),
    "tied": (case("qwen3-1.7b"), {"pipeline_parallel": 2}),
    "async": (case(implementation="torchtitan-eager"), {"tensor_parallel": 2, "overlap": Overlap(tensor=True)}),
    "schedule": (case(), {"pipeline_parallel": 2, "virtual_stages": 2, "schedule": "1f1b"}),
    "stages": (case(), {"pipeline_parallel": 16, "virtual_stages": 4}),
    "split": (case(), {"pipeline_parallel": 2, "stage_layers": ((10, 10),)}),
    "microbatches": (case(batch=32), {"pipeline_parallel": 8, "microbatch_sequences": 4}),
    "rounds": (case(devices=32, batch=72), {"pipeline_parallel": 4, "virtual_stages": 2}),
    "dual-pipe": (case(batch=64), {"pipeline_parallel": 8, "virtual_stages": 2, "schedule": "dualpipev"}),
    "few": (case(batch=64), {"pipeline_parallel": 16, "virtual_stages": 2, "microbatch_sequences": 2}),
    "batch": (case(), {"num_microbatches": 7}),
}


@pytest.mark.parametrize("release", ALL)
@pytest.mark.parametrize("limit", BROKEN)
def test_a_limit_fires(limit, release):
    where, knobs = BROKEN[limit]
    assert f"torchtitan.{limit}" in {message.id for message in ALL[release].check(where, plan(where, **knobs))}


@pytest.mark.parametrize(("release", "limit", "where", "knobs"), [
    ("0.2", "data-parallel", case(), {"zero": 0, "tensor_parallel": 2}),
    ("0.2", "expert-tensor-parallel", case(MOE), {"tensor_parallel": 4, "expert_tensor_parallel": 2, "expert_parallel": 2}),
    ("0.3", "sequence-maximum", case(MOE, sequence=65536), {}),
    ("0.3", "context-attention", case("gpt-oss-20b"), {"context_parallel": 2, "context_kind": "all-gather"}),
    ("0.3", "expert-sequence", case(MOE), {"tensor_parallel": 2, "sequence_parallel": False}),
])
def test_a_limit_of_one_release_fires(release, limit, where, knobs):
    layout = layout_of(where, **({"zero": 3, "sequence_parallel": True} | knobs))
    assert f"torchtitan.{limit}" in {message.id for message in ALL[release].check(where, layout)}


@pytest.mark.parametrize("release", ALL)
def test_limits_are_silent_on_plain_layouts(release):
    for model, knobs in (("llama3-8b", {"tensor_parallel": 2, "pipeline_parallel": 2}), (MOE, {"expert_parallel": 8}),
                         ("deepseek-v3", {"expert_parallel": 8, "pipeline_parallel": 4}), ("qwen3-8b",
                          {"recompute": Full()})):
        assert ALL[release].check(case(model), plan(case(model), **knobs)) == ()


# --- checks --------------------------------------------------------------------------------------------------------
RIGHT = REAL["llama3_8b"][0] | {P + "tensor_parallel_degree": 2, P + "data_parallel_shard_degree": 4, "compile.enable": True}
WRONG = {
    "expert-parallel-silent": {P + "expert_parallel_degree": 3},
    "parts-incomplete": {P + "module_fqns_per_model_part": [["tok_embeddings", "layers.0"], ["layers.2", "norm"]]},
    "parts-and-layers": {P + "module_fqns_per_model_part": [["layers.0"], ["layers.1"]],
        P + "pipeline_parallel_layers_per_stage": 4},
    "async-eager": {P + "enable_async_tensor_parallel": True, "compile.enable": False},
    "budget-eager": {A + "mode": "memory_budget", "compile.enable": False},
    "float8-eager": {"model.converters": ["quantize.linear.float8"], "compile.enable": False},
    "converter": {"model.converters": ["float8"]},
    "renamed": {"training.batch_size": 8},
    "tokenizer-path": {"model.tokenizer_path": "x"},
    "pure-bfloat16": {T + "dtype": "bfloat16"},
    "flavour": {"model.flavor": "9B"},
}
FLAGS = {
    "cuda-graphs": ("--parallelism.pipeline-parallel-degree 2",),
    "cuda-graphs-experts": ("--parallelism.expert-parallel-degree 2",),
    "async-eager": ("--compile.enable-async-tensor-parallel",),
    "config": ("--config llama3_9b",),
    "pure-bfloat16": ("--training.dtype bfloat16",),
}


@pytest.mark.parametrize("check", WRONG)
def test_a_check_fires_on_toml(check):
    given = Given(num_devices=8)
    assert f"torchtitan.{check}" not in found(OLD, OLD.read(toml(RIGHT), given=given))
    assert f"torchtitan.{check}" in found(OLD, OLD.read(toml(RIGHT | WRONG[check]), given=given))


@pytest.mark.parametrize("check", FLAGS)
def test_a_check_fires_on_flags(check):
    assert f"torchtitan.{check}" not in found(NEW, NEW.read(script(*LLAMA)))
    assert f"torchtitan.{check}" in found(NEW, NEW.read(script(*LLAMA, *FLAGS[check])))


def test_a_check_fires_on_the_launch():
    both = (*LLAMA, "--parallelism.tensor-parallel-degree 2")
    assert "torchtitan.connections" in found(NEW, NEW.read(script(*both, before="export CUDA_DEVICE_MAX_CONNECTIONS=1")))
    assert "torchtitan.connections" not in found(NEW, NEW.read(script(*both, before="export CUDA_DEVICE_MAX_CONNECTIONS=32")))
    assert "torchtitan.allocator" in found(NEW, NEW.read(script(*LLAMA)))
    assert "torchtitan.allocator" not in found(
        NEW, NEW.read(script(*LLAMA, before="export PYTORCH_ALLOC_CONF=expandable_segments:True"))
    )
    assert "torchtitan.module" in found(NEW, NEW.read(script("--config llama3_8b")))


def test_every_check_is_tested():
    tested = {*WRONG, *FLAGS, "connections", "allocator", "module"}
    assert {check.id.removeprefix("torchtitan.") for adapter in ALL.values() for check in adapter.checks} <= tested


# --- editing -------------------------------------------------------------------------------------------------------
def test_toml_is_edited_in_one_line():
    text = "# mine\n" + toml(RIGHT)[0].text.replace("local_batch_size = 1\n", "local_batch_size = 1   # small\n")
    there = case(devices=8, batch=4, sequence=8192)
    reading = OLD.read([File(path="train.toml", text=text)], given=Given(num_devices=8))
    assert edit(OLD, reading, there, reading.layout).files == ()
    other = replace(reading.layout, recompute=Full())
    edited = edit(OLD, reading, there, other)
    assert OLD.read(list(edited.files), given=Given(num_devices=8)).layout == other
    assert "# small" in edited.files[0].text and edited.files[0].text.startswith("# mine")
    assert len([line for line in edited.diff.splitlines() if line.startswith("+") and not line.startswith("+++")]) == 1


def test_flags_are_edited_before_the_sub_command():
    files = script(*LLAMA, "--parallelism.tensor_parallel_degree 2", "--training.steps 5 activation-checkpoint:full")
    there = case(batch=32, sequence=8192)
    reading = NEW.read(files)
    shards = {f"{kind}_shards": 16 for kind in ("optimizer", "gradient", "parameter")}
    other = replace(reading.layout, tensor_parallel=4, data_parallel=16, **shards,
                    microbatch_sequences=1, num_microbatches=2, recompute=NoRecompute())
    edited = edit(NEW, reading, there, other)
    text = edited.files[0].text
    assert "--parallelism.tensor_parallel_degree 4" in text and "activation-checkpoint:full" not in text
    assert text.rstrip().endswith("activation-checkpoint:none")
    assert NEW.read(list(edited.files)).layout == NEW.normal(there, other)


# --- what is written -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("release", ALL)
def test_the_probe_pretends_to_be_the_whole_job(release):
    layout = plan(case(), tensor_parallel=2, pipeline_parallel=2)
    files = {file.path: file.text for file in ALL[release].write(case(), layout)}
    assert "export NGPU=64 RANK=0 LOCAL_RANK=0" not in files["launch.sh"]
    assert "NGPU=64 RANK=0 LOCAL_RANK=0" in files["probe.sh"] and "--comm.mode fake_backend" in files["probe.sh"]
    assert files["probe.sh"].count("--training.steps") == 1
    assert "--anchor-memory" in files["README.md"]


def test_a_model_without_a_configuration_gets_one():
    files = {file.path: file.text for file in NEW.write(case("qwen3-235b-a22b"), plan(case("qwen3-235b-a22b"), expert_parallel=8))}
    assert "model_registry('235B-A22B')" in files["meshwright_flavour.py"]
    assert "--module meshwright_flavour" in files["launch.sh"] and 'PYTHONPATH="$HERE' in files["launch.sh"]
    compile(files["meshwright_flavour.py"], "meshwright_flavour.py", "exec")
    assert "meshwright_flavour.py" not in {file.path for file in NEW.write(case(), plan(case()))}


def test_fp8_is_written_for_the_release_that_has_it():
    there = case(precision_name="fp8-torchao")
    text = next(file.text for file in OLD.write(there, plan(there)) if file.path == "config.toml")
    assert tomlkit.parse(text).unwrap()["model"]["converters"] == ["quantize.linear.float8"]
    assert OLD.read([File(path="config.toml", text=text)], given=Given(num_devices=64)).said.precision == "fp8-torchao"
    with pytest.raises(InputError, match="fp8-torchao"):
        NEW.write(there, plan(there))


def test_every_nth_layer_is_a_count_for_each_part():
    there = case()
    layout = plan(there, pipeline_parallel=2, stage_layers=((17, 15),), recompute=Full(layers=((8, 7),)))
    text = next(file.text for file in OLD.write(there, layout) if file.path == "config.toml")
    assert tomlkit.parse(text).unwrap()["activation_checkpoint"] == {"mode": "selective", "selective_ac_option": "2"}
    assert isinstance(OLD.read([File(path="c.toml", text=text)], given=Given(num_devices=64, model=there.model)).layout, Layout)


def test_a_configuration_of_its_own_has_not_what_one_of_its_name_has():
    """torchtitan's llama3_405b has asynchronous tensor parallelism on, a module that is written for such a model has not."""
    case = small_case("llama3.1-405b", layers=126, devices=128, batch=256, sequence=8192)
    layout = Layout(tensor_parallel=8, sequence_parallel=True, pipeline_parallel=16, num_microbatches=256, recompute=Full(),
                    schedule="zb1p")
    runner = framework("torchtitan")
    for on in (False, True):
        planned = replace(layout, overlap=replace(runner.overlap(case, layout), tensor=on))
        if not runner.check(case, planned):
            assert read_back(runner, case, runner.write(case, planned)).layout.overlap.tensor is on
    assert not runner.check(case, replace(layout, overlap=runner.overlap(case, layout)))
