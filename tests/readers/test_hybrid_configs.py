"""Configurations of hybrids that cannot be read, and users' files that describe such models by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.catalog import load_model
from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.errors import InputError
from meshwright.perf.parameters import total_parameters
from meshwright.readers.hf_config import model_from_config

NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "vocab_size": 1000, "hidden_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "n_routed_experts": 8,
}
QWEN = {
    "architectures": ["Qwen3NextForCausalLM"], "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2,
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "letter": ({**NEMOTRON, "hybrid_override_pattern": "MX*"}, r"layer kind 'X' is not described; known: M, \*, -, E.*YAML"),
    "word": (
        {**QWEN, "layer_types": ["linear_attention", "full_atention"]},
        r"layer_types: layer kind 'full_atention' is not described; did you mean full_attention.*docs/adding-a-model\.md",
    ),
    "length of letters": (
        {**NEMOTRON, "hybrid_override_pattern": "MM*", "num_hidden_layers": 4}, "has 3 entries for 4 layers",
    ),
    "length of words": ({**QWEN, "layer_types": ["full_attention"]}, "layer_types: has 1 entries for 2 layers"),
    "no pattern": (NEMOTRON, "hybrid_override_pattern or layers_block_type: is missing"),
    "experts without a number": (
        {key: value for key, value in NEMOTRON.items() if key != "n_routed_experts"} | {"hybrid_override_pattern": "ME*"},
        "n_routed_experts: is missing, and the pattern has mixtures",
    ),
    "two numbers of experts": ({**QWEN, "num_local_experts": 16}, "num_experts=8 and num_local_experts=16 contradict each other"),
    "more experts a token than there are": ({**QWEN, "num_experts_per_tok": 9}, "experts_per_token=9 exceeds num_experts=8"),
    "heads that groups do not divide": (
        {**QWEN, "linear_num_key_heads": 3, "linear_num_value_heads": 8}, "key_heads=3 does not divide value_heads=8",
    ),
    "a tower without a description": ({**QWEN, "vision_config": {"model_type": "x"}}, "vision_config: says nothing of its tower"),
    "an unknown class with telling keys": (
        {**QWEN, "architectures": ["Qwen9ForCausalLM"], "linear_num_value_heads": 8},
        r"architecture 'Qwen9ForCausalLM' is not described; did you mean .*nearest to Qwen3NextForCausalLM.*YAML",
    ),
    "rates that are none": (
        {"architectures": ["DeepseekV4ForCausalLM"], "vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 8, "compress_ratios": [4, 7]},
        "compress_ratios: 7 is none of 0, 4, 128",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_one_line(name: str) -> None:
    config, wanted = BAD[name]
    with pytest.raises(InputError, match=wanted) as caught:
        model_from_config(config, where="config.json")
    assert len(caught.value.messages) == 1


MINE = """
sources: {mine: "nobody's model, for a test"}
models:
  mine:
    source: mine
    hidden: 256
    vocabulary: 1000
    attention: {num_heads: 4, num_key_value_heads: 2, head_dim: 64, gate: full}
    mixers:
      gated_delta: {key_heads: 2, value_heads: 4, key_dim: 32, value_dim: 32}
      mamba2: {num_heads: 8, head_dim: 64, state_dim: 16}
    mlp: {width: 512}
"""
LINEAR = MINE + """
    kinds: {linear: {mixer: gated_delta}, full: {}, both: {mixer: mamba2, attention: full}}
    repeat: [linear, full, both]
    layers: 6
"""
LETTERS = MINE + """
    norms: 1
    kinds: {M: {mixer: mamba2, feed_forward: none}, "*": {feed_forward: none}, "-": {attention: none, feed_forward: mlp}}
    letters: "M-M*-"
"""


def described(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_model(str(path))


def test_kinds_take_mixers_by_name(tmp_path: Path) -> None:
    model = described(tmp_path, LINEAR)
    linear, full, both = model.kinds
    assert isinstance(linear.mixer, GatedDelta)
    assert linear.attention is None
    assert full.mixer is None
    assert isinstance(both.mixer, Mamba2)
    assert both.attention == full.attention
    assert model.pattern == (0, 1, 2) * 2


@pytest.mark.parametrize("key", ["num_mtp_layers", "num_mtp_passes"])
def test_a_description_has_no_more_late_heads_than_layers(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=f"{key}.*1000000000 layers are more than") as caught:
        described(tmp_path, f"{LINEAR}    {key}: 1000000000\n")
    assert len(caught.value.messages) == 1


def test_letters_lay_out_layers_of_one_block(tmp_path: Path) -> None:
    model = described(tmp_path, LETTERS)
    assert [(model.kinds[index].mixes, model.kinds[index].has_block) for index in model.pattern] == [
        (True, False), (False, True), (True, False), (True, False), (False, True),
    ]
    block = 3 * 256 * 512 + 256
    assert total_parameters(model) - total_parameters(described(tmp_path, LETTERS.replace("M-M*-", "M-M*"))) == block


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (LINEAR.replace("mixer: gated_delta}", "mixer: gated_dellta}"), "gated_dellta. is not described; did you"),
        (LINEAR.replace("attention: full", "attention: wide"), "kind both: attention 'wide' is not described"),
        (LETTERS.replace("feed_forward: mlp", "feed_forward: narrow"), "kind -: feed_forward 'narrow' is not described"),
        (LETTERS.replace('"M-M*-"', '"M-MX-"'), "unknown kind 'X'"),
        (LETTERS + "    layers: 7\n", "has 5 entries for 7 layers"),
        (LINEAR.replace("key_heads: 2", "key_heads: 3"), "key_heads=3 does not divide value_heads=4"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        described(tmp_path, text)


def test_a_configuration_stands_in_a_block_as_it_is(tmp_path: Path) -> None:
    config = {**QWEN, "num_hidden_layers": 4, "moe_intermediate_size": 64}
    text = f"sources: {{}}\nmodels:\n  mine:\n    source: nobody's, for a test\n    config: {json.dumps(config)}\n"
    model = described(tmp_path, text)
    assert model.name == "mine"
    assert replace_source(model) == replace_source(model_from_config(config, where="here", name="mine"))


def replace_source(model: Any) -> Any:
    from dataclasses import replace

    return replace(model, source="")


SPARSE = {
    "architectures": ["GlmMoeDsaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 1000,
    "num_attention_heads": 4,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "intermediate_size": 64, "q_lora_rank": 64,
    "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
}
GRAMS = {
    "architectures": ["Qwen4ExpForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "indexer_n_heads": 4, "indexer_head_dim": 64,
    "indexer_budget": 512,
}


@pytest.mark.parametrize(("config", "wanted"), [
    ({**SPARSE, "indexer_types": ["shared", "full", "full", "shared"]}, "takes over a choice that no layer has made"),
    ({**GRAMS, "ple_layer_ids": [1, 99]}, "ple_layer_ids: 1, 99 are not all of the layers 1 to 4"),
    ({**GRAMS, "ple_layer_ids": [1], "heads_per_ngram": 10**9}, "not split over 2000000000 heads"),
    ({**GRAMS, "layer_types": ["linear_attention"] * 3 + ["warp"]}, "layer kind 'warp' is not described"),
    ({key: value for key, value in GRAMS.items() if key != "indexer_budget"}, "indexer_budget: is missing"),
])
def test_what_contradicts_itself_in_sparse_and_late_models(config: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        model_from_config(config, where="here")


def test_tables_of_n_grams_have_as_many_rows_as_their_primes() -> None:
    model = model_from_config({**GRAMS, "ple_layer_ids": [1], "heads_per_ngram": 2, "ngram_vocab_size_base": 20}, where="here")
    assert [(each.rows, each.width) for each in model.lookups] == [(128, 64)]  # 23 + 29 + 31 + 37, in steps of 128
