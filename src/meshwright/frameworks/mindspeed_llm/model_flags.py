"""A model as flags of Megatron-LM core 0.12.1 with MindSpeed-LLM's own, and its figures from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.model import Mlp
from meshwright.frameworks.rules import attention_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.compose import Values

POSITIONS = {"rope": "rope", "learned": "learned_absolute", "alibi": "alibi", "none": "none"}
FIGURES = {
    "hidden": ("--hidden-size",), "heads": ("--num-attention-heads",), "head_dim": ("--kv-channels",),
    "ffn": ("--ffn-hidden-size",), "vocabulary": ("--vocab-size", "--padded-vocab-size"), "experts": ("--num-experts",),
    "experts_per_token": ("--moe-router-topk",), "expert_ffn": ("--moe-ffn-hidden-size", "--moe-intermediate-size"),
    "shared_ffn": ("--moe-shared-expert-intermediate-size",), "mtp_layers": ("--mtp-num-layers",),
}


def model_flags(case: Case) -> dict[str, object]:
    """The model's flags; True for a switch."""
    model, attention = case.model, attention_of(case)
    dense = next((kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Mlp)), None)
    block = dense or model.feed_forward
    gated, width = block.gated, block.width if isinstance(block, Mlp) else block.expert_width
    bias = dense is not None and dense.bias
    flags: dict[str, object] = {
        "--use-mcore-models": True, "--transformer-impl": "local",
        "--num-layers": model.num_layers, "--hidden-size": model.hidden, "--ffn-hidden-size": width,
        "--num-attention-heads": attention.num_heads, "--seq-length": case.batch.sequence_tokens,
        "--max-position-embeddings": max(model.max_sequence or 0, model.position_table, case.batch.sequence_tokens),
        "--position-embedding-type": POSITIONS[model.position], "--vocab-size": model.vocabulary,
        "--make-vocab-size-divisible-by": 1,
        "--normalization": "RMSNorm" if model.norm == "rms" else "LayerNorm",
        "--attention-dropout": 0.0, "--hidden-dropout": 0.0,
    }
    switches = {
        "--use-flash-attn": case.implementation.flash_attention,
        "--use-fused-rmsnorm": model.norm == "rms", "--swiglu": gated, "--use-fused-swiglu": gated,
        "--use-fused-rotary-pos-emb": model.position == "rope",
        "--untie-embeddings-and-output-weights": not model.tied_embeddings, "--disable-bias-linear": not bias,
        "--add-qkv-bias": attention.query_bias and not bias, "--qk-layernorm": attention.query_key_norm != "none",
    }
    flags |= {flag: True for flag, on in switches.items() if on}
    if attention.latent is None:
        flags["--kv-channels"] = attention.head_dim
        if attention.num_key_value_heads != attention.num_heads:
            flags |= {"--group-query-attention": True, "--num-query-groups": attention.num_key_value_heads}
    else:
        latent = attention.latent
        flags |= {"--multi-latent-attention": True, "--kv-lora-rank": latent.key_value_rank, "--qk-head-dim": latent.nope_dim,
                  "--qk-pos-emb-head-dim": latent.rope_dim, "--v-head-dim": latent.value_dim}
        if latent.query_rank:
            flags["--q-lora-rank"] = latent.query_rank
    if model.norm_epsilon is not None:
        flags["--norm-epsilon"] = model.norm_epsilon
    if model.position == "rope" and model.rotary_base is not None:
        flags["--rotary-base"] = int(model.rotary_base)
    if model.num_mtp_layers:
        flags["--mtp-num-layers"] = model.num_mtp_layers
    return flags | _experts(case)


def _experts(case: Case) -> dict[str, object]:
    """The mixture of experts."""
    model, experts = case.model, case.model.experts
    if experts is None:
        return {}
    first = next(index for index, kind in enumerate(model.pattern) if model.kinds[kind].experts)
    flags: dict[str, object] = {
        "--num-experts": experts.num_experts, "--moe-router-topk": experts.experts_per_token,
        "--moe-ffn-hidden-size": experts.expert_width, "--moe-grouped-gemm": True, "--moe-token-dispatcher-type": "alltoall",
        "--moe-permutation-async-comm": True, "--first-k-dense-replace": first, "--moe-layer-freq": 1,
    }
    if experts.shared_width:
        flags["--moe-shared-expert-intermediate-size"] = experts.shared_width
    if experts.num_groups > 1:
        flags |= {"--moe-router-num-groups": experts.num_groups, "--moe-router-group-topk": experts.groups_per_token}
    if experts.correction_bias:
        flags |= {"--moe-router-score-function": "sigmoid", "--moe-router-enable-expert-bias": True,
                  "--moe-router-topk-scaling-factor": experts.routed_scale}
    return flags


def figures_of(values: Values, layers: int | None) -> dict[str, object]:
    """The model's figures that the flags hold; layers that do nothing are not counted."""
    figures: dict[str, object] = {}
    for name, flags in FIGURES.items():
        found = next((values.int(flag) for flag in flags if values.has(flag)), None)
        if found is not None:
            figures[name] = found
    if "experts" not in figures:
        for name in ("experts_per_token", "expert_ffn", "shared_ffn"):
            figures.pop(name, None)
    if layers is not None:
        figures["layers"] = layers
    if values.bool("--group-query-attention"):
        figures["key_value_heads"] = values.int("--num-query-groups", 1)
    if values.has("--hidden-size"):
        figures["tied_embeddings"] = not values.bool("--untie-embeddings-and-output-weights")
    return figures
