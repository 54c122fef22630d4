"""Which framework can train a model at all, said before anything is planned or written."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from megatron_cases import case_of, layout_of

from meshwright.catalog import load_model, models
from meshwright.domain.mixers import MIXER_NAMES, GatedDelta
from meshwright.domain.model import Model, Side
from meshwright.errors import InputError
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.megatron.arguments import groups
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.parts import builders, lacking, parts_of
from meshwright.perf.mixers import mixer_weights

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

QWEN, NANO, SPARSE, KIMI = "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b", "deepseek-v3.2", "kimi-linear-48b-a3b"
FALCON = "falcon-h1-34b"


def said(name: str, model: Model, release: str | None = None) -> str:
    there = framework(name).at(release)
    return str(lacking(name, there.title, there.version, there.releases, model) or "")


@pytest.mark.parametrize(("model", "parts"), [
    ("llama3-70b", ()), ("gemma3-27b", ()), ("gpt-oss-120b", ()), ("deepseek-v3", ()), ("llama4-scout", ()),
    (QWEN, ("gated delta net", "gate on attention")), (NANO, ("Mamba-2", "layers of one block")), (SPARSE, ("sparse attention",)),
    (KIMI, ("Kimi delta attention",)),
])
def test_what_a_model_has_beyond_attention_and_feed_forward(model: str, parts: tuple[str, ...]) -> None:
    assert parts_of(load_model(model)) == parts


@pytest.mark.parametrize(("name", "release", "model", "words"), [
    ("megatron", None, QWEN, ""), ("megatron", "0.19", SPARSE, ""),
    ("bridge", "main", SPARSE, ""), ("bridge", None, QWEN, ""), ("accelerate", None, NANO, ""),
    ("megatron", None, SPARSE, "scores FP32 matrices of all heads and tokens before 0.19) has no writer here; --framework "
     "megatron@0.19 or accelerate or deepspeed or llama-factory-hf or bridge@main can"),
    ("megatron", "0.18", "glm-5.2", "indices shared between layers is there since 0.19"), ("megatron", "0.19", "glm-5.2", ""),
    ("bridge", "0.3", SPARSE, "--framework megatron@0.19 or accelerate or deepspeed or llama-factory-hf or bridge@main can"),
    ("megatron", "0.15", QWEN, "gated delta net is there since 0.16 (--experimental-attention-variant gated_delta_net"),
    ("megatron", None, NANO, ""), ("megatron", "main", NANO, ""), ("bridge", None, NANO, ""),
    ("megatron", "0.12", NANO, "Mamba-2 is there since 0.13 (pretrain_mamba.py --is-hybrid-model --hybrid-override-pattern"),
    ("megatron", None, FALCON, "it has no attention beside a mixer"),
    ("mindspeed-llm", None, NANO, "Mamba-2 (--is-hybrid-model --hybrid-override-pattern) has no writer here"),
    ("bridge", None, KIMI, "Megatron-Bridge 0.3 cannot train kimi-linear-48b-a3b with what is written here: it has no Kimi delta"),
    ("torchtitan", None, QWEN,
     "it has no gated delta net; it has no gate on attention; --framework megatron or accelerate or deepspeed or llama-factory-hf "
     "or bridge or ms-swift-megatron can"),
    ("megatron", None, "minimax-m3", "it has no sparse attention over blocks of keys"),
    ("megatron", None, "mimo-v2-flash", "it has no values of another width than their keys"),
    ("bridge", "0.3", FALCON, "it has no attention beside a mixer; --framework accelerate or deepspeed or llama-factory-hf or "
     "bridge@main can"),
    ("bridge", "main", FALCON, ""), ("bridge", "main", "minimax-m2", ""),
    ("nanotron", None, SPARSE, "it has no sparse attention"), ("mindspeed-llm", None, KIMI, "it has no Kimi delta attention"),
    ("torchtitan", None, NANO, "--framework megatron or accelerate or deepspeed or llama-factory-hf or bridge can"),
])
def test_a_framework_says_what_it_lacks_and_who_has_it(name: str, release: str | None, model: str, words: str) -> None:
    found = said(name, load_model(model), release)
    assert words in found
    assert bool(words) == bool(found)


def test_models_of_attention_and_feed_forward_blocks_are_anybody_s() -> None:
    for name in models():
        model = load_model(name)
        if not parts_of(model):
            assert all(not said(each, model) for each in frameworks())


def test_a_model_that_transformers_has_not_is_nobody_s() -> None:
    model = replace(load_model(QWEN), architecture="", kinds=tuple(
        replace(kind, sides=(Side(name="x", inputs=8, outputs=8),)) for kind in load_model(QWEN).kinds))
    assert said("accelerate", model).endswith("no class of transformers is exactly this model; no framework here can")


def test_every_framework_of_ours_is_judged_and_every_part_is_one() -> None:
    assert set(frameworks()) == {row.framework for row in builders()}
    found = {part for name in models() for part in parts_of(load_model(name))} | set(MIXER_NAMES.values())
    classes = {load_model(name).architecture for name in models()}
    classes |= {tower.architecture for name in models() if (tower := load_model(name).vision)}
    of_one = {row.part.removeprefix("class ") for row in builders() if row.part.startswith("class ")}
    assert of_one <= classes
    assert {row.part for row in builders() if not row.part.startswith("class ")} - {"class", "core", "-"} <= found


def test_arguments_of_a_part_exist_since_the_release_that_has_it() -> None:
    for row in builders():
        there = framework(row.framework)
        surface = there.surface() if there.surface else None
        for flag in re.findall(r"--[a-z0-9-]+", row.how):
            assert surface is not None
            release = row.since or there.releases[0]
            assert flag in surface.at(release), (row.framework, flag, release)
            if row.until:
                assert flag in surface.at(row.until)


def test_a_plan_that_cannot_be_built_is_not_written() -> None:
    case = case_of(KIMI, devices=64)
    with pytest.raises(InputError, match=r"Megatron-LM 0\.16 cannot train kimi-linear-48b-a3b"):
        framework("megatron").write(case, layout_of(case))


def arguments(case: Case, layout: Layout, release: str) -> dict[str, object]:
    """Every flag that is written, with its value."""
    return {flag: value for group in groups(case, layout, parse_version(release)).values() for flag, value in group.items.items()}


@pytest.mark.parametrize("release", ["0.16", "0.19", "main"])
def test_written_widths_of_a_gated_delta_net_are_the_model_s(release: str) -> None:
    """megatron-core 0.16.1 builds 33,718,464 parameters a layer of this on one rank, and 8,429,712 on each of four."""
    case = case_of(QWEN, devices=64, batch=512)
    settings = arguments(case, layout_of(case, expert_parallel=8), release)
    mixer = next(each for each in case.model.mixers if isinstance(each, GatedDelta))
    keys, values = (int(str(settings[f"--linear-num-{name}-heads"])) for name in ("key", "value"))
    key_dim, value_dim = (int(str(settings[f"--linear-{name}-head-dim"])) for name in ("key", "value"))
    taps, hidden = int(str(settings["--linear-conv-kernel-dim"])), int(str(settings["--hidden-size"]))
    wide = 2 * keys * key_dim + values * value_dim
    inside = hidden * (wide + values * value_dim + 2 * values)
    counted = inside + taps * wide + 2 * values + value_dim + values * value_dim * hidden
    assert counted == sum(mixer_weights(mixer, hidden)) == 33_718_464
    assert mixer_weights(mixer, hidden)[0] // 4 + mixer_weights(mixer, hidden)[1] == 8_429_712
    where = eval(str(settings["--linear-attention-freq"]))  # as Megatron-LM does
    assert [bool(each) for each in where] == [case.model.kinds[index].mixer is not None for index in case.model.pattern]
    assert "--attention-output-gate" in settings


def test_written_arguments_of_sparse_attention_are_the_model_s() -> None:
    case = case_of(SPARSE, devices=512, batch=4096)
    settings = arguments(case, layout_of(case, expert_parallel=64), "0.19")
    indexer = case.model.attention.indexer
    assert indexer is not None
    names = ("--dsa-indexer-n-heads", "--dsa-indexer-head-dim", "--dsa-indexer-topk")
    chosen = case.model.attention.selected_tokens
    assert [int(str(settings[name])) for name in names] == [indexer.num_heads, indexer.head_dim, chosen]
