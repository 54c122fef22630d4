"""Our models as configurations of transformers: one small function a family, driven by the catalogue's facts alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.domain.model import MixtureOfExperts, Mlp, Model

Equivalent = Callable[[Model], dict[str, Any]]
EQUIVALENTS: dict[str, tuple[str, Equivalent]] = {}
"""Architecture -> name of its configuration class in transformers and the function that fills it."""


def equivalent(architecture: str, config_class: str) -> Callable[[Equivalent], Equivalent]:
    def register(function: Equivalent) -> Equivalent:
        EQUIVALENTS[architecture] = (config_class, function)
        return function

    return register


def equivalents() -> dict[str, tuple[str, Equivalent]]:
    """All families: those of this file, and of each ``hf_*.py`` beside it."""
    for path in sorted(Path(__file__).parent.glob("hf_*.py")):
        import_module(f"tests.catalog.{path.stem}")
    return EQUIVALENTS


def mlp_of(model: Model) -> Mlp | None:
    return next((kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Mlp)), None)


def experts_of(model: Model) -> MixtureOfExperts:
    assert model.experts is not None
    return model.experts


def window_of(model: Model) -> int | None:
    return next((kind.attention.window_tokens for kind in model.kinds if kind.attention.window_tokens), None)


def is_dense(model: Model) -> list[bool]:
    return [isinstance(model.kinds[index].feed_forward, Mlp) for index in model.pattern]


def layer_types(model: Model) -> list[str]:
    return ["sliding_attention" if model.kinds[index].attention.window_tokens else "full_attention" for index in model.pattern]


def common(model: Model) -> dict[str, Any]:
    attention = model.attention
    mlp = mlp_of(model)
    return {
        "hidden_size": model.hidden,
        "vocab_size": model.vocabulary,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "max_position_embeddings": model.max_sequence,
        "tie_word_embeddings": model.tied_embeddings,
        **({"rms_norm_eps": model.norm_epsilon} if model.norm_epsilon else {}),
        **({"intermediate_size": mlp.width} if mlp else {}),
    }


def rotary(model: Model) -> dict[str, Any]:
    """Base and share of rotary positions, where the model has them and they are known."""
    if model.rotary_base is None:
        return {}
    whole = {"rope_type": "default", "rope_theta": model.rotary_base, "partial_rotary_factor": model.rotary_ratio}
    if model.architecture == "Gemma3ForCausalLM":
        whole = {"full_attention": whole, "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}}  # type: ignore[dict-item]
    return {"rope_parameters": whole}


def biases(model: Model) -> bool:
    return model.attention.query_bias


@equivalent("LlamaForCausalLM", "LlamaConfig")
def llama(model: Model) -> dict[str, Any]:
    return common(model) | {"attention_bias": biases(model)}


@equivalent("MistralForCausalLM", "MistralConfig")
def mistral(model: Model) -> dict[str, Any]:
    return common(model) | {"sliding_window": window_of(model)}


@equivalent("Phi3ForCausalLM", "Phi3Config")
def phi3(model: Model) -> dict[str, Any]:
    return {key: value for key, value in common(model).items() if key != "head_dim"} | {"sliding_window": window_of(model)}


@equivalent("Qwen2ForCausalLM", "Qwen2Config")
def qwen2(model: Model) -> dict[str, Any]:
    return {key: value for key, value in common(model).items() if key != "head_dim"}


@equivalent("Qwen3ForCausalLM", "Qwen3Config")
def qwen3(model: Model) -> dict[str, Any]:
    return common(model)


@equivalent("Olmo2ForCausalLM", "Olmo2Config")
def olmo2(model: Model) -> dict[str, Any]:
    return {key: value for key, value in common(model).items() if key != "head_dim"}


@equivalent("GemmaForCausalLM", "GemmaConfig")
def gemma(model: Model) -> dict[str, Any]:
    return common(model)


@equivalent("Gemma2ForCausalLM", "Gemma2Config")
def gemma2(model: Model) -> dict[str, Any]:
    return common(model) | {"sliding_window": window_of(model), "layer_types": layer_types(model)}


@equivalent("Gemma3ForCausalLM", "Gemma3TextConfig")
def gemma3(model: Model) -> dict[str, Any]:
    return common(model) | {"sliding_window": window_of(model), "layer_types": layer_types(model)}


@equivalent("NemotronForCausalLM", "NemotronConfig")
def nemotron(model: Model) -> dict[str, Any]:
    return common(model)


@equivalent("MixtralForCausalLM", "MixtralConfig")
def mixtral(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "intermediate_size": experts.expert_width,
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "sliding_window": window_of(model),
    }


@equivalent("PhimoeForCausalLM", "PhimoeConfig")
def phimoe(model: Model) -> dict[str, Any]:
    return mixtral(model) | {"attention_bias": biases(model), "lm_head_bias": model.head_bias}


@equivalent("OlmoeForCausalLM", "OlmoeConfig")
def olmoe(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    config = {key: value for key, value in common(model).items() if key != "head_dim"}
    return config | {
        "intermediate_size": experts.expert_width,
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
    }


@equivalent("Qwen3MoeForCausalLM", "Qwen3MoeConfig")
def qwen3_moe(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "moe_intermediate_size": experts.expert_width,
    }


@equivalent("Qwen2MoeForCausalLM", "Qwen2MoeConfig")
def qwen2_moe(model: Model) -> dict[str, Any]:
    config = {key: value for key, value in qwen3_moe(model).items() if key != "head_dim"}
    return config | {"shared_expert_intermediate_size": experts_of(model).shared_width}


@equivalent("GptOssForCausalLM", "GptOssConfig")
def gpt_oss(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "intermediate_size": experts.expert_width,
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "sliding_window": window_of(model),
        "layer_types": layer_types(model),
        "attention_bias": biases(model),
    }


def routed(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return {
        "n_routed_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "moe_intermediate_size": experts.expert_width,
        "n_shared_experts": experts.shared_width // experts.expert_width,
        "first_k_dense_replace": sum(is_dense(model)),
        "n_group": experts.num_groups,
        "topk_group": experts.groups_per_token,
        "num_mtp_layers": model.num_mtp_layers,
        "routed_scaling_factor": experts.routed_scale,
    }


@equivalent("Glm4MoeForCausalLM", "Glm4MoeConfig")
def glm4_moe(model: Model) -> dict[str, Any]:
    normed = model.attention.query_key_norm == "head"
    return common(model) | routed(model) | {"attention_bias": biases(model), "use_qk_norm": normed}


def deepseek(model: Model) -> dict[str, Any]:
    latent = model.attention.latent
    assert latent is not None
    config = {key: value for key, value in common(model).items() if key != "head_dim"}
    return (
        config
        | routed(model)
        | {
            "q_lora_rank": latent.query_rank,
            "kv_lora_rank": latent.key_value_rank,
            "qk_nope_head_dim": latent.nope_dim,
            "qk_rope_head_dim": latent.rope_dim,
            "v_head_dim": latent.value_dim,
        }
    )


equivalent("DeepseekV3ForCausalLM", "DeepseekV3Config")(deepseek)
equivalent("DeepseekV2ForCausalLM", "DeepseekV2Config")(deepseek)


@equivalent("Llama4ForCausalLM", "Llama4TextConfig")
def llama4(model: Model) -> dict[str, Any]:
    experts, mlp = experts_of(model), mlp_of(model)
    kinds = [model.kinds[index] for index in model.pattern]
    return common(model) | {
        "intermediate_size": experts.expert_width,
        "intermediate_size_mlp": mlp.width if mlp else 1,
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "moe_layers": [index for index, dense in enumerate(is_dense(model)) if not dense],
        "interleave_moe_layer_step": 2 if mlp else 1,
        "attention_chunk_size": window_of(model),
        "no_rope_layers": [int(kind.attention.window_tokens is not None) for kind in kinds],
        "layer_types": ["chunked_attention" if kind.attention.window_tokens else "full_attention" for kind in kinds],
        "use_qk_norm": any(each.query_key_norm != "none" for each in model.attentions),
    }


@equivalent("GPT2LMHeadModel", "GPT2Config")
def gpt2(model: Model) -> dict[str, Any]:
    mlp = mlp_of(model)
    assert mlp is not None
    return {
        "n_embd": model.hidden,
        "n_layer": model.num_layers,
        "n_head": model.attention.num_heads,
        "n_inner": mlp.width,
        "n_positions": model.position_table,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied_embeddings,
    }


@equivalent("GPTNeoXForCausalLM", "GPTNeoXConfig")
def gpt_neox(model: Model) -> dict[str, Any]:
    config = common(model)
    del config["num_key_value_heads"], config["head_dim"]
    return config | {"attention_bias": biases(model), "use_parallel_residual": model.kinds[0].parallel_block}


@equivalent("BloomForCausalLM", "BloomConfig")
def bloom(model: Model) -> dict[str, Any]:
    return {
        "hidden_size": model.hidden,
        "n_layer": model.num_layers,
        "n_head": model.attention.num_heads,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied_embeddings,
        "seq_length": model.max_sequence,
    }


@equivalent("OPTForCausalLM", "OPTConfig")
def opt(model: Model) -> dict[str, Any]:
    mlp = mlp_of(model)
    assert mlp is not None
    return {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.attention.num_heads,
        "ffn_dim": mlp.width,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.position_table - 2,
        "word_embed_proj_dim": model.embedding_width or model.hidden,
        "do_layer_norm_before": model.final_norm,
        "tie_word_embeddings": model.tied_embeddings,
    }


@equivalent("MptForCausalLM", "MptConfig")
def mpt(model: Model) -> dict[str, Any]:
    mlp = mlp_of(model)
    assert mlp is not None
    return {
        "d_model": model.hidden,
        "n_layers": model.num_layers,
        "n_heads": model.attention.num_heads,
        "expansion_ratio": mlp.width // model.hidden,
        "vocab_size": model.vocabulary,
        "max_seq_len": model.max_sequence,
        "tie_word_embeddings": model.tied_embeddings,
    }


@equivalent("FalconForCausalLM", "FalconConfig")
def falcon(model: Model) -> dict[str, Any]:
    attention = model.attention
    new = attention.num_key_value_heads > 1
    return {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_kv_heads": attention.num_key_value_heads,
        "multi_query": attention.num_key_value_heads == 1,
        "new_decoder_architecture": new,
        "parallel_attn": model.kinds[0].parallel_block,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.max_sequence,
        "tie_word_embeddings": model.tied_embeddings,
    }
