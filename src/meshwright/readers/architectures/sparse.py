"""Sparse attention: DeepSeek-V3.2 and -V4, GLM-5: an indexer chooses what is attended to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, CompressedAttention, Indexer
from meshwright.domain.model import LayerKind, MixtureOfExperts, Model, Side
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.hybrids import latent_without_rank
from meshwright.readers.architectures.parts import reads
from meshwright.readers.architectures.stacks import mtp_count, of_layers, stack_words

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields

_SLIDING, _SPARSE, _HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_RATES = {0: _SLIDING, 4: _SPARSE, 128: _HEAVY}
"""Tokens of an entry, as released configurations list them, and the layer that has such entries."""


def _indexer(fields: Fields, *, heads: int) -> Indexer:
    return Indexer(num_heads=fields.size("index_n_heads", default=heads), head_dim=fields.size("index_head_dim", default=128))


@reads("DeepseekV32ForCausalLM", "deepseek_v32")
def deepseek_v32(fields: Fields) -> Model:
    """DeepSeek-V3.2: DeepSeek-V3 with an indexer in every layer."""
    return _selected(fields, heads=64, own=None)


@reads("GlmMoeDsaForCausalLM", "glm_moe_dsa")
def glm_moe_dsa(fields: Fields) -> Model:
    """GLM-5 and later: in 5.2 some layers take over the choice of a layer before them."""
    return _selected(fields, heads=32, own=choosing_layers(fields, fields.layers("num_hidden_layers")))


def choosing_layers(fields: Fields, layers: int) -> list[bool]:
    """Whether each layer has an indexer of its own: listed, as a pattern of letters, or every so many."""
    words = stack_words(fields, "indexer_types", layers, {"full": "full", "shared": "shared"})
    if words is None and fields.has("index_topk_pattern"):
        words = stack_words(fields, "index_topk_pattern", layers, {"F": "full", "S": "shared", "full": "full", "shared": "shared"})
    if words is None:
        step, offset = fields.size("index_topk_freq", default=1), fields.size("index_skip_topk_offset", default=2, minimum=0)
        words = ["shared" if max(index - offset + 1, 0) % step else "full" for index in range(layers)]
    if words and words[0] == "shared":
        fields.fault("indexer_types", "config.first-shared", "the first layer takes over a choice that no layer has made")
    return [word == "full" for word in words]


def _selected(fields: Fields, *, heads: int, own: list[bool] | None) -> Model:
    """Latent attention to chosen tokens; ``own``: whether a layer has an indexer, None: all have."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    if fields.flag("attention_bias", default=False):
        fields.fault("attention_bias", "config.unsupported", "biases in latent attention are not described")
    attention = replace(
        latent_without_rank(fields), selected_tokens=fields.size("index_topk", default=2048), indexer=_indexer(fields, heads=heads)
    )
    attentions = [attention if not own or has else replace(attention, indexer=None) for has in own or [True] * layers]
    blocks = dense_first_blocks(fields, layers, correction_bias=True, routed_scale=2.5)
    model = mixture(fields, hidden=hidden, attentions=attentions, blocks=blocks, mtp_layers=mtp_count(fields))
    return _chooses_anew(model)


def _chooses_anew(model: Model) -> Model:
    """What predicts further tokens has an indexer of its own, also where the last layer has none (Megatron-Core counts it anew)."""
    last = model.kinds[model.pattern[-1]]
    if not model.num_mtp_layers or (last.attention and last.attention.indexer):
        return model
    choosing = [
        index for index, kind in enumerate(model.kinds)
        if kind.attention and kind.attention.indexer and kind.feed_forward == last.feed_forward
    ]
    return replace(model, mtp_pattern=(choosing[-1],)) if choosing else model


@reads("DeepseekV4ForCausalLM", "deepseek_v4")
def deepseek_v4(fields: Fields) -> Model:
    """DeepSeek-V4: a window and compressed entries behind it, four residual streams, experts in every layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size", default=2048)
    experts = MixtureOfExperts(
        num_experts=fields.size("n_routed_experts", "num_local_experts", default=256),
        experts_per_token=fields.size("num_experts_per_tok", default=6), expert_width=width,
        shared_width=fields.size("n_shared_experts", default=1, minimum=0) * width, correction_bias=True,
        routed_scale=fields.number("routed_scaling_factor", default=1.5),
    )
    streams = fields.size("hc_mult", default=4)
    mixing = (2 + streams) * streams
    sides = (Side(name="hyper-connection", inputs=streams * hidden, outputs=mixing, weights=mixing + 3),) * 2
    words = _compressed_words(fields, layers)
    kinds = {word: _compressed(fields, word) for word in set(words)}
    stack = [LayerKind(attention=kinds[word], feed_forward=experts, sides=sides, streams=streams) for word in words]
    model = of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields))
    head = Side(name="joined streams", inputs=streams * hidden, outputs=streams, weights=streams + 1)
    return replace(model, back=(head,))


def _compressed_words(fields: Fields, layers: int) -> list[str]:
    """The sort of attention of each layer: listed, by the rates of released configurations, or as the class has it."""
    if words := stack_words(fields, "layer_types", layers, {each: each for each in _RATES.values()}):
        return words
    rates = fields.numbers("compress_ratios")
    if rates:
        odd = next((rate for rate in rates if rate not in _RATES), None)
        if odd is not None:
            fields.fault("compress_ratios", "config.word", "{odd} is none of {allowed}", odd=odd,
                         allowed=", ".join(map(str, _RATES)))
        elif len(rates) < layers:
            fields.fault("compress_ratios", "config.length", "has {length} entries for {count} layers",
                         length=len(rates), count=layers)
        else:  # behind the layers those of multi-token prediction may follow
            return [_RATES[rate] for rate in rates[:layers]]
    return [_HEAVY if index < 2 or index % 2 == 0 else _SPARSE for index in range(layers)]


def _compressed(fields: Fields, word: str) -> Attention:
    """One sort of DeepSeek-V4's attention."""
    rates = fields.inner("compress_rates")
    rate = rates.size(word, default=128 if word == _HEAVY else 4) if word != _SLIDING else 0
    return Attention(
        num_heads=fields.size("num_attention_heads"), num_key_value_heads=fields.size("num_key_value_heads", default=1),
        head_dim=fields.size("head_dim", default=512), window_tokens=fields.size("sliding_window", default=128), sinks=True,
        shared_key_value=True,
        compressed=CompressedAttention(
            query_rank=fields.size("q_lora_rank", default=1024), output_groups=fields.size("o_groups", default=8),
            output_rank=fields.size("o_lora_rank", default=1024), rate=rate, overlapping=word == _SPARSE,
        ),
        selected_tokens=fields.size("index_topk", default=512) if word == _SPARSE else None,
        indexer=_indexer(fields, heads=64) if word == _SPARSE else None,
    )
