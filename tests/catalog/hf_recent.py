"""Families of 2025 and 2026 with softmax attention in every layer as configurations of transformers (``hf_equivalents``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.catalog.hf_equivalents import biases, common, equivalent, experts_of, is_dense, layer_types, routed, window_of

if TYPE_CHECKING:
    from meshwright.domain.model import Model


def without_width(model: Model) -> dict[str, Any]:
    """What is common, for classes that derive the width of a head."""
    return {key: value for key, value in common(model).items() if key != "head_dim"}


def windowed(model: Model) -> dict[str, Any]:
    return {"sliding_window": window_of(model), "layer_types": layer_types(model)}


@equivalent("Olmo3ForCausalLM", "Olmo3Config")
def olmo3(model: Model) -> dict[str, Any]:
    return without_width(model) | windowed(model)


@equivalent("SmolLM3ForCausalLM", "SmolLM3Config")
def smollm3(model: Model) -> dict[str, Any]:
    return without_width(model)


@equivalent("Ernie4_5ForCausalLM", "Ernie4_5Config")
def ernie(model: Model) -> dict[str, Any]:
    return common(model)


@equivalent("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeConfig")
def ernie_moe(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return without_width(model) | {
        "moe_intermediate_size": experts.expert_width,
        "moe_k": experts.experts_per_token,
        "moe_num_experts": experts.num_experts,
        "moe_num_shared_experts": experts.shared_width // experts.expert_width,
        "moe_layer_start_index": sum(is_dense(model)),
        "moe_layer_end_index": model.num_layers - 1,
    }


equivalent("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config")(common)
equivalent("Ministral3ForCausalLM", "Ministral3Config")(lambda model: common(model) | {"sliding_window": window_of(model)})
equivalent("GraniteForCausalLM", "GraniteConfig")(without_width)


@equivalent("HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Config")
def hunyuan_moe(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "intermediate_size": experts.expert_width, "num_experts": experts.num_experts, "moe_topk": experts.experts_per_token,
    }


@equivalent("HYV3ForCausalLM", "HYV3Config")
def hunyuan3(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
        "num_shared_experts": experts.shared_width // experts.expert_width,
        "moe_intermediate_size": experts.expert_width,
        "router_scaling_factor": experts.routed_scale,
        "mlp_layer_types": ["dense" if dense else "sparse" for dense in is_dense(model)],
    }


@equivalent("SeedOssForCausalLM", "SeedOssConfig")
def seed_oss(model: Model) -> dict[str, Any]:
    return common(model) | {"attention_bias": biases(model)}


@equivalent("MiniMaxM2ForCausalLM", "MiniMaxM2Config")
def minimax_m2(model: Model) -> dict[str, Any]:
    experts = experts_of(model)
    return common(model) | {
        "intermediate_size": experts.expert_width,
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.experts_per_token,
    }


@equivalent("Exaone4ForCausalLM", "Exaone4Config")
def exaone4(model: Model) -> dict[str, Any]:
    sliding = window_of(model) is not None
    return common(model) | windowed(model) | {"sliding_window_pattern": 4 if sliding else None}


@equivalent("Glm4ForCausalLM", "Glm4Config")
def glm4(model: Model) -> dict[str, Any]:
    return common(model) | {"attention_bias": biases(model)}


@equivalent("Cohere2ForCausalLM", "Cohere2Config")
def cohere2(model: Model) -> dict[str, Any]:
    shared = {key: value for key, value in common(model).items() if key != "rms_norm_eps"}
    return shared | windowed(model) | {"layer_norm_eps": model.norm_epsilon}


@equivalent("ArceeForCausalLM", "ArceeConfig")
def arcee(model: Model) -> dict[str, Any]:
    return common(model)


@equivalent("Dots1ForCausalLM", "Dots1Config")
def dots1(model: Model) -> dict[str, Any]:
    return without_width(model) | routed(model)


@equivalent("SolarOpenForCausalLM", "SolarOpenConfig")
def solar_open(model: Model) -> dict[str, Any]:
    return common(model) | routed(model)
