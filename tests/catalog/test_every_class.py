"""Every language model that transformers can make: read to the last weight, or on the list of those that are not, with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.catalog.hf_mapping import classes, refusal, table, walk
from tests.draws import one_of

from meshwright.errors import InputError
from meshwright.readers.architectures import architectures
from meshwright.readers.hf_config import model_from_config

oracle = pytest.mark.oracle
pytestmark = pytest.mark.filterwarnings("ignore")
PARTS = 8
"""The walk is so many tests, for as many processes; every fourth one by default."""


@oracle
@pytest.mark.parametrize("part", one_of(4, range(PARTS)))
def test_each_class_is_read_as_it_is_built_and_its_layers_are_named(part: int) -> None:
    """A model type that is new here fails: a reader, or a line in ``readers/undescribed.yaml`` that says why there is none."""
    pytest.importorskip("transformers")
    listed = {**table()["unread"], **table()["unbuilt"]}
    found = [walk(kind) for kind in list(classes())[part::PARTS] if kind not in listed]
    assert found
    assert [each for each in found if each.outcome != "equal" or each.unknown_layers] == []


@oracle
def test_what_is_not_read_is_refused_in_one_line() -> None:
    pytest.importorskip("transformers")
    asked = set(table()["unread"])
    refused = {kind: each for kind in sorted(asked) if (each := refusal(kind)) is not None}
    assert len(refused) > len(table()["unread"]) / 2
    assert {kind for kind, each in refused.items() if len(each) != 1} == set()
    assert "RwkvForCausalLM' is not described: no formula here is for its recurrence" in refused["rwkv"][0]
    assert "'mllama_text_model' is not described: its layers attend to" in refused["mllama"][0]
    assert "is not described: it is a draft that reads the states of another model" in refused["gemma4_unified_assistant"][0]


@oracle
def test_the_list_names_classes_that_there_are_and_no_reader_is_for() -> None:
    pytest.importorskip("transformers")
    listed = [*table()["said"], *table()["unread"], *table()["unbuilt"]]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(classes())
    assert [kind for kind in table()["unread"] if kind in architectures or classes()[kind] in architectures] == []


DENSE, SPARSE, FULL, SLIDING = "dense", "sparse", "full_attention", "sliding_attention"
OTHERWISE: dict[str, tuple[str, dict[str, Any]]] = {
    "a.x k2": ("axk2", {"n_group": 8, "topk_group": 4, "mlp_layer_types": [SPARSE, DENSE, SPARSE], "num_hidden_layers": 3}),
    "beam": ("beam", {"num_hidden_layers": 2}),
    "muse spark": ("muse_spark", {"text_config": {"num_hidden_layers": 3, "mlp_layer_types": [DENSE, SPARSE, SPARSE]}}),
    "mistral large 4": (
        "mistral_large4", {"text_config": {"num_hidden_layers": 5, "index_topk_pattern": "FSSFS", "no_rope_layer_interval": 2}},
    ),
    "glm-5.3-flash": (
        "glm5_next",
        {"text_config": {"num_hidden_layers": 8, "indexer_types": ["full"] * 7 + ["shared"],
                         "linear_attn_config": {"head_dim": 64, "num_heads": 32, "short_conv_kernel_size": 3}}},
    ),
    "inkling": ("inkling_text", {"num_hidden_layers": 7, "dense_mlp_idx": 2, "local_layer_ids": [0, 2]}),
    "inkling as released": (
        "inkling_text", {"num_hidden_layers": 3, "dense_mlp_idx": 1, "intermediate_size": 1000, "dense_intermediate_size": 5000},
    ),
    "inkling 2": (
        "inkling2_text",
        {"num_hidden_layers": 3, "layer_types": ["hybrid", "hybrid_sliding", "hybrid"], "swa_num_key_value_heads": 16},
    ),
    "zaya": (
        "zaya",
        {"num_hidden_layers": 3, "layer_types": ["hybrid", "hybrid_sliding", "hybrid"], "sliding_window": 128,
         "lm_head_bias": True, "attention_bias": True, "cca_time0": 3, "cca_time1": 4},
    ),
    "command r+": ("cohere", {"num_hidden_layers": 2, "use_qk_norm": True, "num_key_value_heads": 8, "attention_bias": True}),
    "phi": ("phi", {"num_hidden_layers": 2, "qk_layernorm": True, "num_key_value_heads": 8}),
    "gpt-j": ("gptj", {"n_layer": 2, "n_inner": 1000}),
    "gpt-neo": ("gpt_neo", {"num_layers": 3, "attention_types": [[["global"], 1], [["local"], 2]], "intermediate_size": 100}),
    "bigcode": ("gpt_bigcode", {"n_layer": 2, "multi_query": False}),
    "ctrl": ("ctrl", {"n_layer": 2, "dff": 77}),
    "persimmon": ("persimmon", {"num_hidden_layers": 2, "qk_layernorm": False}),
    "gpt-neox of japanese": ("gpt_neox_japanese", {"num_hidden_layers": 1}),
    "olmo": ("olmo", {"num_hidden_layers": 2, "attention_bias": True}),
    "starcoder 2": ("starcoder2", {"num_hidden_layers": 2, "use_bias": False, "sliding_window": 128}),
    "stablelm": (
        "stablelm",
        {"num_hidden_layers": 2, "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True,
         "num_key_value_heads": 8},
    ),
    "mamba": ("mamba", {"num_hidden_layers": 2, "use_bias": True, "use_conv_bias": False}),
    "falcon mamba": ("falcon_mamba", {"num_hidden_layers": 2, "use_bias": True, "time_step_rank": 17, "expand": 4}),
    "mamba-2": ("mamba2", {"num_hidden_layers": 2, "use_bias": True, "use_conv_bias": False, "n_groups": 2}),
    "bitnet": ("bitnet", {"num_hidden_layers": 2, "attention_bias": True}),
    "diffllama": ("diffllama", {"num_hidden_layers": 2, "attention_bias": True, "num_key_value_heads": 8}),
    "doge": ("doge", {"num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}),
    "minicpm3": ("minicpm3", {"num_hidden_layers": 2, "mlp_bias": True}),
    "flexolmo": ("flex_olmo", {"num_hidden_layers": 2, "num_key_value_heads": 8, "attention_bias": True}),
    "dbrx": (
        "dbrx",
        {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 8}, "n_layers": 3,
         "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4, "ffn_hidden_size": 1000}},
    ),
    "aria": ("aria_text", {"num_hidden_layers": 2, "attention_bias": True}),
    "granite windows": ("granitemoe_swa", {"num_hidden_layers": 3, "shared_intermediate_size": 64, "attention_bias": True}),
    "modernbert": (
        "modernbert-decoder",
        {"num_hidden_layers": 4, "norm_bias": True, "classifier_bias": True, "decoder_bias": False, "attention_bias": True,
         "mlp_bias": True},
    ),
    "chameleon": (
        "chameleon",
        {"num_hidden_layers": 2, "vocabulary_map": {"<image>": 1}, "num_key_value_heads": 8, "attention_bias": True},
    ),
    "molmo 2": ("molmo2", {"text_config": {"num_hidden_layers": 2, "qk_norm_type": "olmo", "attention_bias": True}}),
    "cosmos 3 edge": ("cosmos3_edge", {"text_config": {"num_hidden_layers": 2, "mlp_bias": True, "attention_bias": True}}),
    "unlimited ocr": ("unlimited_ocr", {"text_config": {"num_hidden_layers": 3, "attention_bias": True}}),
    "gemma 4 unified": (
        "gemma4_unified_text",
        {"num_hidden_layers": 12, "attention_k_eq_v": True, "num_kv_shared_layers": 4, "use_double_wide_mlp": True},
    ),
    "step 3.7": (
        "step3p7",
        {"text_config": {"num_hidden_layers": 4, "layer_types": [FULL, SLIDING, SLIDING, FULL], "sliding_window": 512,
                         "num_sliding_attention_heads": 96, "mlp_layer_types": [DENSE, SPARSE, SPARSE, SPARSE]}},
    ),
    "wrapper that unties": ("mistral3", {"tie_word_embeddings": False, "text_config": {"num_hidden_layers": 2}}),
    "wrapper that takes over": (
        "llava",
        {"tie_word_embeddings": False,
         "text_config": {"model_type": "llama", "num_hidden_layers": 2, "tie_word_embeddings": True}},
    ),
}
"""What configurations say otherwise than the defaults of their class: patterns, biases, norms, ties."""


@oracle
@pytest.mark.parametrize("name", OTHERWISE)
def test_what_differs_from_the_defaults_is_counted(name: str) -> None:
    pytest.importorskip("transformers")
    kind, said = OTHERWISE[name]
    found = walk(kind, said)
    assert (found.outcome, found.read) == ("equal", found.built)


SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 96}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MIXED = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "experts that contradict": (
        {"model_type": "axk2", **SIZES, **LATENT, **ROUTED, "num_local_experts": 4}, "num_local_experts=4 and n_routed_experts=8",
    ),
    "no latent": (
        {"model_type": "axk2", **SIZES, **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, **ROUTED},
        "q_lora_rank: is missing",
    ),
    "gate without biases": (
        {"model_type": "beam", **SIZES, **MIXED, "attention_bias": True}, "attention_bias: biases beside a gate that has none",
    ),
    "few words": ({"model_type": "muse_glimmer_text", **SIZES, "layer_types": [FULL]}, "layer_types: has 1 entries for 4 layers"),
    "odd block": (
        {"model_type": "muse_spark_text", **SIZES, **MIXED, "mlp_layer_types": ["dense", "sparse", "sprase", "dense"]},
        "mlp_layer_types: 'sprase' is none of dense, sparse",
    ),
    "shared latents": (
        {"model_type": "mistral_large4_text", **SIZES, **LATENT, **ROUTED, "kv_source_layers": [0, 0, 2, 3]},
        "kv_source_layers: latents of keys and values shared by layers",
    ),
    "few rotary layers": (
        {"model_type": "mistral_large4_text", **SIZES, **LATENT, **ROUTED, "no_rope_layers": [1, 0]},
        "no_rope_layers: has 2 entries for 4 layers",
    ),
    "unknown layer": (
        {"model_type": "glm5_next_text", **SIZES, **LATENT, **ROUTED, "layer_types": ["linear_attention"] * 3 + ["warp"]},
        "layer_types: layer kind 'warp' is not described",
    ),
    "first choice is taken over": (
        {"model_type": "glm5_next_text", **SIZES, **LATENT, **ROUTED, "indexer_types": ["shared"] * 4},
        "takes over a choice that no layer has made",
    ),
    "unknown layer of inkling": (
        {"model_type": "inkling_text", **SIZES, **ROUTED, "num_key_value_heads": 2, "layer_types": ["hybrid"] * 3 + ["sliding"]},
        "layer kind 'sliding' is not described",
    ),
    "narrow router": (
        {"model_type": "zaya", **SIZES, **MIXED, "router_hidden_size": 4}, "router_hidden_size: 4 is less than 8 experts",
    ),
    "window without a width": (
        {"model_type": "zaya", **SIZES, **MIXED, "layer_types": ["hybrid_sliding"] * 4}, "sliding_window: is missing",
    ),
    "more chosen than there are": (
        {"model_type": "flex_olmo", **SIZES, "num_experts": 4, "num_experts_per_tok": 5}, "experts_per_token=5 exceeds",
    ),
    "local of no layer": (
        {"model_type": "gpt_neo", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 9, "max_position_embeddings": 9,
         "attention_layers": ["global", "lokal"]}, "layer kind 'lokal' is not described; did you mean local",
    ),
    "heads that are not the width": (
        {"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 9, "num_heads": 3, "head_dim": 64},
        "num_heads: 3 heads of 64 are not the inner width 128",
    ),
    "mixture of neurons": ({"model_type": "doge", **SIZES, "is_moe": True}, "is_moe: mixtures of single neurons"),
    "odd norm": ({"model_type": "molmo2_text", **SIZES, "qk_norm_type": "max"}, "qk_norm_type: 'max' is none of qwen3, olmo"),
    "latent biases": ({"model_type": "minicpm3", **SIZES, **LATENT, "attention_bias": True}, "attention_bias: biases in latent"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_one_line(name: str) -> None:
    config, wanted = BAD[name]
    with pytest.raises(InputError) as caught:
        model_from_config(config, where="x")
    assert len(caught.value.messages) == 1
    assert wanted in str(caught.value)


def test_a_wrapper_under_the_class_of_its_language_model_is_read() -> None:
    text = {"model_type": "llama4_text", **SIZES, "num_local_experts": 4, "intermediate_size_mlp": 64}
    read = model_from_config({"architectures": ["Llama4ForCausalLM"], "model_type": "llama4", "text_config": text}, where="x")
    assert read.hidden == 64


@pytest.mark.parametrize(
    ("wrapper", "text", "tied"), [(True, None, True), (True, False, False), (False, True, True), (None, None, False)]
)
def test_what_a_language_model_says_of_its_embeddings_stands_before_a_wrapper_s_default(
    wrapper: bool | None, text: bool | None, tied: bool
) -> None:
    """transformers writes the default of a wrapper beside what the checkpoint has, which its language model says."""
    inner = {"model_type": "llama", **SIZES, "tie_word_embeddings": text}
    read = model_from_config({"model_type": "x", "tie_word_embeddings": wrapper, "text_config": inner}, where="x")
    assert read.tied_embeddings is tied


def test_what_thinks_of_an_omni_model_is_read() -> None:
    text = {"model_type": "qwen2_5_omni_text", **SIZES}
    config = {"architectures": ["Qwen2_5OmniForConditionalGeneration"], "model_type": "qwen2_5_omni",
              "thinker_config": {"text_config": text, "audio_config": {"encoder_layers": 32, "d_model": 1280}}}
    read = model_from_config(config, where="x")
    assert (read.hidden, read.architecture) == (64, "Qwen2ForCausalLM")
    assert read.beside == ("audio_config (32 layers of 1,280)",)


def test_a_class_name_with_underscores_is_found_by_the_model_type() -> None:
    config = {"model_type": "qwen3_5_moe_text", **SIZES, **MIXED, "num_key_value_heads": 2}
    assert model_from_config(config, where="x").architecture == "Qwen3_5MoeForCausalLM"
