"""ChatLearn: written YAML is accepted by its own classes, real configurations are read, mistakes are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import combinations, product

import pytest
import yaml
from judged import chatlearn_case
from oracles_run import judge, needs, source

from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.domain.label import label
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
from meshwright.estimate.certainty import regime_of_case
from meshwright.frameworks import framework
from meshwright.frameworks.base import File
from meshwright.frameworks.chatlearn.limits import FSDP_LIMITS, LIMITS, OWN
from meshwright.frameworks.chatlearn.patch import FIELDS, patch_file
from meshwright.frameworks.editing import edit
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.settings import Given
from meshwright.packing.modes.chatlearn import kept_limit, most_tokens
from meshwright.testing import any_plans, legal_plans, offered

CHATLEARN, ON_FSDP = framework("chatlearn"), framework("chatlearn@fsdp")
T = "models.policy_trainer"
QUIET = Overlap(gradient_reduce=False, parameter_gather=False)


def case_of(model="qwen3-30b-a3b", devices=32, batch=256, sequence=4096, **training):
    cluster = cluster_for("h100-sxm", num_devices=devices)
    return make_case(model, cluster, global_batch_sequences=batch, sequence_tokens=sequence, task="sft", framework="chatlearn",
                     calibration="none", **training)


def layout_of(case, **knobs):
    """A layout that fills the cluster and makes the batch."""
    plain = Layout(**({"overlap": QUIET} | knobs))
    dp = case.cluster.num_devices // (plain.tensor_parallel * plain.context_parallel * plain.pipeline_parallel)
    return Layout(**({
        "overlap": QUIET, "data_parallel": dp, "optimizer_shards": dp * plain.context_parallel,
        "num_microbatches": case.batch.global_batch_sequences // (dp * plain.microbatch_sequences),
        "schedule": "interleaved" if plain.virtual_stages > 1 else "1f1b",
    } | knobs))


def fsdp_of(case, **knobs):
    world = case.cluster.num_devices
    return layout_of(
        case, **({"optimizer_shards": world, "gradient_shards": world, "parameter_shards": world, "recompute": Full()} | knobs)
    )


def read(values, *, devices=None, model=None, files=()):
    """A YAML of dotted keys, read."""
    document = {}
    for key, value in values.items():
        section = document
        *names, last = key.split(".")
        for name in names:
            section = section.setdefault(name, {})
        section[last] = value
    given = Given(num_devices=devices, model=load_model(model) if model else None)
    return CHATLEARN.read([File(path="grpo.yaml", text=yaml.safe_dump(document)), *files], given=given)


def found(reading, case=None):
    return {finding.message.id for check in CHATLEARN.checks for finding in check.findings(reading, case)}


# What is written.


def plans(count=200, each=20):
    yield from legal_plans("chatlearn", count, seed=5)
    yield from legal_plans("chatlearn@fsdp", each, seed=5)
    for feature in offered(CHATLEARN.features):
        yield from legal_plans("chatlearn", each, seed=1, feature=feature)


@pytest.mark.oracle
@pytest.mark.slow
@needs("chatlearn")
def test_every_plan_is_accepted_by_chatlearn_s_own_classes():
    """As they are written, after ``git apply`` of the patch that is written with them."""
    cases = [chatlearn_case((CHATLEARN.write(case, layout), case, layout)) for case, layout in plans()]
    verdicts = judge("chatlearn", cases)
    assert not [verdict["why"] for verdict in verdicts if not verdict["accepted"]]
    assert len(verdicts) >= 400
    needing = [case | {"files": {"grpo.yaml": case["files"]["grpo.yaml"]}} for case in cases if "class" in
               case["files"].get("chatlearn.patch", "")]
    assert not any(verdict["accepted"] for verdict in judge("chatlearn", needing)), "the patch is not needed"


@pytest.mark.oracle
@needs("chatlearn")
def test_its_classes_refuse_what_our_rules_of_their_parser_refuse():
    """Of random layouts the two agree, but for what only Megatron-LM finds later."""
    told = {"chatlearn.batch", "chatlearn.microbatch"}
    cases, ours = [], []
    for case, layout in any_plans("chatlearn", 150, seed=3):
        plain = replace(layout, recompute=NoRecompute() if layout.zero_stage < 2 else Full(), stage_layers=None)
        key = {"tp": plain.tensor_parallel, "pp": plain.pipeline_parallel, "cp": plain.context_parallel}
        batch = case.batch.global_batch_sequences + (1 if plain.microbatch_sequences == 4 else 0)
        values = {
            "train_backend": "megatron", "train_global_batch_size": batch, "sample_per_episode": batch, "num_episode": 1,
            "train_micro_batch_size": plain.microbatch_sequences, "save_episode_interval": 1, "data_path": "x", "output_dir": "y",
        }
        trainer = {
            "trainable": True, "num_gpu": plain.world, "tensor_model_parallel_size": key["tp"],
            "pipeline_model_parallel_size": key["pp"],
            "context_parallel_size": key["cp"],
        }
        other = {"num_gpu": plain.world, "num_inference_per_prompt": 1}
        models = {
            "policy_trainer": trainer,
            "ref_policy": trainer | {"trainable": False, "packing": True},
            "policy": other,
            "reward": {},
        }
        cases.append({"files": {"a.yaml": yaml.safe_dump({"runtime_args": values, "models": models})}, "world": plain.world,
                      "argv": ["runtime_args.log_args_dict.log_dir=x"]})
        moved = replace(case, batch=replace(case.batch, global_batch_sequences=batch))
        count = batch // (plain.data_parallel * plain.microbatch_sequences)
        ours.append(bool({message.id for message in CHATLEARN.check(moved, replace(plain, num_microbatches=count))} & told))
    verdicts = judge("chatlearn", cases)
    both = [(not verdict["accepted"], mine) for verdict, mine in zip(verdicts, ours, strict=True)]
    wrong = [verdict["why"] for verdict, (theirs, mine) in zip(verdicts, both, strict=True) if theirs != mine]
    assert len(wrong) <= 0.05 * len(both), wrong[:3]
    assert {theirs for theirs, _ in both} == {True, False}


@pytest.mark.parametrize("name", FIELDS)
def test_the_patch_has_megatron_s_own_names_and_defaults(name):
    assert MEGATRON.surface is not None
    key = MEGATRON.surface().find("--" + name.replace("_", "-"), "0.13")
    assert key is not None, "no argument of Megatron-LM"
    ours = FIELDS[name].default.removeprefix("default=").removeprefix("default_factory=lambda: ").strip("[]'")
    theirs = "False" if key.kind == "switch" else key.default.strip("[]'") or "None"
    assert ours == theirs


PATCHED = [names for count in (0, 1, len(FIELDS)) for names in combinations(FIELDS, count)]


def applies(place, patch):
    """What ``git apply --check`` says against a patch in a folder; nothing where it takes it."""
    done = subprocess.run(["git", "apply", "--check", "-"], cwd=place, input=patch, text=True, capture_output=True, check=False)
    return done.stderr if done.returncode else ""


def test_git_takes_every_patch_on_lines_that_stand_where_it_says(tmp_path):
    """The files that a patch is for, of nothing but the lines that it shows, at the numbers that it gives."""
    for names, interleaved in product(PATCHED, (False, True)):
        patch = patch_file(names, interleaved=interleaved)
        if patch is None:
            assert not names and not interleaved
            continue
        for part in patch.text.split("--- a/")[1:]:
            path, *lines = part.splitlines()
            there, number = [""] * 500, 0
            for line in lines[1:]:
                if found := re.match(r"@@ -([0-9]+),", line):
                    number = int(found[1]) - 1
                elif line[0] in " -":
                    there[number], number = line[1:], number + 1
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("\n".join(there) + "\n")
        assert applies(tmp_path, patch.text) == ""


@pytest.mark.oracle
@needs("chatlearn")
def test_git_takes_every_patch_on_the_commit_that_the_readme_names(tmp_path):
    """On the checkout without its history: what the files of that commit hold."""
    shutil.copytree(source("chatlearn"), tmp_path / "there", ignore=shutil.ignore_patterns(".git", "docs", "docker"))
    for names, interleaved in product(PATCHED, (False, True)):
        patch = patch_file(names, interleaved=interleaved)
        assert patch is None or applies(tmp_path / "there", patch.text) == ""


def test_the_patch_declares_what_the_layout_needs_and_nothing_else():
    case = case_of()
    plain = layout_of(case, tensor_parallel=4, sequence_parallel=True, expert_parallel=4)
    assert [file.path for file in CHATLEARN.write(case, plain)] == ["grpo.yaml", "launch.sh", "README.md"]
    split = replace(plain, optimizer_shards=4, offload=("optimizer",))
    patch = {file.path: file.text for file in CHATLEARN.write(case, split)}["chatlearn.patch"]
    added = {line.split(":")[0].strip("+ ") for line in patch.splitlines() if line.startswith("+ ")}
    assert added == {"num_distributed_optimizer_instances", "optimizer_cpu_offload", "optimizer_offload_fraction",
                     "use_precision_aware_optimizer"}


def test_interleaved_stages_are_a_layout_string_and_need_the_trainer_s_data():
    case = case_of("qwen3-8b", batch=128)
    layout = layout_of(case, pipeline_parallel=4, virtual_stages=3, num_microbatches=16)
    files = {file.path: file.text for file in CHATLEARN.write(case, layout)}
    trainer = yaml.safe_load(files["grpo.yaml"])["models"]["policy_trainer"]
    assert trainer["pipeline_model_parallel_layout"] == "Et*3|(t*3|)*10t*3L"
    assert "virtual_pipeline_model_parallel_size" not in trainer
    assert files["chatlearn.patch"].count("for _ in self.model") == 2


def test_the_packing_limit_keeps_micro_batches_within_the_plan():
    """4 x 4,096 tokens for 32 samples of a rank, each padded to a multiple of 8."""
    case = case_of()
    layout = layout_of(case, tensor_parallel=4, sequence_parallel=True, microbatch_sequences=4)
    files = {file.path: file.text for file in CHATLEARN.write(case, layout)}
    trainer = yaml.safe_load(files["grpo.yaml"])["models"]["policy_trainer"]
    assert trainer["packing"] is True
    assert trainer["max_token_in_packing"] == kept_limit(16384, 4096, 32, 8)
    assert most_tokens(trainer["max_token_in_packing"], 4096, 32, 8) <= 16384 < most_tokens(trainer["max_token_in_packing"] + 1,
                                                                                           4096, 32, 8)
    assert "no micro-batch has more than 16384 tokens" in files["README.md"]


# What is read: facts of ChatLearn's own scripts and templates (b7af31a9), with the GPUs that a user gives.

MEGATRON_TEMPLATE = {
    "runtime_args.train_backend": "megatron", "runtime_args.train_micro_batch_size": 8, "runtime_args.train_global_batch_size": 512,
    f"{T}.num_gpu": 1, f"{T}.packing": True, f"{T}.sequence_parallel": True, f"{T}.use_distributed_optimizer": True,
    f"{T}.max_prompt_tokens_length": "${models.policy.max_prompt_tokens_length}",
    f"{T}.max_response_tokens_length": "${models.policy.max_response_tokens_length}",
    f"{T}.max_token_in_packing": f"${{{T}.seq_length}}", f"{T}.expert_tensor_parallel_size": None,
    f"{T}.recompute_granularity": None,
    "models.policy.max_prompt_tokens_length": 1024, "models.policy.max_response_tokens_length": 2048,
}
FSDP_TEMPLATE = {
    "runtime_args.train_backend": "fsdp", "runtime_args.train_micro_batch_size": 8, "runtime_args.train_global_batch_size": 512,
    f"{T}.num_gpu": 2, f"{T}.packing": False, f"{T}.fsdp_size": f"${{{T}.num_gpu}}", f"{T}.ulysses_sequence_parallel_size": 1,
    f"{T}.max_token_in_packing": 32768,
}
SCRIPTS = {
    "mcore_vllm qwen3_8b": (
        16, "qwen3-8b", {"gbs": 2048, "mbs": 1, "packing": True, "max": 8192, "tensor": 2, "pipeline": 1},
        "tp2 pp1 dp8 mb2 sp zero1 overlap=none",
    ),
    "mcore_vllm qwen3_30b": (
        32, "qwen3-30b-a3b", {"gbs": 2048, "mbs": 1, "packing": True, "max": 8192, "tensor": 4, "pipeline": 2, "etp": 1,
            "expert": 4},
        "tp4 pp2 ep4 dp4 mb2 sp zero1 overlap=p2p",
    ),
    "mcore_vllm qwen3_30b gspo": (
        32, "qwen3-30b-a3b", {"gbs": 256, "mbs": 1, "packing": False, "granularity": "selective", "tensor": 4, "pipeline": 2,
            "etp": 4,
                              "expert": 1}, "tp4 pp2 etp4 dp4 mb1 sp zero1 recompute=selective:core_attn overlap=p2p",
    ),
    "mcore_vllm qwen3_235b": (
        64, "qwen3-235b-a22b", {"gbs": 2048, "mbs": 1, "packing": False, "granularity": "selective", "tensor": 4, "pipeline": 4,
                                "etp": 1, "expert": 8}, "tp4 pp4 ep8 dp4 mb1 sp zero1 recompute=selective:core_attn overlap=p2p",
    ),
    "mcore_vllm deepseek_v3": (
        512, "deepseek-v3", {"gbs": 256, "mbs": 1, "packing": False, "max": 3072, "granularity": "full", "method": "uniform",
            "number": 1,
                             "tensor": 4, "pipeline": 16, "first": 3, "last": 2, "etp": 4, "expert": 2, "context": 1},
        "tp4 pp16 ep2 etp4 dp8 mb1 sp zero1 recompute=full layers=[3,4,4,4,4,4,4,4,4,4,4,4,4,4,4,2] overlap=p2p",
    ),
    "mcore_sglang qwen3_next": (
        64, None, {"gbs": 512, "mbs": 1, "packing": False, "tensor": 2, "pipeline": 8, "etp": 2, "expert": 2},
        "tp2 pp8 ep2 etp2 dp4 mb1 sp zero1 overlap=p2p",
    ),
    "mcore_vllm qwen3_next": (
        64, None, {"gbs": 16, "mbs": 1, "packing": True, "max": 3072, "tensor": 4, "pipeline": 4, "etp": 1, "expert": 8},
        "tp4 pp4 ep8 dp4 mb1 sp zero1 overlap=p2p",
    ),
}
FSDP_SCRIPTS = {
    "fsdp_vllm qwen3_235b": (64, {"gbs": 2048, "max": 10000}, "tp1 pp1 dp64 mb2 zero3 recompute=full"),
    "fsdp_vllm qwen3_30b": (32, {"gbs": 512, "max": 20000}, "tp1 pp1 dp32 mb4 zero3 recompute=full"),
    "fsdp_vllm qwen3_8b": (16, {"gbs": 2048, "max": 32768}, "tp1 pp1 dp16 mb8 zero3 recompute=full"),
    "fsdp_sglang qwen2_5_vl_agent": (16, {"gbs": 640, "max": 32768}, "tp1 pp1 dp16 mb10 zero3 recompute=full"),
}
NAMES = {
    "gbs": "runtime_args.train_global_batch_size", "mbs": "runtime_args.train_micro_batch_size", "packing": f"{T}.packing",
    "max": f"{T}.max_token_in_packing", "tensor": f"{T}.tensor_model_parallel_size",
    "pipeline": f"{T}.pipeline_model_parallel_size",
    "context": f"{T}.context_parallel_size", "etp": f"{T}.expert_tensor_parallel_size", "expert": f"{T}.expert_model_parallel_size",
    "granularity": f"{T}.recompute_granularity", "method": f"{T}.recompute_method", "number": f"{T}.recompute_num_layers",
    "first": f"{T}.decoder_first_pipeline_num_layers", "last": f"{T}.decoder_last_pipeline_num_layers",
}


def script(words):
    """A launch as ChatLearn's scripts write it; the number of GPUs is only known on the machine."""
    overrides = " \\\n    ".join(f"{NAMES[name]}={value}" for name, value in words.items())
    line = "python chatlearn/entrypoint.py grpo --config-file template/grpo.yaml"
    return File(
        path="train.sh",
        text=f"set -x\nsource scripts/base_env.sh\n{line} \\\n    {T}.num_gpu=${{num_device}} \\\n    {overrides}\n",
    )


def test_a_packing_limit_that_is_a_section_is_refused():
    found = read(MEGATRON_TEMPLATE | {f"{T}.packing": True, f"{T}.max_token_in_packing": {"value": 8192}}, devices=16)
    assert found.layout is None
    assert [message.id for message in found.messages if "packing" in message.id] == ["chatlearn.packing-section"]


def test_weights_that_a_command_line_names_are_no_fault_of_a_file_read_alone():
    """The reference policy takes the trainer's weights, whose path ``launch.sh`` says; one that does not is at fault."""
    case = case_of()
    files = [each for each in CHATLEARN.write(case, layout_of(case)) if each.path in ("grpo.yaml", "launch.sh")]
    silent = [replace(each, text=each.text.replace(f"{T}.load=", f"{T}.hf_load=")) for each in files]
    for given, missing in ((files, False), (files[:1], False), (silent, True)):
        read = CHATLEARN.read(given)
        assert ("chatlearn.interpolation" in {each.id for each in read.source.remarks}) == missing


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_real_megatron_script_is_read(name):
    devices, model, words, expected = SCRIPTS[name]
    reading = read(MEGATRON_TEMPLATE, devices=devices, model=model, files=[script(words)])
    assert reading.layout is not None, reading.messages
    assert label(reading.layout) == expected
    assert (reading.said.global_batch_sequences, reading.said.sequence_tokens) == (words["gbs"], 3072)
    assert ("chatlearn.interpolation" in found(reading)) == ("max" not in words), "the template's own limit leads nowhere"


@pytest.mark.parametrize("name", FSDP_SCRIPTS)
def test_a_real_fsdp_script_is_read(name):
    devices, words, expected = FSDP_SCRIPTS[name]
    reading = read(FSDP_TEMPLATE, devices=devices, files=[script(words | {"packing": True})])
    assert reading.layout is not None, reading.messages
    assert label(reading.layout) == expected
    assert reading.said.sequence_tokens == 3072, "defaults of the trainer's class"


def test_a_script_wins_over_its_yaml_wherever_it_stands():
    words = SCRIPTS["mcore_vllm qwen3_8b"][2]
    yaml_first = read(MEGATRON_TEMPLATE, devices=16, files=[script(words)])
    files = list(reversed(yaml_first.source.documents))
    again = CHATLEARN.read([File(path=each.path, text=each.text) for each in files], given=Given(num_devices=16))
    assert again.layout == yaml_first.layout


@pytest.mark.parametrize("text", ["${a", "${oc.env:HOME}", "${a.b}", "${${x}}", "$" * 50, "${models.policy_trainer.num_gpu}"])
def test_odd_references_are_no_traceback(text):
    assert read(MEGATRON_TEMPLATE | {f"{T}.num_gpu": text}).layout is None


def test_an_edit_of_a_real_script_touches_only_what_changes():
    _, model, words, _ = SCRIPTS["mcore_vllm qwen3_30b"]
    reading = read(MEGATRON_TEMPLATE, devices=32, model=model, files=[script(words)])
    case = case_of(batch=2048, sequence=3072)
    other = replace(reading.layout, tensor_parallel=2, expert_parallel=8, data_parallel=8, optimizer_shards=8, num_microbatches=128)
    edited = edit(CHATLEARN, reading, case, other)
    changed = [line[1:].strip() for line in edited.diff.splitlines() if line.startswith("+ ")]
    assert changed == [f"{T}.tensor_model_parallel_size=2 \\", f"{T}.expert_model_parallel_size=8"]
    assert [each.path for each in edited.files] == ["train.sh"]


def test_a_limit_that_was_written_here_follows_the_layout():
    """Other padding and other samples of a rank keep another limit within the same micro-batch."""
    case = case_of()
    layout = layout_of(case, tensor_parallel=2, sequence_parallel=True, microbatch_sequences=2)
    files = [file for file in CHATLEARN.write(case, layout) if file.path == "grpo.yaml"]
    reading = CHATLEARN.read(files, given=Given(num_devices=32))
    assert reading.layout == CHATLEARN.normal(case, layout) and not reading.messages
    other = layout_of(case, tensor_parallel=4, sequence_parallel=True, microbatch_sequences=2)
    edits = {each.key: each.after for each in edit(CHATLEARN, reading, case, other).edits}
    assert edits == {f"{T}.tensor_model_parallel_size": 4, f"{T}.max_token_in_packing": kept_limit(8192, 4096, 32, 8)}


def test_what_a_script_overrides_is_set_to_null_and_not_taken_out():
    _, model, words, _ = SCRIPTS["mcore_vllm qwen3_30b"]
    below = MEGATRON_TEMPLATE | {
        f"{T}.recompute_granularity": "full",
        f"{T}.recompute_method": "uniform",
        f"{T}.recompute_num_layers": 1,
    }
    files = [script(words | {"granularity": "selective"})]
    reading = read(below, devices=32, model=model, files=files)
    case = case_of(batch=2048, sequence=3072)
    edited = edit(CHATLEARN, reading, case, replace(reading.layout, recompute=NoRecompute()))
    assert f"+    {T}.recompute_granularity=null" in edited.diff
    assert read(below, devices=32, model=model, files=edited.files).layout.recompute == NoRecompute()


# Limits.

BASE = {"tensor_parallel": 4, "sequence_parallel": True, "pipeline_parallel": 2, "expert_parallel": 4}
BROKEN = {
    "gradient-overlap": {"overlap": Overlap()}, "expert-overlap": {"overlap": replace(QUIET, expert=True)},
    "microbatch": {"num_microbatches": 7}, "schedule": {"schedule": "gpipe"},
    "query-groups": {"tensor_parallel": 8, "pipeline_parallel": 1},
    "interleaved-batch": {"virtual_stages": 2, "num_microbatches": 63},
    "moe-sequence-parallel": {"sequence_parallel": False}, "expert-count": {"expert_parallel": 3},
}
FSDP_BROKEN = {
    "fsdp": {"tensor_parallel": 2}, "fsdp-size": {"parameter_shards": 16}, "fsdp-recompute": {"recompute": NoRecompute()},
    "fsdp-heads": {"context_parallel": 8, "context_kind": "ulysses"},
    "fsdp-key-value-heads": {"context_parallel": 16, "context_kind": "ulysses"},
    "fsdp-zero": {"parameter_shards": 1, "gradient_shards": 1}, "fsdp-ulysses": {"context_parallel": 2, "context_kind": "ulysses"},
}


def refused(case, layout, there=CHATLEARN):
    return {message.id.removeprefix("chatlearn.") for message in there.check(case, layout)}


def test_the_bases_of_the_next_tests_are_legal():
    assert not refused(case_of(), layout_of(case_of(), **BASE))
    assert not refused(case_of("llama3-70b"), fsdp_of(case_of("llama3-70b")), ON_FSDP)


@pytest.mark.parametrize("id", BROKEN)
def test_a_megatron_rule_fires(id):
    assert id in refused(case_of(), layout_of(case_of(), **(BASE | BROKEN[id])))


@pytest.mark.parametrize("id", FSDP_BROKEN)
def test_an_fsdp_rule_fires(id):
    case = case_of("llama3-8b" if id == "fsdp-ulysses" else "qwen2.5-7b")  # 28 heads
    assert id in refused(case, fsdp_of(case, **FSDP_BROKEN[id]), ON_FSDP)


@pytest.mark.parametrize(
    ("id", "case"),
    [
        ("batch", case_of(batch=250)),
        ("precision", case_of(precision="fp8-cs")),
        ("optimizer", case_of(optimizer="sgd")),
        (
            "task",
            make_case(
                "qwen3-30b-a3b",
                cluster_for("h100-sxm", num_devices=32),
                global_batch_sequences=256,
                sequence_tokens=4096,
                task="lora",
                framework="bridge",
                calibration="none",
            ),
        ),
        ("device", replace(case_of(), cluster=cluster_for("ascend-910b", num_devices=32))),
    ],
)
def test_a_rule_of_the_case_fires(id, case):
    assert id in refused(case, layout_of(case, **BASE))


@pytest.mark.parametrize("model", ["llama3-70b", "mixtral-8x7b", "gpt-oss-120b", "qwen2.5-7b", "glm-4.5"])
def test_the_megatron_back_end_builds_only_what_its_code_takes_over(model):
    case = case_of(model)
    assert "model" in refused(case, layout_of(case))
    assert "model" in refused(case, layout_of(case, tensor_parallel=8)), "the reason for whatever layout: not that tp is not there"
    assert "model" not in refused(case, fsdp_of(case), ON_FSDP)
    assert refused(case, fsdp_of(case)) == {"backend"}


@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3"])
def test_the_models_of_its_scripts_are_built(model):
    assert "model" not in refused(case_of(model), layout_of(case_of(model)))


def test_every_rule_of_its_own_is_tested():
    tested = {*BROKEN, *FSDP_BROKEN, "batch", "precision", "optimizer", "task", "device", "model", "backend"}
    assert {limit.id.removeprefix("chatlearn.") for limit in (*OWN, *FSDP_LIMITS)} <= tested


def test_no_rule_of_megatron_speaks_of_the_fsdp_back_end():
    case = case_of("llama3-70b")
    layout = fsdp_of(case, pipeline_parallel=3, stage_layers=((1, 1, 1),))
    own = {limit.id for limit in OWN}
    assert {message.id for message in CHATLEARN.check(case, layout)} <= own
    assert len({limit.id for limit in LIMITS}) == len(LIMITS)


# The back end fsdp.


def test_the_fsdp_back_end_is_priced_as_itself():
    """FSDP2 over the modules of Hugging Face: no kernels of Transformer Engine, and nothing that was fitted on Megatron-LM."""
    case = make_case("qwen3-30b-a3b", cluster_for("h100-sxm", num_devices=32), global_batch_sequences=256, sequence_tokens=4096,
                     task="sft", framework="chatlearn@fsdp")
    assert case.implementation.name == "chatlearn-fsdp"
    assert case.implementation.family not in {"megatron", "megatron-deepspeed"}
    trusted = make_case("qwen3-30b-a3b", case.cluster, global_batch_sequences=256, sequence_tokens=4096, task="sft",
                        framework="megatron")
    own, megatron = (each.calibration.uncertainty for each in (case, trusted))
    assert own.seen["framework"] < megatron.seen["framework"]
    unknown, known = (each.calibration.uncertainty.step.hidden(regime_of_case(each)) for each in (case, trusted))
    assert all(unknown[name] > known[name] for name in ("framework", "cell")), "fewer runs, so less is known"


@pytest.mark.parametrize(("words", "model", "release"), [
    ("tp1 pp1 dp32 mb8 zero3 recompute=full", "qwen3-30b-a3b", "fsdp"), ("tp2 zero1", "qwen3-30b-a3b", "b7af31a9"),
    ("", "qwen3-30b-a3b", "b7af31a9"), ("", "llama3-8b", "fsdp"), ("tp8", "llama3-8b", "b7af31a9"), ("zero3", "llama3-8b", "fsdp"),
])
def test_where_no_back_end_is_named_the_plan_shows_which_is_meant(words, model, release):
    """Plans of before open, and a model that one of them cannot build is planned for the other, unless its degrees are wanted."""
    assert CHATLEARN.asked_for(words, load_model(model)).version == release


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_files_show_which_back_end_they_are_for(backend):
    below = FSDP_TEMPLATE if backend == "fsdp" else MEGATRON_TEMPLATE
    release = read(below | {"runtime_args.train_backend": backend}, devices=16).version
    assert CHATLEARN.at(release).implementation == {"fsdp": "chatlearn-fsdp", "megatron": "megatron-te"}[backend]


@pytest.mark.parametrize(("model", "grouped"), [("qwen3-30b-a3b", True), ("mixtral-8x7b", False), ("qwen3-8b", False)])
def test_experts_are_multiplied_together_where_the_plan_assumes_it_and_the_back_end_can(model, grouped):
    case = case_of(model)
    files = {file.path: file.text for file in ON_FSDP.write(case, fsdp_of(case))}
    assert yaml.safe_load(files["grpo.yaml"])["models"]["policy_trainer"].get("groupgemm", False) is grouped
    assert ("its experts run one by one" in files["README.md"]) == (model == "mixtral-8x7b")


@pytest.mark.parametrize(("keys", "why"), [
    ({"recompute_granularity": "full"}, 'recompute_method must be "block" or "uniform"'),
    ({"recompute_granularity": "full", "recompute_method": "uniform"}, "recompute_num_layers must be between 1"),
])
def test_full_recomputation_says_how_and_how_many_layers(keys, why):
    found = read(MEGATRON_TEMPLATE | {f"{T}.{name}": value for name, value in keys.items()}, devices=16, model="qwen3-8b")
    assert found.layout is None
    assert why in " ".join(map(str, found.messages))


# Checks of files.

CLEAN = {
    "runtime_args.train_backend": "megatron", "runtime_args.train_global_batch_size": 256, "runtime_args.sample_per_episode": 512,
    "runtime_args.train_micro_batch_size": 1, f"{T}.num_gpu": 32, f"{T}.tensor_model_parallel_size": 4,
    f"{T}.pipeline_model_parallel_size": 2,
    f"{T}.packing": True, f"{T}.max_token_in_packing": 8192, f"{T}.generation_batch_size": 8, "models.policy.num_gpu": 32,
    "models.policy.tensor_model_parallel_size": 8, "models.policy.num_inference_per_prompt": 32,
}
FSDP_CLEAN = {key: value for key, value in CLEAN.items() if "model_parallel_size" not in key} | {
    "runtime_args.train_backend": "fsdp",
    f"{T}.fsdp_size": 32,
}
MISTAKES = {
    "floor-division": {f"{T}.pipeline_model_parallel_size": 3},
    "virtual-stages": {f"{T}.virtual_pipeline_model_parallel_size": 2},
    "interleaved-data": {f"{T}.pipeline_model_parallel_layout": "Et*12|(t*12|)*2t*12L"},
    "packing-limit": {f"{T}.max_token_in_packing": 2048},
    "text-bool": {f"{T}.use_distributed_optimizer": "false"},
    "interpolation": {f"{T}.max_token_in_packing": f"${{{T}.seq_length}}"},
    "undeclared": {f"{T}.tp_comm_overlap": True},
    "gradient-overlap-key": {f"{T}.overlap_grad_reduce": True},
    "expert-overlap-key": {f"{T}.megatron_model_cfg.overlap_moe_expert_parallel_comm": True},
    "backend-key": {f"{T}.ulysses_sequence_parallel_size": 2},
    "expert-tensor-parallel": {f"{T}.expert_model_parallel_size": 4},
    "episode": {"runtime_args.sample_per_episode": 384}, "samples": {"models.policy.num_inference_per_prompt": 24},
    "generation-batch": {f"{T}.packing": False, f"{T}.generation_batch_size": 48},
    "rollout": {"models.policy.num_gpu": 30}, "rollout-degrees": {"models.policy.pipeline_model_parallel_size": 2},
    "vision-packing": {"runtime_args.model_type": "vlm"},
}
FSDP_MISTAKES = {
    "checkpointing": {f"{T}.gradient_checkpointing": False}, "fsdp-size-key": {f"{T}.fsdp_size": 8},
    "backend-key": {f"{T}.tensor_model_parallel_size": 2},
}


def test_the_unmutated_files_are_clean():
    assert not found(read(CLEAN))
    assert not found(read(FSDP_CLEAN))


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_is_found(id):
    assert f"chatlearn.{id}" in found(read(CLEAN | MISTAKES[id]))


@pytest.mark.parametrize("id", FSDP_MISTAKES)
def test_a_mistake_of_the_fsdp_back_end_is_found(id):
    assert f"chatlearn.{id}" in found(read(FSDP_CLEAN | FSDP_MISTAKES[id]))


@pytest.mark.parametrize("value", ["1", "8"])
def test_the_number_of_connections(value):
    launch = File(path="train.sh", text=f"export CUDA_DEVICE_MAX_CONNECTIONS={value}\npython chatlearn/entrypoint.py grpo x.y=1\n")
    assert ("chatlearn.connections" in found(read(CLEAN, files=[launch]))) == (value != "1")


def test_every_check_is_tested():
    tested = {f"chatlearn.{id}" for id in (*MISTAKES, *FSDP_MISTAKES, "connections")}
    assert {check.id for check in CHATLEARN.checks} == tested


def test_the_key_that_is_declared_but_idle_is_no_virtual_stage():
    reading = read(CLEAN | {f"{T}.virtual_pipeline_model_parallel_size": 2, f"{T}.recompute_granularity": "selective"})
    assert reading.layout.virtual_stages == 1
    assert reading.layout.recompute == Selective()
