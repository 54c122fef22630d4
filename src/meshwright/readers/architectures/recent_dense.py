"""Dense families of 2025 and 2026 whose layers all have softmax attention: OLMo 3, SmolLM 3, ERNIE 4.5, Hunyuan, Granite, ..."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.readers.architectures.dense import qwen2, qwen_windows, uniform
from meshwright.readers.architectures.parts import gated_mlp, grouped_attention, layer_pattern, reads, windows, with_windows

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


@reads("Olmo3ForCausalLM", "olmo3")
def olmo3(fields: Fields) -> Model:
    """OLMo 3: OLMo 2, and three sliding layers to a full one."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, query_key_norm="full"),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, [(index + 1) % 4 != 0 for index in range(layers)], width=4096),
    )


@reads("SmolLM3ForCausalLM", "smollm3")
def smollm3(fields: Fields) -> Model:
    """SmolLM 3: Llama whose every fourth layer has no positions."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)),
        widths=qwen_windows(fields, layers),
        tied=True,
    )


@reads("Ernie4_5ForCausalLM", "ernie4_5", "Ernie4_5_ForCausalLM", "paddleocr_vl_text")
def ernie(fields: Fields) -> Model:
    """ERNIE 4.5, dense: heads of 128, one switch for the biases of all products."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    bias = fields.flag("use_bias", default=False)
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=bias, head_dim=128),
        mlp=gated_mlp(fields, bias=bias),
        widths=[None] * layers,
        tied=True,
    )


@reads("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", "hunyuan_vl_text")
def hunyuan(fields: Fields) -> Model:
    """Hunyuan, dense: a norm on every query and key head."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.optional_size("attention_head_dim")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, query_key_norm="head", head_dim=width),
        mlp=gated_mlp(fields),
        widths=[None] * layers,
    )


@reads("SeedOssForCausalLM", "seed_oss")
def seed_oss(fields: Fields) -> Model:
    """Seed-OSS: biases on queries, keys and values, and a switch of its own for that of the output."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(
        fields,
        hidden,
        bias=fields.flag("attention_bias", default=True),
        output_bias=fields.flag("attention_out_bias", default=False),
        head_dim=128,
    )
    return uniform(
        fields,
        hidden=hidden,
        attention=attention,
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)),
        widths=[None] * layers,
    )


@reads("GraniteForCausalLM", "granite", "granite_docling_text", "granite4_vision_text")
def granite(fields: Fields) -> Model:
    """Granite: Llama with multipliers, which change no shape."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)),
        widths=[None] * layers,
    )


@reads("Ministral3ForCausalLM", "ministral3", "MinistralForCausalLM", "ministral")
def ministral(fields: Fields) -> Model:
    """Ministral: Mistral; heads of 128, windows where the file has one."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=False),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, default=True),
    )


@reads("Exaone4ForCausalLM", "exaone4")
def exaone4(fields: Fields) -> Model:
    """EXAONE 4: two norms behind the blocks, norms on query and key heads; where it slides, three layers of four."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=False, query_key_norm="head"),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, [(index + 1) % 4 != 0 for index in range(layers)]),
    )


@reads("Glm4ForCausalLM", "glm4", "glm4v_text")
def glm4(fields: Fields) -> Model:
    """GLM-4-0414: four norms a layer, biases on queries, keys and values where the file says so."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=fields.flag("attention_bias", default=True), output_bias=False),
        mlp=gated_mlp(fields),
        widths=[None] * layers,
        norms=4,
    )


@reads("glm_ocr_text", inside="GlmOcrForConditionalGeneration")
def glm_ocr(fields: Fields) -> Model:
    """The language model of GLM-OCR: GLM-4's layers without biases."""
    fields.data = {**fields.data, "attention_bias": False}
    return glm4(fields)


@reads("Cohere2ForCausalLM", "cohere2", "CohereCompassForCausalLM", "cohere_compass_text")
def cohere2(fields: Fields) -> Model:
    """Command R7B and A: both blocks behind one norm without a bias, three sliding layers to a full one."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    widths = windows(fields, layers, [(index + 1) % 4 != 0 for index in range(layers)], width=4096)
    attention, mlp = grouped_attention(fields, hidden), gated_mlp(fields)
    kinds, pattern = layer_pattern([
        LayerKind(attention=own, feed_forward=mlp, norms=1, parallel_block=True) for own in with_windows(attention, widths)
    ])
    model = uniform(
        fields, hidden=hidden, attention=attention, mlp=mlp, widths=widths, norm="layer-no-bias", tied=True,
    )
    return replace(model, kinds=kinds, pattern=pattern)


@reads("ArceeForCausalLM", "arcee")
def arcee(fields: Fields) -> Model:
    """AFM: Llama with squared ReLU instead of a gate."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden),
        mlp=Mlp(width=fields.size("intermediate_size"), gated=False, bias=fields.flag("mlp_bias", default=False)),
        widths=[None] * layers,
    )


@reads("MiMoForCausalLM", "mimo")
def mimo(fields: Fields) -> Model:
    """MiMo-7B: Qwen 2.5 with layers that predict further tokens."""
    return replace(qwen2(fields), num_mtp_layers=fields.count("num_nextn_predict_layers", default=0, minimum=0))
