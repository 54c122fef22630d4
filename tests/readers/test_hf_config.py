"""Configurations as they are published, and hostile ones."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog import load_model
from meshwright.domain.model import Model
from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config, read_config

LLAMA3_70B = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 28672, "max_position_embeddings": 8192,
    "model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "vocab_size": 128256,
}
LLAMA2_7B = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "vocab_size": 32000,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False, "ep_size": 1, "first_k_dense_replace": 3,
    "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False, "topk_group": 4,
    "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280, "quantization_config": {"fmt": "e4m3"},
}
DEEPSEEK_V2_LITE = {
    "architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 2048,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "topk_group": 1, "v_head_dim": 128,
    "vocab_size": 102400,
}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": None,
    "vocab_size": 32000,
}
GEMMA3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "image_token_index": 262144,
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text",
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024,
        "query_pre_attn_scalar": 168, "max_position_embeddings": 131072,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
GEMMA3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "sliding_window": 1024, "max_position_embeddings": 131072},
}
LLAMA4_SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "tie_word_embeddings": False,
    "text_config": {
        "attention_bias": False, "attention_chunk_size": 8192, "head_dim": 128, "hidden_size": 5120,
        "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "max_position_embeddings": 10485760, "model_type": "llama4_text", "no_rope_layers": [],
        "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
        "num_local_experts": 16, "use_qk_norm": True, "vocab_size": 202048,
    },
}
LLAMA4_MAVERICK = {
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
    "text_config": LLAMA4_SCOUT["text_config"] | {  # type: ignore[operator]
        "interleave_moe_layer_step": 2, "max_position_embeddings": 1048576, "num_local_experts": 128,
        "use_qk_norm": False,
    },
}
FALCON_40B = {
    "architectures": ["RWForCausalLM"], "alibi": False, "bias": False, "hidden_size": 8192, "model_type": "RefinedWeb",
    "n_head": 128, "n_head_kv": 8, "n_layer": 60, "new_decoder_architecture": True, "parallel_attn": True,
    "vocab_size": 65024, "max_position_embeddings": 2048,
}
BLOOM = {
    "architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_embed": 14336, "n_layer": 70,
    "num_attention_heads": 112, "vocab_size": 250880, "seq_length": 2048, "attention_softmax_in_fp32": True,
}
OPT_350M = {
    "architectures": ["OPTForCausalLM"], "do_layer_norm_before": False, "ffn_dim": 4096, "hidden_size": 1024,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24,
    "vocab_size": 50272, "word_embed_proj_dim": 512,
}
MPT_7B = {
    "architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
    "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True, "learned_pos_emb": True,
    "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
}
CHATGLM3 = {
    "architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True,
    "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128, "multi_query_attention": True,
    "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "padded_vocab_size": 65024,
    "rmsnorm": True, "seq_length": 8192,
}
QWEN2_57B = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "decoder_sparse_step": 1, "rope_theta": 1e6,
    "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "moe_intermediate_size": 2560,
    "num_attention_heads": 28, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "shared_expert_intermediate_size": 20480, "use_sliding_window": False,
    "sliding_window": 65536, "max_window_layers": 28, "vocab_size": 151936, "tie_word_embeddings": False,
}
INTERNLM_7B = LLAMA2_7B | {
    "architectures": ["InternLMForCausalLM"], "model_type": "internlm", "bias": True, "vocab_size": 103168,
    "max_position_embeddings": 2048,
}

PUBLISHED: list[tuple[str, dict[str, Any]]] = [
    ("llama3-70b", LLAMA3_70B), ("llama2-7b", LLAMA2_7B), ("deepseek-v3", DEEPSEEK_V3),
    ("deepseek-v2-lite", DEEPSEEK_V2_LITE), ("mixtral-8x7b", MIXTRAL), ("gemma3-27b", GEMMA3_27B),
    ("gemma3-4b", GEMMA3_4B), ("llama4-scout", LLAMA4_SCOUT), ("llama4-maverick", LLAMA4_MAVERICK),
    ("falcon-40b", FALCON_40B), ("bloom-176b", BLOOM), ("opt-350m", OPT_350M), ("mpt-7b", MPT_7B),
    ("chatglm3-6b", CHATGLM3), ("qwen2-57b-a14b", QWEN2_57B), ("internlm-7b", INTERNLM_7B),
]


def shape(model: Model) -> Model:
    return replace(model, name="", source="", architecture="")


def faults(config: object) -> list[str]:
    assert isinstance(config, dict)
    with pytest.raises(InputError) as caught:
        model_from_config(config, where="config.json")
    return [str(message) for message in caught.value.messages]


@pytest.mark.parametrize(("name", "config"), PUBLISHED, ids=[name for name, _ in PUBLISHED])
def test_published_configurations_equal_the_catalogue(name: str, config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    known = replace(shape(load_model(name)), norm_epsilon=config.get("rms_norm_eps"))
    known = replace(known, beside=(), vision=None)  # published here are texts of wrappers; of what is beside, files say more
    assert shape(replace(read_config(path), beside=())) == known


def test_a_folder_and_a_path_name_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA3_70B))
    assert load_model(str(folder)).name == "my-llama"
    assert load_model(str(folder / "config.json"), layers=4).num_layers == 4


def test_a_wrapper_says_that_its_text_part_is_read() -> None:
    model = model_from_config(GEMMA3_27B, where="config.json")
    assert model.source == "config.json, text part of Gemma3ForConditionalGeneration only"
    assert model.architecture == "Gemma3ForCausalLM"
    assert model.tied_embeddings


def test_all_faults_come_at_once_with_their_paths() -> None:
    config = LLAMA3_70B | {
        "hidden_size": "8192", "num_hidden_layers": -80, "vocab_size": 0, "num_key_value_heads": 8.0,
        "tie_word_embeddings": "false",
    }
    del config["intermediate_size"]
    found = faults(config)
    assert sorted(found) == sorted(
        [
            "config.json: hidden_size: '8192' is not a whole number but text; remove the quotes",
            "config.json: num_hidden_layers: -80 is not within 1..10000",
            "config.json: vocab_size: 0 is not within 1..1000000000",
            "config.json: num_key_value_heads: 8.0 is not a whole number",
            "config.json: tie_word_embeddings: 'false' is not true or false",
            "config.json: intermediate_size: is missing",
        ]
    )


def test_paths_inside_a_wrapper() -> None:
    config = copy.deepcopy(LLAMA4_SCOUT)
    config["text_config"]["num_local_experts"] = None  # type: ignore[index]
    config["text_config"]["layer_types"] = ["full_attention", "spiral"]  # type: ignore[index]
    found = "\n".join(faults(config))
    assert "config.json: text_config.num_local_experts or num_experts: is missing" in found
    assert "config.json: text_config.layer_types: 'spiral' is none of" in found


def test_what_python_writes_beside_json_is_unknown(tmp_path: Path) -> None:
    """transformers 4 wrote the limit of Mamba-2's steps so; a key that is read is then missing."""
    path = tmp_path / "config.json"
    text = json.dumps({**LLAMA3_70B, "time_step_limit": [0.0, math.inf], "rms_norm_eps": math.nan})
    assert "Infinity" in text
    path.write_text(text)
    assert read_config(path).norm_epsilon is None
    path.write_text(json.dumps({**LLAMA3_70B, "hidden_size": math.inf}))
    with pytest.raises(InputError, match="hidden_size: is missing"):
        read_config(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads=7 does not divide num_heads=64"),
        ({"num_attention_heads": 60}, "60 does not divide hidden size 8192"),
        ({"num_hidden_layers": 10**9}, "is not within 1..10000"),
        ({"hidden_size": 10**30}, "is not within"),
        ({"num_hidden_layers": 10_000, "intermediate_size": 10**9}, "its sizes multiply to"),
        ({"hidden_size": True}, "true is not a whole number"),
        ({"hidden_size": [8192]}, "[8192] is not a whole number"),
        ({"architectures": ["LlamaForCasualLM"], "model_type": "lama"}, "did you mean LlamaForCausalLM"),
        ({"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"}, "'RwkvForCausalLM' is not described"),
        ({"architectures": None, "model_type": None}, "names no architecture"),
        ({"architectures": [3], "model_type": {}}, "names no architecture"),
        ({"architectures": "LlamaForCausalLM", "model_type": None}, "names no architecture"),
    ],
)
def test_bad_values(changes: dict[str, object], expected: str) -> None:
    assert expected in "\n".join(faults(LLAMA3_70B | changes))


def test_experts_that_do_not_add_up() -> None:
    assert "experts_per_token=9 exceeds num_experts=8" in faults(MIXTRAL | {"num_experts_per_tok": 9})[0]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "null", '{"a": 1, "a": 2}', "\x00\x01"])
def test_files_that_are_no_configuration(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert len(caught.value.messages) == 1
    assert "\n" not in str(caught.value)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA3_70B)[:200])
    with pytest.raises(InputError, match="not JSON"):
        read_config(path)


ODD_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False), st.text(max_size=5),
    st.lists(st.integers(-2, 3), max_size=3), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_configuration_is_a_model_or_an_input_error(data: st.DataObject) -> None:
    name, config = data.draw(st.sampled_from(PUBLISHED))
    mutated = copy.deepcopy(config)
    target = mutated
    if "text_config" in mutated and data.draw(st.booleans()):
        target = mutated["text_config"]
    for key in data.draw(st.lists(st.sampled_from(sorted(target)), max_size=4, unique=True)):
        if data.draw(st.booleans()):
            target[key] = data.draw(ODD_VALUES)
        else:
            del target[key]
    try:
        assert isinstance(model_from_config(mutated, where=name), Model)
    except InputError as error:
        assert error.messages
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("config", "base", "ratio"),
    [
        (LLAMA3_70B, 500_000.0, 1.0),
        (LLAMA2_7B, 10_000.0, 1.0),
        (MIXTRAL, 1_000_000.0, 1.0),
        (LLAMA2_7B | {"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}}, 5e6, 0.5),
        (LLAMA2_7B | {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}, "partial_rotary_factor": 0.25}, 1e6, 0.25),
        (DEEPSEEK_V3 | {"rope_theta": 50000}, 50_000.0, 1.0),
    ],
)
def test_rotary_base_and_share_are_read(config: dict[str, Any], base: float, ratio: float) -> None:
    model = model_from_config(config, where="here")
    assert (model.rotary_base, model.rotary_ratio) == (base, ratio)


def test_the_scale_of_routed_experts_is_read() -> None:
    read = model_from_config(DEEPSEEK_V3 | {"routed_scaling_factor": 2.827}, where="here")
    assert read.experts is not None
    assert read.experts.routed_scale == 2.827


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope_theta", "1e6"), ("rope_theta", 0), ("rope_theta", float("nan")), ("rope_theta", True), ("partial_rotary_factor", 1.5)],
)
def test_rotary_figures_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=key):
        model_from_config(LLAMA2_7B | {key: value}, where="here")


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(("flags", "windows"), [
    ({"use_sliding_window": True, "max_window_layers": 2}, [None, None, 1024, 1024, 1024]),
    ({"use_sliding_window": True, "max_window_layers": 0}, [1024] * 5),
    ({"use_sliding_window": True, "max_window_layers": 5}, [None] * 5),
    ({"use_sliding_window": False, "max_window_layers": 2}, [None] * 5),
])
def test_qwen_slides_from_its_first_window_layer_on(architecture, flags, windows):
    config = {
        "architectures": [architecture], "model_type": architecture[:5].lower(), "hidden_size": 512, "intermediate_size": 1024,
        "max_position_embeddings": 32768, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 5,
        "sliding_window": 1024, "vocab_size": 1000, **flags,
    }
    model = model_from_config(config, where="config.json")
    assert [model.kinds[kind].attention.window_tokens for kind in model.pattern] == windows
