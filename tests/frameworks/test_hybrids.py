"""Hybrids with Mamba-2 in Megatron-LM and Megatron-Bridge: patterns, stages, programs, and what each release refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron_cases import case_of, layout_of

from meshwright.catalog import load_model, models
from meshwright.check.figures import likely_models
from meshwright.domain.layout import Full
from meshwright.domain.model import MixtureOfExperts, Model
from meshwright.domain.training import Packing
from meshwright.frameworks import File, framework
from meshwright.frameworks.bridge.recipes import names, recipes
from meshwright.frameworks.megatron.hybrid import is_hybrid, layers_of, letters, main_pattern, pattern
from meshwright.frameworks.megatron.model_arguments import inexpressible
from meshwright.frameworks.settings import Given, Reading

NANO, SUPER, DENSE, GRANITE = "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b", "nemotron-h-8b", "granite4-h-tiny"
WRITTEN = [name for name in models() if is_hybrid(load_model(name)) and not inexpressible(load_model(name))]
EXPERTS = {"expert_parallel": 8}


def test_every_nemotron_granite_and_bamba_is_written_and_no_falcon() -> None:
    assert {name.split("-")[0] for name in WRITTEN} == {"nemotron", "granite4", "bamba"}
    assert len(WRITTEN) >= 14


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pattern_has_a_letter_for_each_block_and_says_what_it_is(name: str) -> None:
    model = load_model(name)
    words = letters(model)
    kinds = [model.kinds[index] for index in model.pattern]
    assert [len(word) for word in words] == [kind.mixes + kind.has_block for kind in kinds]
    assert sum(word.count("E") for word in words) == sum(isinstance(kind.feed_forward, MixtureOfExperts) for kind in kinds)
    assert sum(word.count("*") for word in words) == sum(kind.attention is not None for kind in kinds)
    assert pattern(model).count("/") == model.mtp_passes


def test_patterns_are_those_that_nvidia_publishes() -> None:
    """The patterns in ``recipes/nemotronh/`` of Megatron-Bridge 0.3."""
    assert pattern(load_model(NANO)) == "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    assert pattern(load_model(DENSE)) == "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
    assert pattern(load_model(SUPER)).endswith("MEMEME/*E/*E")


@given(name=st.sampled_from((NANO, GRANITE)), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=7))
@settings(max_examples=60, deadline=None)
def test_counts_of_blocks_are_counts_of_layers_again(name: str, cuts: list[int]) -> None:
    model = load_model(name)
    ends = [0, *sorted(min(cut, model.num_layers) for cut in cuts), model.num_layers]
    split = tuple(end - start for start, end in pairwise(ends))
    text = pattern(model, (split,))
    counts = [len(cell) for cell in text.partition("/")[0].split("|")]
    assert layers_of(counts, model, text) == split
    assert main_pattern(text) == "".join(letters(model))


def test_a_cut_inside_a_layer_is_no_stage() -> None:
    model = load_model(GRANITE)
    assert layers_of([3, 77], model, pattern(model)) is None
    assert layers_of([3, 77], None, pattern(model)) == (3, 77)


# Written and read back.

LAYOUTS = [
    ("megatron@0.13", DENSE, {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2}),
    ("megatron@0.16", NANO, {"tensor_parallel": 2, "sequence_parallel": True, **EXPERTS}),
    ("megatron@0.16", DENSE, {"pipeline_parallel": 4, "stage_layers": ((12, 14, 14, 12),)}),
    ("megatron@0.16", GRANITE, {"pipeline_parallel": 4, "stage_layers": ((9, 11, 11, 9),), **EXPERTS}),
    ("megatron@0.17", SUPER, {"pipeline_parallel": 4, "tensor_parallel": 2, "sequence_parallel": True, **EXPERTS}),
    ("megatron@0.18", GRANITE, {"pipeline_parallel": 2, "recompute": Full(layers=7), **EXPERTS}),
    ("megatron@0.19", NANO, {"pipeline_parallel": 4, "virtual_stages": 2, **EXPERTS}),
    ("megatron@main", GRANITE, {"pipeline_parallel": 2, "stage_layers": ((19, 21),), **EXPERTS}),
    ("bridge@0.3", NANO, {"tensor_parallel": 2, "sequence_parallel": True, **EXPERTS}),
    ("bridge@0.3", GRANITE, {"pipeline_parallel": 4, "stage_layers": ((9, 11, 11, 9),), **EXPERTS}),
    ("bridge@main", SUPER, {"pipeline_parallel": 4, "tensor_parallel": 2, "sequence_parallel": True, **EXPERTS}),
    ("bridge@main", GRANITE, {"pipeline_parallel": 2, "stage_layers": ((19, 21),), "recompute": Full(layers=7), **EXPERTS}),
]


@pytest.mark.parametrize(("target", "model", "knobs"), LAYOUTS)
def test_a_layout_of_a_hybrid_is_read_back(target: str, model: str, knobs: dict[str, Any]) -> None:
    there, case = framework(target), case_of(model)
    layout = layout_of(case, **knobs)
    assert there.check(case, layout) == ()
    files = [file for file in there.write(case, layout) if file.path in {"train.sh", "train.py", "launch.sh"}]
    reading = there.read(files, version=there.version, given=Given(model=case.model, num_devices=64))
    assert reading.messages == ()
    assert reading.layout is not None
    assert there.normal(case, reading.layout) == there.normal(case, layout)
    said = reading.said.figures
    assert said.get("layers", case.model.num_layers) == case.model.num_layers
    assert said.get("blocks", "".join(letters(case.model))) == "".join(letters(case.model))


@pytest.mark.parametrize(("release", "program", "flag"), [
    ("0.16", "pretrain_mamba.py", "--hybrid-override-pattern"), ("0.17", "pretrain_mamba.py", "--hybrid-layer-pattern"),
    ("0.18", "pretrain_hybrid.py", "--hybrid-layer-pattern"),
])
def test_the_program_and_the_flag_are_those_of_the_release(release: str, program: str, flag: str) -> None:
    case = case_of(NANO)
    files = framework("megatron").at(release).write(case, layout_of(case, **EXPERTS))
    text = {file.path: file.text for file in files}
    assert all(program in text[path] for path in ("train.sh", "probe.sh", "README.md"))
    assert flag in text["train.sh"]
    assert ("--is-hybrid-model" in text["train.sh"]) == (release == "0.16")


def test_a_hybrid_is_known_by_its_pattern() -> None:
    case = case_of(DENSE)
    script = framework("megatron").write(case, layout_of(case))[0]
    assert likely_models(framework("megatron").read([script], version="0.16")) == (DENSE,)
    other = File(path=script.path, text=script.text.replace("M*-M-M-M-M-M*", "M-M*-M-M-M-M*", 1))
    assert likely_models(framework("megatron").read([other], version="0.16")) == ()


@pytest.mark.parametrize("release", ["0.3", "main"])
def test_recipes_of_hybrids_exist(release: str) -> None:
    there = {recipe.function(task) for recipe in recipes(release).values() for task in recipe.tasks}
    assert there <= names(release)
    assert NANO in recipes(release)


# What files get wrong.

def read(text: str, release: str) -> Reading:
    words = ("--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 64 "
             "--seq-length 2048 --bf16 ")
    script = File(path="train.sh", text=f"torchrun --nproc-per-node 8 pretrain_mamba.py {words}{text}\n")
    return framework("megatron").read([script], version=release, given=Given(num_devices=8))


@pytest.mark.parametrize(("release", "text", "words"), [
    ("0.16", "--hybrid-override-pattern M-M*M-M", "wrong length: got 7, expected 8"),
    ("0.16", "--hybrid-override-pattern M-M*M-MG", "'G' is not one of *, -, E, M"),
    ("0.16", "--hybrid-override-pattern 'M-M*|M-M*'", "'|' is not one of"),
    ("0.19", "--hybrid-layer-pattern 'M-M*|M-M*X'", "'X' is not one of"),
    ("0.19", "--hybrid-layer-pattern 'M-M|*M-|M*' --pipeline-model-parallel-size 2", "Got 3 segments and 2 pipeline"),
    ("0.19", "--hybrid-layer-pattern 'M-M*|M-M*' --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 4",
     "--decoder-first-pipeline-num-layers should not be specified"),
    ("0.19", "--hybrid-layer-pattern 'M-M*M-M*' --num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2",
     "--num-virtual-stages-per-pipeline-rank should not be used"),
    ("0.19", "--hybrid-layer-pattern '/M-'", "a pattern of 0 layers"),
])
def test_patterns_that_megatron_refuses_are_refused(release: str, text: str, words: str) -> None:
    assert words in "; ".join(map(str, read(text, release).messages))


def test_pipes_are_stages_and_chunks() -> None:
    found = read("--hybrid-layer-pattern 'M-|M*|M-M|*/M-' --pipeline-model-parallel-size 2", "0.19").layout
    assert found is not None
    assert (found.virtual_stages, found.stage_layers) == (2, ((2, 2), (3, 1)))


# Refused.

@pytest.mark.parametrize(("target", "model", "knobs", "rule"), [
    ("bridge@0.3", DENSE, {"pipeline_parallel": 2, "virtual_stages": 2}, "hybrid-virtual"),
    ("bridge@main", DENSE, {"pipeline_parallel": 2, "virtual_stages": 2}, "hybrid-virtual"),
    ("bridge@0.3", DENSE, {"recompute": Full()}, "hybrid-recompute"),
    ("bridge@0.3", SUPER, {}, "hybrid-mtp"),
])
def test_bridge_refuses_what_its_core_cannot(target: str, model: str, knobs: dict[str, Any], rule: str) -> None:
    case = case_of(model)
    assert f"bridge.{rule}" in [message.id for message in framework(target).check(case, layout_of(case, **knobs))]


@pytest.mark.parametrize(("target", "model", "refused"), [
    ("megatron@0.16", "qwen3-next-80b-a3b", True), ("megatron@0.18", "qwen3-next-80b-a3b", False),
    ("megatron@0.19", "deepseek-v3.2", False),
    ("bridge@0.3", "qwen3-next-80b-a3b", False), ("bridge@0.3", "qwen3.5-122b-a10b", True),
    ("bridge@main", "qwen3.5-122b-a10b", False), ("megatron@0.16", NANO, False), ("megatron@0.16", "qwen3-30b-a3b", False),
])
def test_packed_samples_are_refused_where_a_layer_reads_no_packs(target: str, model: str, refused: bool) -> None:
    """The recipe of Qwen3-Next pads in Bridge; Megatron-LM's sft always packs, and so does Bridge without a recipe."""
    case = case_of(model)
    tuned = replace(case, training=replace(case.training, task="sft"))
    ids = {message.id for message in framework(target).check(tuned, layout_of(case, **EXPERTS))}
    assert bool({each for each in ids if ".packed-" in each}) == refused


def test_lengths_of_the_user_are_packs_too() -> None:
    case = case_of("qwen3-next-80b-a3b")
    packed = replace(case, batch=replace(case.batch, packing=Packing(samples_per_sequence=4.0, mean_sample_tokens=500.0,
                                                                longest_sample_tokens=900)))
    for target, rule in (("megatron@0.16", "megatron.packed-delta"), ("bridge@0.3", "bridge.packed-delta")):
        assert rule in {message.id for message in framework(target).check(packed, layout_of(case, **EXPERTS))}


def test_written_widths_of_mamba_are_the_model_s() -> None:
    """Counted as ``MambaMixer`` builds them; the oracle of Megatron-LM counts whole stages."""
    case = case_of(DENSE)
    text = framework("megatron").write(case, layout_of(case))[0].text
    heads, width, state, groups = (int(re.search(rf"--mamba-{name} (\d+)", text)[1])  # type: ignore[index]
                                   for name in ("num-heads", "head-dim", "state-dim", "num-groups"))
    hidden, inner, convolved = case.model.hidden, heads * width, heads * width + 2 * groups * state
    built = hidden + hidden * (inner + convolved + heads) + 5 * convolved + 3 * heads + inner + inner * hidden
    assert built == _parameters(case.model)


def _parameters(model: Model) -> int:
    from meshwright.perf.parameters import layer_parameters

    return int(layer_parameters(model, next(kind for kind in model.kinds if kind.mixer), tp=1, ep=1, etp=1).total)
