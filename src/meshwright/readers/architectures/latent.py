"""Multi-head latent attention: DeepSeek-V2 and -V3, Kimi K2, Moonlight, GLM-4.7-Flash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, LatentAttention
from meshwright.domain.model import Model
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.parts import reads

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


@reads("DeepseekV2ForCausalLM", "deepseek_v2")
def deepseek_v2(fields: Fields) -> Model:
    """DeepSeek-V2 and -V2-Lite (whose queries have no latent)."""
    return _deepseek(fields, correction_bias=False, routed_scale=1.0)


@reads("DeepseekV3ForCausalLM", "deepseek_v3", "kimi_k2", "sarvam_mla")
def deepseek_v3(fields: Fields) -> Model:
    """DeepSeek-V3 and the models that reuse its class."""
    return _deepseek(fields, correction_bias=True, routed_scale=2.5)


@reads("Glm4MoeLiteForCausalLM", "glm4_moe_lite")
def glm4_lite(fields: Fields) -> Model:
    """GLM-4.7-Flash: DeepSeek-V3's layers, the first one dense unless ``mlp_layer_types`` says otherwise."""
    return _deepseek(fields, correction_bias=True, routed_scale=1.8, first_dense=1)


def _deepseek(fields: Fields, *, correction_bias: bool, routed_scale: float, first_dense: int = 0) -> Model:
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    heads = fields.size("num_attention_heads")
    latent = LatentAttention(
        query_rank=fields.optional_size("q_lora_rank"),
        key_value_rank=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
    )
    if fields.flag("attention_bias", default=False):
        fields.fault("attention_bias", "config.unsupported", "biases in latent attention are not described")
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=latent.nope_dim + latent.rope_dim,
        latent=latent,
    )
    return mixture(
        fields,
        hidden=hidden,
        attentions=[attention] * layers,
        blocks=dense_first_blocks(fields, layers, correction_bias=correction_bias, routed_scale=routed_scale,
                                  first_dense=first_dense),
        mtp_layers=fields.count("num_nextn_predict_layers", "num_mtp_layers", default=0, minimum=0),
    )
