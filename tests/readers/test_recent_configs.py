"""Configurations of 2025 and 2026 as their houses publish them, where transformers has no class or writes other keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.catalog import load_model
from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config

if TYPE_CHECKING:
    from meshwright.domain.model import Model

LING = {
    "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe_v2", "hidden_size": 2048, "intermediate_size": 5120,
    "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 157184,
    "max_position_embeddings": 32768, "rope_theta": 600000, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-6,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "use_qk_norm": True,
    "moe_router_enable_expert_bias": True, "tie_word_embeddings": False,
}
A13B = {
    "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128, "vocab_size": 128167,
    "max_position_embeddings": 32768, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "num_experts": 64, "moe_topk": [8] * 32,
    "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32, "tie_word_embeddings": True,
}
MIMO = {
    "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151680, "rope_theta": 640000,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}


def shape(model: Model) -> Model:
    return replace(model, name="", source="", assumed=(), architecture="")


@pytest.mark.parametrize(("config", "name"), [(LING, "ling-mini-2.0"), (A13B, "hunyuan-a13b"), (MIMO, "mimo-7b")])
def test_a_published_configuration_is_the_catalogue_s_model(config: dict[str, Any], name: str) -> None:
    assert shape(model_from_config(config, where="config.json")) == shape(load_model(name))


def test_ernie_s_mixtures_end_where_the_file_says() -> None:
    config = {
        "model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 6,
        "num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 103424, "moe_layer_start_index": 1,
        "moe_layer_end_index": 4, "moe_layer_interval": 2,
    }
    model = model_from_config(config, where="config.json")
    assert [model.kinds[index].experts is not None for index in model.pattern] == [False, True, False, True, False, False]


def test_figures_that_differ_from_layer_to_layer_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"config\.json: moe_topk: .* differs from layer to layer, which is not described"):
        model_from_config(A13B | {"moe_topk": [8] * 31 + [4]}, where="config.json")
