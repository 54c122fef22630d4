"""Hybrids and sparse attention against the classes of transformers: a few layers, every sort of layer among them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.catalog.hf_published import CONFIGURATIONS, class_configuration, class_parameters

from meshwright.catalog import load_model, models
from meshwright.catalog.model_sheet import published_config
from meshwright.perf.parameters import mtp_parameters, total_parameters
from meshwright.readers.hf_config import model_from_config

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
MIXED = ["linear_attention", "full_attention", "linear_attention"]
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-next": ("Qwen3NextForCausalLM", {"num_hidden_layers": 8}),
    "qwen3-next dense layers": ("Qwen3NextForCausalLM", {"num_hidden_layers": 4, "mlp_only_layers": [1], "attention_bias": True}),
    "qwen3.5": ("Qwen3_5ForCausalLM", {"num_hidden_layers": 4, "tie_word_embeddings": True}),
    "qwen3.5 mixture": ("Qwen3_5MoeForCausalLM", {"num_hidden_layers": 4, "linear_num_value_heads": 64}),
    "nemotron letters": ("NemotronHForCausalLM", {"hybrid_override_pattern": "M-M*EM", "num_hidden_layers": 6, "n_groups": 4}),
    "nemotron biases": ("NemotronHForCausalLM", {"hybrid_override_pattern": "M-*", "use_bias": True, "mlp_bias": True}),
    "nemotron latent": (
        "NemotronHForCausalLM", {"hybrid_override_pattern": "ME*E", "moe_latent_size": 512, "n_routed_experts": 16},
    ),
    "deepseek-v3.2": ("DeepseekV32ForCausalLM", {"num_hidden_layers": 4}),
    "glm-5.2": ("GlmMoeDsaForCausalLM", {"num_hidden_layers": 9, "index_topk_freq": 4, "index_skip_topk_offset": 3}),
    "deepseek-v4": ("DeepseekV4ForCausalLM", {"num_hidden_layers": 5}),
    "deepseek-v4 window": ("DeepseekV4ForCausalLM", {"num_hidden_layers": 4, "compress_ratios": [0, 0, 4, 128]}),
    "minimax": ("MiniMaxForCausalLM", {"num_hidden_layers": 4}),
    "kimi linear": ("KimiLinearForCausalLM", {"num_hidden_layers": 6}),
    "granite": ("GraniteMoeHybridForCausalLM", {"num_hidden_layers": 3, "layer_types": MIXED}),
    "granite dense": (
        "GraniteMoeHybridForCausalLM", {"num_hidden_layers": 3, "layer_types": MIXED, "num_local_experts": 0, "mamba_n_groups": 2},
    ),
    "bamba": ("BambaForCausalLM", {"num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_proj_bias": True}),
    "falcon-h1": (
        "FalconH1ForCausalLM", {"num_hidden_layers": 2, "mamba_rms_norm": True, "mlp_bias": True, "attention_bias": True},
    ),
    "k-exaone": ("ExaoneMoeForCausalLM", {"num_hidden_layers": 5, "num_key_value_heads": 8}),
    "hunyuan 4": ("HYV4ForCausalLM", {"num_hidden_layers": 6}),
    "dots3": ("Dots3NoteForCausalLM", {"num_hidden_layers": 6}),
    "dots3 without sparse attention": ("Dots3NoteForCausalLM", {"num_hidden_layers": 5, "use_dsa": False}),
    "minimax m3": (
        "MiniMaxM3VLForCausalLM",
        {"num_hidden_layers": 4, "moe_layer_freq": [0, 1, 1, 1],
         "sparse_attention_config": {"sparse_attention_freq": [0, 1, 0, 1]}},
    ),
    "mimo v2 flash": ("MiMoV2FlashForCausalLM", {"num_hidden_layers": 7, "attention_bias": True}),
    "a.x k1": ("AXK1ForCausalLM", {"num_hidden_layers": 3}),
    "kolibri": ("Kolibri1ForCausalLM", {"num_hidden_layers": 6}),
    "flint": ("FlintForCausalLM", {"num_hidden_layers": 7, "attention_bias": True}),
    "laguna": (
        "LagunaForCausalLM",
        {"num_hidden_layers": 3, "num_attention_heads_per_layer": [48, 64, 32],
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    ),
    "laguna elements": ("LagunaForCausalLM", {"num_hidden_layers": 2, "gating": "per-element"}),
    "afmoe": ("AfmoeForCausalLM", {"num_hidden_layers": 5, "num_dense_layers": 2, "num_key_value_heads": 4}),
    "mellum": (
        "MellumForCausalLM", {"num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    ),
    "lfm3": ("Lfm3ForCausalLM", {"num_hidden_layers": 6, "conv_bias": True}),
    "lfm3 plain": ("Lfm3ForCausalLM", {"num_hidden_layers": 4, "use_sandwich_norm": False, "use_attention_gate": False}),
    "qwen4-exp": (
        "Qwen4ExpForCausalLM",
        {"num_hidden_layers": 5, "ple_layer_ids": [2, 3], "ngram_vocab_size_base": 1000, "heads_per_ngram": 4, "eos_token_id": 0,
         "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048,
         "indexer_compress_ratio": 32},
    ),
    "longcat": ("LongcatFlashForCausalLM", {"num_layers": 2}),
    "glm lite": ("Glm4MoeLiteForCausalLM", {"num_hidden_layers": 3}),
    "ling hybrid": ("BailingHybridForCausalLM", {"num_hidden_layers": 7}),
    "jamba": ("JambaForCausalLM", {"num_hidden_layers": 8, "mamba_proj_bias": True}),
    "lfm2": ("Lfm2ForCausalLM", {"num_hidden_layers": 4, "full_attn_idxs": [1, 3], "conv_bias": True}),
    "lfm2 mixture": (
        "Lfm2MoeForCausalLM", {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    ),
    "olmo hybrid": ("OlmoHybridForCausalLM", {"num_hidden_layers": 4}),
    "gemma 3n": ("Gemma3nForCausalLM", {"num_hidden_layers": 20}),
    "gemma 4": ("Gemma4ForCausalLM", {"num_hidden_layers": 6}),
    "gemma 4 shared": (
        "Gemma4ForCausalLM",
        {"num_hidden_layers": 12, "num_kv_shared_layers": 4, "use_double_wide_mlp": True, "attention_k_eq_v": True,
         "num_global_key_value_heads": 2},
    ),
    "gemma 4 mixture": (
        "Gemma4ForCausalLM",
        {"num_hidden_layers": 6, "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 2,
         "moe_intermediate_size": 256},
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_parameters_equal_the_class_to_the_last_one(name: str) -> None:
    architecture, said = SMALL[name]
    config = json.loads(json.dumps(class_configuration(architecture, said).to_dict(), default=str))
    read = model_from_config({**config, "architectures": [architecture]}, where=name)
    built = class_parameters(architecture, said)
    assert total_parameters(read) == built
    assert read.architecture == architecture


@pytest.mark.parametrize("name", [name for name, (_, said) in SMALL.items() if "hybrid_override_pattern" in said])
def test_released_keys_say_the_same_as_those_of_the_class(name: str) -> None:
    architecture, said = SMALL[name]
    written = class_configuration(architecture, said).to_dict()
    assert "hybrid_override_pattern" not in written
    again = json.loads(json.dumps(written, default=str)) | {"architectures": [architecture]}
    kept = {key: value for key, value in again.items() if key not in ("layers_block_type", "layer_types")}
    pattern = said["hybrid_override_pattern"]
    assert model_from_config({**kept, "hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}, where=name) == (
        model_from_config(again, where=name)
    )


TOTALS = {
    "qwen3-next-80b-a3b": (80e9, 3e9), "qwen3.5-397b-a17b": (397e9, 17e9), "qwen3.5-122b-a10b": (122e9, 10e9),
    "nemotron-h-8b": (8.1e9, 8.1e9), "nemotron-h-56b": (56.3e9, 56.3e9), "nemotron-nano-9b-v2": (8.9e9, 8.9e9),
    "nemotron-3-nano-30b-a3b": (31.6e9, 3.6e9), "nemotron-3-super-120b-a12b": (120.6e9, 12.7e9), "nemotron-3-ultra": (550e9, 55e9),
    "deepseek-v4-flash": (284e9, 13e9), "glm-5": (744e9, 40e9), "kimi-linear-48b-a3b": (49.1e9, 3e9),
    "minimax-text-01": (456e9, 45.9e9), "falcon-h1-7b": (7.59e9, 7.59e9), "falcon-h1-34b": (33.6e9, 33.6e9),
    "jamba-1.5-large": (398e9, 94e9), "granite4-h-small": (32.2e9, 9e9), "ring-mini-linear-2.0": (16.4e9, 1.6e9),
    "ring-flash-linear-2.0": (104.2e9, 7.4e9), "lfm2-8b-a1b": (8.3e9, 1.5e9), "gemma4-31b": (30.7e9, 30.7e9),
    "falcon-h1-1.5b": (1.55e9, 1.55e9), "falcon-h1-1.5b-deep": (1.55e9, 1.55e9), "falcon-h1-3b": (3.15e9, 3.15e9),
    "k-exaone-236b-a23b": (236e9, 23e9), "mimo-v2-flash": (309e9, 15e9), "longcat-flash": (560e9, 27e9),
    "minimax-m3": (428e9, 23e9), "bamba-9b": (9.78e9, 9.78e9), "step-3.5-flash": (196e9, 11e9),
    "beam-1.0-501b-a23b": (501e9, 23e9), "muse-spark-816b-a42b": (816e9, 42e9),
}
"""What model cards and reports print: all parameters, and those of a token, which some count without embeddings."""


@pytest.mark.parametrize("name", TOTALS)
def test_published_totals_are_met_within_a_hundredth(name: str) -> None:
    assert total_parameters(load_model(name)) == pytest.approx(TOTALS[name][0], rel=0.01)


def test_multi_token_prediction_has_the_layers_that_its_pattern_names() -> None:
    model = load_model("nemotron-3-super-120b-a12b")
    attention, mixture = (model.kinds[index] for index in model.mtp_pattern)
    assert attention.attention is not None
    assert attention.mixer is None
    assert mixture.experts is not None
    assert model.mtp_kinds == model.mtp_pattern * 2
    assert float(mtp_parameters(model).total) == pytest.approx(2.94e9, rel=0.01)


def test_every_catalogued_configuration_of_a_known_class_is_built_by_the_benchmark() -> None:
    held = [config for name in models() if (config := published_config(name))]
    classes = {next(iter(config["architectures"])) for config in held}  # type: ignore[call-overload]
    assert classes - set(CONFIGURATIONS) == {"BailingMoeLinearV2ForCausalLM", "Step3p5ForCausalLM"}
