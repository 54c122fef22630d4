"""A model as MindFormers' configurations write it (names of Hugging Face configurations), and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.frameworks.rules import attention_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.compose import Values

ARCHITECTURES = {
    "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe", "DeepseekV3ForCausalLM": "deepseek_v3",
    "Qwen2ForCausalLM": "qwen2", "LlamaForCausalLM": "llama", "Glm4MoeForCausalLM": "glm4_moe", "Glm4ForCausalLM": "glm4",
}
"""Hugging Face architecture -> ``model_type``."""
FIGURES = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer"),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads", "num_heads", "n_head"),
    "key_value_heads": ("num_key_value_heads", "n_kv_heads", "multi_query_group_num", "num_query_groups"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("n_routed_experts", "num_experts", "num_moe_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_router_topk"),
    "expert_ffn": ("moe_intermediate_size", "moe_ffn_hidden_size"),
    "mtp_layers": ("num_nextn_predict_layers", "mtp_num_layers", "mtp_depth"),
}
"""Figure -> its names, most usual first."""


def model_section(case: Case, layout: Layout) -> dict[str, object]:
    """``model`` (PyNative) or ``model.model_config`` (graph mode)."""
    model, attention = case.model, attention_of(case)
    dense = next((kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Mlp)), None)
    experts = model.experts
    any_block = model.feed_forward
    section: dict[str, object] = {
        "model_type": ARCHITECTURES.get(model.architecture, model.architecture or model.name),
        "architectures": model.architecture or model.name,
        "num_hidden_layers": model.num_layers, "hidden_size": model.hidden,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_heads if attention.latent else attention.num_key_value_heads,
        "vocab_size": model.vocabulary, "seq_length": case.batch.sequence_tokens,
        "max_position_embeddings": max(model.max_sequence or 0, case.batch.sequence_tokens),
        "position_embedding_type": {"learned": "learned_absolute"}.get(model.position, model.position),
        "hidden_act": "silu" if any_block.gated else "gelu",
        "tie_word_embeddings": model.tied_embeddings, "use_flash_attention": layout.attention != "math",
        "params_dtype": "float32", "compute_dtype": "bfloat16" if case.training.precision.base_dtype == "bf16" else "float16",
    }
    if model.rotary_base is not None:
        section["rope_theta"] = model.rotary_base
    if dense is not None:
        section["intermediate_size"] = dense.width
    if attention.latent is None:
        section["head_dim"] = attention.head_dim
        section["attention_bias"] = attention.query_bias
        if attention.query_key_norm != "none":
            section["qk_layernorm"] = True
    else:
        latent = attention.latent
        section |= {
            "multi_latent_attention": True, "q_lora_rank": latent.query_rank, "kv_lora_rank": latent.key_value_rank,
            "qk_nope_head_dim": latent.nope_dim, "qk_rope_head_dim": latent.rope_dim, "v_head_dim": latent.value_dim,
        }
    if experts is not None:
        section |= _experts(case, experts)
    if model.num_mtp_layers:
        section["num_nextn_predict_layers"] = model.num_mtp_layers
    return section


def _experts(case: Case, experts: MixtureOfExperts) -> dict[str, object]:
    """The mixture of experts."""
    first_dense = next(index for index, kind in enumerate(case.model.pattern) if case.model.kinds[kind].experts)
    section: dict[str, object] = {
        "n_routed_experts": experts.num_experts, "num_experts_per_tok": experts.experts_per_token,
        "moe_intermediate_size": experts.expert_width, "first_k_dense_replace": first_dense,
        "n_shared_experts": experts.shared_width // experts.expert_width if experts.shared_width else 0,
        "routed_scaling_factor": experts.routed_scale,
    }
    if experts.num_groups > 1:
        section |= {"n_group": experts.num_groups, "topk_group": experts.groups_per_token}
    return section


def figures_of(values: Values, section: str) -> dict[str, object]:
    """The model's figures that a section holds."""
    figures: dict[str, object] = {}
    for name, keys in FIGURES.items():
        for key in keys:
            found = values.int(f"{section}.{key}")
            if found is not None:
                figures[name] = found
                break
    if not isinstance(figures.get("experts"), int) or figures["experts"] <= 1:  # type: ignore[operator]
        for name in ("experts", "experts_per_token", "expert_ffn"):
            figures.pop(name, None)
    if not figures.get("mtp_layers"):
        figures.pop("mtp_layers", None)
    tied = values.get(f"{section}.tie_word_embeddings")
    if isinstance(tied, bool):
        figures["tied_embeddings"] = tied
    return figures
