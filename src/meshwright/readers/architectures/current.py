"""Families that came to transformers in 2025 and 2026 and differ little from older ones: Apertus, CWM, GLM-4 of the hub, Granite's
mixtures and windows, Helium, Jais 2, VaultGemma, Youtu, Command A mixtures, HyperCLOVA X, Mistral 4, nanochat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.dense import uniform
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

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def _shape(fields: Fields) -> tuple[int, int]:
    """Hidden width and layers."""
    return fields.size("hidden_size"), fields.layers("num_hidden_layers")


@reads("ApertusForCausalLM", "apertus")
def apertus(fields: Fields) -> Model:
    """Apertus: ungated blocks whose activation learns two numbers, norms on heads."""
    hidden, layers = _shape(fields)
    model = uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden, query_key_norm="head"),
        mlp=Mlp(width=fields.size("intermediate_size"), gated=False), widths=[None] * layers,
    )
    if fields.data.get("hidden_act", "xielu") != "xielu":
        return model
    return replace(model, kinds=tuple(replace(kind, sides=(Side(name="activation", weights=2),)) for kind in model.kinds))


@reads("CwmForCausalLM", "cwm")
def cwm(fields: Fields) -> Model:
    """Code World Model: Llama with windows in three layers of four."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden, head_dim=128), mlp=gated_mlp(fields),
        widths=windows(fields, layers, [index % 4 != 0 for index in range(layers)], width=8192),
    )


@reads("GlmForCausalLM", "glm")
def glm(fields: Fields) -> Model:
    """GLM-4 and GLM-Edge as the hub's own class has them: biases on queries, keys and values."""
    hidden, layers = _shape(fields)
    bias = fields.flag("attention_bias", default=True)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden, bias=bias, output_bias=False, head_dim=128),
        mlp=gated_mlp(fields), widths=[None] * layers,
    )


@reads("GraniteMoeForCausalLM", "granitemoe", "GraniteMoeSharedForCausalLM", "granitemoeshared")
def granite_moe(fields: Fields) -> Model:
    """Granite 3 mixtures, with a shared block where its width is said."""
    hidden, layers = _shape(fields)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("intermediate_size"), shared_width=fields.size("shared_intermediate_size", default=0, minimum=0),
    )
    return mixture(fields, hidden=hidden, attentions=[grouped_attention(fields, hidden)] * layers, blocks=[experts] * layers)


@reads("GraniteSWAForCausalLM", "granite_swa")
def granite_swa(fields: Fields) -> Model:
    """Granite with windows and sinks."""
    hidden, layers = _shape(fields)
    attention = replace(grouped_attention(fields, hidden), sinks=True)
    return uniform(
        fields, hidden=hidden, attention=attention, mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)), tied=True,
        widths=windows(fields, layers, [index % 4 != 0 for index in range(layers)]),
    )


@reads("HeliumForCausalLM", "helium")
def helium(fields: Fields) -> Model:
    """Helium: Llama."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden), mlp=gated_mlp(fields), widths=[None] * layers)


@reads("Jais2ForCausalLM", "jais2")
def jais2(fields: Fields) -> Model:
    """Jais 2: layer norms, squared ReLU, biases in all products."""
    hidden, layers = _shape(fields)
    attention = grouped_attention(fields, hidden, bias=fields.flag("attention_bias", default=True), head_dim=128)
    mlp = Mlp(width=fields.size("intermediate_size"), gated=False, bias=fields.flag("mlp_bias", default=True))
    return uniform(fields, hidden=hidden, attention=attention, mlp=mlp, widths=[None] * layers, norm="layer")


@reads("VaultGemmaForCausalLM", "vaultgemma")
def vaultgemma(fields: Fields) -> Model:
    """VaultGemma: Gemma 2 without the norms behind its blocks."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden, head_dim=256), mlp=gated_mlp(fields), tied=True,
        widths=windows(fields, layers, [index % 2 == 0 for index in range(layers)], width=4096),
    )


@reads("YoutuForCausalLM", "youtu")
def youtu(fields: Fields) -> Model:
    """Youtu-LLM: latent attention and dense blocks."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=latent_without_rank(fields), mlp=gated_mlp(fields), widths=[None] * layers, tied=True)


@reads("Cohere2MoeForCausalLM", "cohere2_moe")
def cohere2_moe(fields: Fields) -> Model:
    """Command mixtures: both blocks behind one norm without a bias, three sliding layers to a full one, first layers dense."""
    hidden, layers = _shape(fields)
    attention = grouped_attention(fields, hidden)
    width, step = fields.size("intermediate_size"), fields.size("sliding_window_pattern", default=4)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts"), experts_per_token=fields.size("num_experts_per_tok"), expert_width=width,
        shared_width=width * fields.size("num_shared_experts", default=0, minimum=0),
    )
    dense = fields.size("first_k_dense_replace", default=0, minimum=0)
    narrow = Mlp(width=fields.size("prefix_dense_intermediate_size", default=width))
    widths = windows(fields, layers, [(index + 1) % step != 0 for index in range(layers)], width=4096)
    kinds, pattern = layer_pattern([
        LayerKind(attention=own, feed_forward=narrow if index < dense else experts, norms=1, parallel_block=True)
        for index, own in enumerate(with_windows(attention, widths))
    ])
    model = uniform(fields, hidden=hidden, attention=attention, mlp=narrow, widths=widths, norm="layer-no-bias", tied=True)
    return replace(model, kinds=kinds, pattern=pattern)


@reads("HyperCLOVAXForCausalLM", "hyperclovax")
def hyperclova(fields: Fields) -> Model:
    """HyperCLOVA X SEED: Granite, with norms behind both blocks where the file says so."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)), widths=[None] * layers,
        norms=4 if fields.flag("use_post_norm", default=True) else 2,
    )


@reads("Mistral4ForCausalLM", "mistral4")
def mistral4(fields: Fields) -> Model:
    """Mistral Small 4: latent attention, a mixture of small experts in every layer."""
    hidden, layers = _shape(fields)
    return mixture(
        fields, hidden=hidden, attentions=[latent_without_rank(fields)] * layers,
        blocks=dense_first_blocks(fields, layers, correction_bias=False),
    )


@reads("NanoChatForCausalLM", "nanochat")
def nanochat(fields: Fields) -> Model:
    """nanochat: norms without weights, squared ReLU."""
    hidden, layers = _shape(fields)
    attention = replace(grouped_attention(fields, hidden, query_key_norm="head"), query_key_norm_weight=False)
    mlp = Mlp(width=fields.size("intermediate_size"), gated=False)
    return uniform(fields, hidden=hidden, attention=attention, mlp=mlp, widths=[None] * layers, norm="none")
