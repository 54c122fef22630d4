"""Variants of known families: BitNet, DiffLlama, Doge, MiniCPM3, FlexOlmo, DBRX, Aria, Granite's mixtures with windows, ModernBERT
decoders; language models of OCR, Chameleon, Emu 3, Phi-4-multimodal, Molmo 2 and Cosmos 3 Edge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from meshwright.domain.model import LayerKind, Lookup, MixtureOfExperts, Mlp, Model, NormKind, Side
from meshwright.readers.architectures.dense import mistral, uniform
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.hybrids import latent_without_rank
from meshwright.readers.architectures.parts import (
    gated_mlp,
    grouped_attention,
    layer_pattern,
    reads,
    windows,
    with_windows,
)
from meshwright.text import shown

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def _shape(fields: Fields) -> tuple[int, int]:
    """Hidden width and layers."""
    return fields.size("hidden_size"), fields.layers("num_hidden_layers")


def _beside(model: Model, *sides: Side) -> Model:
    """The model with projections or weights beside the blocks of every layer."""
    return replace(model, kinds=tuple(replace(kind, sides=(*kind.sides, *sides)) for kind in model.kinds))


def _llama(fields: Fields) -> Model:
    """A dense model with ``attention_bias`` and ``mlp_bias``."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)), widths=[None] * layers,
    )


@reads("BitNetForCausalLM", "bitnet")
def bitnet(fields: Fields) -> Model:
    """BitNet b1.58: Llama with squared ReLU and a norm in front of each block's last product."""
    model = _llama(fields)
    width = fields.size("intermediate_size")
    return _beside(model, Side(name="norms inside the blocks", weights=model.hidden + width))


@reads("DiffLlamaForCausalLM", "diffllama")
def diffllama(fields: Fields) -> Model:
    """DiffLlama: the difference of two softmaxes, weighed by four learned vectors of a head's width."""
    model = _llama(fields)
    return _beside(model, Side(name="weights of the difference", weights=4 * model.attention.head_dim))


@reads("DogeForCausalLM", "doge")
def doge(fields: Fields) -> Model:
    """Doge: a mask that values make, learned residuals; its mixtures retrieve single neurons and are not described."""
    hidden, layers = _shape(fields)
    if fields.flag("is_moe", default=False):
        fields.fault("is_moe", "config.unsupported", "mixtures of single neurons are not described")
    attention = grouped_attention(fields, hidden, query_key_norm="head")
    bias = fields.flag("mlp_bias", default=False)
    heads = attention.num_key_value_heads
    model = uniform(fields, hidden=hidden, attention=attention, mlp=gated_mlp(fields, bias=bias), widths=[None] * layers)
    mask = Side(
        name="mask of values", inputs=attention.value_width, outputs=heads, weights=heads * (2 if attention.query_bias else 1)
    )
    return _beside(model, mask, Side(name="residuals", weights=2 * hidden))


@reads("MiniCPM3ForCausalLM", "minicpm3")
def minicpm3(fields: Fields) -> Model:
    """MiniCPM 3: latent attention, dense blocks."""
    hidden, layers = _shape(fields)
    if fields.flag("attention_bias", default=False):
        fields.fault("attention_bias", "config.unsupported", "biases in latent attention are not described")
    return uniform(
        fields, hidden=hidden, attention=latent_without_rank(fields),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)), widths=[None] * layers, tied=True,
    )


@reads("FlexOlmoForCausalLM", "flex_olmo")
def flex_olmo(fields: Fields) -> Model:
    """FlexOlmo: experts that were trained apart, on OLMo 2's attention."""
    hidden, layers = _shape(fields)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", default=7), experts_per_token=fields.size("num_experts_per_tok", default=5),
        expert_width=fields.size("intermediate_size"),
    )
    attention = grouped_attention(fields, hidden, query_key_norm="full")
    return mixture(fields, hidden=hidden, attentions=[attention] * layers, blocks=[experts] * layers)


@reads("DbrxForCausalLM", "dbrx")
def dbrx(fields: Fields) -> Model:
    """DBRX: layer norms without biases, its sizes in parts of the file."""
    hidden, layers = fields.size("d_model", "hidden_size"), fields.layers("n_layers", "num_hidden_layers")
    attention, block = fields.inner("attn_config"), fields.inner("ffn_config")
    heads = fields.size("n_heads", "num_attention_heads")
    own = grouped_attention(
        fields, hidden, bias=False, heads=heads, key_value_heads=attention.size("kv_n_heads", default=heads)
    )
    experts = MixtureOfExperts(
        num_experts=block.size("moe_num_experts", default=4), experts_per_token=block.size("moe_top_k", default=1),
        expert_width=block.size("ffn_hidden_size", default=3584),
    )
    model = mixture(fields, hidden=hidden, attentions=[own] * layers, blocks=[experts] * layers, norm="layer-no-bias")
    return replace(model, max_sequence=fields.optional_size("max_seq_len"))


@reads("AriaTextForCausalLM", "aria_text")
def aria(fields: Fields) -> Model:
    """Aria's language model: a mixture with shared experts in every layer."""
    hidden, layers = _shape(fields)
    width = fields.size("intermediate_size", "moe_intermediate_size", default=4096)
    experts = MixtureOfExperts(
        num_experts=fields.size("moe_num_experts", default=8), experts_per_token=fields.size("moe_topk", default=2),
        expert_width=width, shared_width=width * fields.size("moe_num_shared_experts", default=2, minimum=0),
    )
    return mixture(fields, hidden=hidden, attentions=[grouped_attention(fields, hidden)] * layers, blocks=[experts] * layers)


@reads("GraniteMoeSWAForCausalLM", "granitemoe_swa")
def granite_moe_swa(fields: Fields) -> Model:
    """Granite's mixtures with windows and sinks."""
    hidden, layers = _shape(fields)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("intermediate_size"), shared_width=fields.size("shared_intermediate_size", default=0, minimum=0),
    )
    attention = replace(grouped_attention(fields, hidden), sinks=True)
    widths = windows(fields, layers, [index % 4 != 0 for index in range(layers)], width=128)
    return mixture(fields, hidden=hidden, attentions=with_windows(attention, widths), blocks=[experts] * layers)


@reads("ModernBertDecoderForCausalLM", "modernbert-decoder")
def modernbert_decoder(fields: Fields) -> Model:
    """Decoders of ModernBERT (Ettin): windows in two layers of three, no norm in front of the first attention, a norm behind the
    embedding, a product and a norm in front of the logits."""
    hidden, layers = _shape(fields)
    norm: NormKind = "layer" if fields.flag("norm_bias", default=False) else "layer-no-bias"
    mlp = gated_mlp(fields, bias=fields.flag("mlp_bias", default=False))
    step = fields.size("global_attn_every_n_layers", default=3)
    width = max(1, fields.size("local_attention", default=128) // 2)
    widths = windows(fields, layers, [index % step != 0 for index in range(layers)], width=width)
    attention = grouped_attention(fields, hidden)
    model = uniform(fields, hidden=hidden, attention=attention, mlp=mlp, widths=widths, norm=norm, tied=True)
    kinds, pattern = layer_pattern([
        LayerKind(attention=own, feed_forward=mlp, norms=2 if index else 1)
        for index, own in enumerate(with_windows(attention, widths))
    ])
    bias = hidden if fields.flag("classifier_bias", default=False) else 0
    weights = bias + hidden * (2 if norm == "layer" else 1)
    return replace(
        model, kinds=kinds, pattern=pattern, embedding_norm=True, head_bias=fields.flag("decoder_bias", default=True),
        back=(Side(name="product in front of the logits", inputs=hidden, outputs=hidden, weights=weights),),
    )


@reads("unlimited_ocr_text", inside="UnlimitedOcrForConditionalGeneration")
def unlimited_ocr(fields: Fields) -> Model:
    """The language model of DeepSeek-OCR 2 and Unlimited-OCR: DeepSeek's mixture on ordinary attention; windows as
    ``layer_types`` says."""
    hidden, layers = _shape(fields)
    types = fields.words("layer_types", layers, ("full_attention", "reference_sliding_attention")) or ("full_attention",) * layers
    attention = grouped_attention(fields, hidden)
    window = replace(attention, window_tokens=fields.optional_size("sliding_window"))
    return mixture(
        fields, hidden=hidden, attentions=[attention if word == "full_attention" else window for word in types],
        blocks=dense_first_blocks(fields, layers, correction_bias=False),
    )


@reads("deepseek_ocr2_text", inside="DeepseekOcr2ForConditionalGeneration")
def deepseek_ocr2(fields: Fields) -> Model:
    """DeepSeek-OCR 2: the same language model under another class."""
    return unlimited_ocr(fields)


@reads("ChameleonForConditionalGeneration", "chameleon")
def chameleon(fields: Fields) -> Model:
    """Chameleon: Llama with a layer norm of its own for each head; images are tokens of a frozen codebook."""
    model = _llama(fields)
    attention = replace(model.attention, query_key_norm="head", query_key_norm_weight=False)
    norms = Side(name="norms of heads", weights=2 * (attention.query_width + attention.key_width))
    return replace(model, kinds=tuple(replace(kind, attention=attention, sides=(norms,)) for kind in model.kinds))


@reads("emu3_text_model", inside="Emu3ForCausalLM")
def emu3(fields: Fields) -> Model:
    """Emu 3: Llama; images are tokens of a frozen codebook."""
    return _llama(fields)


@reads("phi4_multimodal_text", inside="Phi4MultimodalForCausalLM")
def phi4_multimodal(fields: Fields) -> Model:
    """The language model of Phi-4-multimodal, without the adapters of its towers."""
    return mistral(fields)


@reads("molmo2_text", inside="Molmo2ForConditionalGeneration")
def molmo2(fields: Fields) -> Model:
    """Molmo 2: Qwen3 or OLMo 2 with further rows of the embedding that no logit stands for."""
    hidden, layers = _shape(fields)
    norms: dict[object, Literal["none", "head", "full"]] = {None: "none", "qwen3": "head", "olmo": "full"}
    said = fields.data.get("qk_norm_type")
    if said not in norms:
        fields.fault("qk_norm_type", "config.word", "{odd} is none of {allowed}", odd=shown(said), allowed="qwen3, olmo")
    bias = fields.flag("attention_bias", default=False)
    attention = grouped_attention(
        fields, hidden, bias=bias, output_bias=False, query_key_norm=norms.get(said, "none")
    )
    model = uniform(fields, hidden=hidden, attention=attention, mlp=gated_mlp(fields), widths=[None] * layers)
    rows = fields.size("additional_vocab_size", default=128, minimum=0)
    return replace(model, lookups=(Lookup(name="further tokens", rows=rows, width=hidden),) if rows else ())


@reads("cosmos3_edge_text", inside="Cosmos3EdgeForConditionalGeneration")
def cosmos3_edge(fields: Fields) -> Model:
    """Cosmos 3 Edge: Llama with squared ReLU, ungated."""
    hidden, layers = _shape(fields)
    mlp = Mlp(width=fields.size("intermediate_size"), gated=False, bias=fields.flag("mlp_bias", default=False))
    return uniform(fields, hidden=hidden, attention=grouped_attention(fields, hidden), mlp=mlp, widths=[None] * layers)
