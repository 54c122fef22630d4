"""A model as Megatron-LM arguments: shapes are written, what has no shape is a shell variable with a default.

``inexpressible`` names what Megatron-LM's GPT does not have; such a model is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell
from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.frameworks.megatron.flags import Arguments
from meshwright.frameworks.megatron.hybrid import PIPES, inexpressible_hybrid, is_hybrid, letters, specification
from meshwright.frameworks.megatron.sparse import add_sparse_attention, shared_choice

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.model import Model

_ACTIVATIONS = {
    "GptOssForCausalLM": ("--quick-geglu",),
    "NemotronForCausalLM": ("--squared-relu",),
    "NemotronHForCausalLM": ("--squared-relu",),
}
"""Activations that are neither SwiGLU (gated) nor GELU (not gated), by Hugging Face architecture."""


def expression(pattern: Sequence[int]) -> str:
    """A list of 0 and 1 in the short form that Megatron-LM evaluates, without spaces.

    >>> expression([0, 0, 0, 1, 1])
    '[0]*3+[1]*2'
    >>> expression([1, 0, 1, 0, 1])
    '([1]*1+[0]*1)*2+[1]*1'
    """
    length = len(pattern)
    period = next(size for size in range(1, length + 1) if all(pattern[i] == pattern[i % size] for i in range(length)))
    repeats = length // period
    if period == 1 or repeats < 2:
        return _runs(pattern)
    rest = _runs(pattern[repeats * period :])
    return f"({_runs(pattern[:period])})*{repeats}" + (f"+{rest}" if rest else "")


def _runs(pattern: Sequence[int]) -> str:
    """Run lengths of a list."""
    return "+".join(f"[{value}]*{len(list(run))}" for value, run in groupby(pattern))


def inexpressible(model: Model) -> tuple[str, ...]:
    """Features of the model that Megatron-LM's GPT does not have; empty where it can be written."""
    attention = model.attention
    dense, mixtures = _feed_forwards(model)
    serial = [kind for kind in model.kinds if not kind.parallel_block]
    absent = {
        "ALiBi position encoding": model.position == "alibi",
        f"{model.norm} norms (it has RMSNorm and LayerNorm with bias)": model.norm not in {"rms", "layer"},
        "a model without a final norm": not model.final_norm,
        "a norm behind the embedding": model.embedding_norm,
        "a bias in the output head": model.head_bias,
        "an embedding narrower than the hidden width": model.embedding_width not in {None, model.hidden},
        "multi-token prediction with learned positions": model.num_mtp_layers and model.position == "learned",
        "attention and feed-forward in parallel": len(serial) < len(model.kinds),
        "more norms than one before attention and one before the feed-forward":
            any(kind.norms != kind.mixes + kind.has_block for kind in serial),
        "query and key norms over all heads together": attention.query_key_norm == "full",
        "layers whose attention differs in more than the window":
            len({_without_window(each) for each in model.attentions}) > 1,
        "windows of different sizes": len({each.window_tokens for each in model.attentions} - {None}) > 1,
        "feed-forward blocks of different shapes (it has one dense shape and one mixture of experts)":
            len(dense) > 1 or len(mixtures) > 1,
        "gated and ungated feed-forward blocks together":
            len({kind.feed_forward.gated for kind in model.kinds if kind.has_block}) > 1,
        "this choice of biases (it has all linear layers, queries, keys and values alone, or none)":
            _biases(model) is None,
        "shared experts with biases": any(mixture.shared_width and mixture.expert_bias for mixture in mixtures),
        "choices of sparse attention that are taken over otherwise than every so many layers": shared_choice(model) is None,
        **inexpressible_hybrid(model),
    }
    return tuple(feature for feature, found in absent.items() if found)


def _without_window(attention: Attention) -> tuple[object, ...]:
    """What must be equal in all layers."""
    return (
        attention.num_heads, attention.num_key_value_heads, attention.head_dim, attention.latent,
        attention.query_key_norm, attention.query_key_norm_weight, attention.query_bias, attention.key_value_bias,
        attention.output_bias, attention.sinks,
    )


def _feed_forwards(model: Model) -> tuple[set[Mlp], set[MixtureOfExperts]]:
    """The different dense blocks and the different mixtures."""
    blocks = [kind.feed_forward for kind in model.kinds if kind.has_block]
    return {block for block in blocks if isinstance(block, Mlp)}, {block for block in blocks if isinstance(block, MixtureOfExperts)}


def _biases(model: Model) -> str | None:
    """``all`` linear layers, ``qkv`` alone, ``none``, or None for a choice that cannot be written."""
    attention = model.attention
    dense, mixtures = _feed_forwards(model)
    projections = (attention.query_bias, attention.key_value_bias)
    others = {
        attention.output_bias, *(block.bias for block in dense),
        *(flag for mixture in mixtures for flag in (mixture.expert_bias, mixture.router_bias)),
    }
    if attention.latent and (True in others or any(projections)):
        return None
    if others == {True} and all(projections):
        return "all"
    if others == {False} and projections[0] == projections[1]:
        return "qkv" if projections[0] else "none"
    return None


def add_model(arguments: Arguments, case: Case) -> None:
    """Append every argument that describes the model."""
    model = case.model
    dense, mixtures = _feed_forwards(model)
    experts = next(iter(mixtures), None)
    width = next((block.width for block in dense), experts.expert_width if experts else None)  # none: mixers and attention alone
    arguments.add("--num-layers", sum(map(len, letters(model))) if is_hybrid(model) else model.num_layers)
    arguments.add("--hidden-size", model.hidden)
    arguments.add_if(width, "--ffn-hidden-size", width)
    _add_activation(arguments, model)
    _add_attention(arguments, model)
    _add_mamba(arguments, model)
    _add_positions(arguments, case)
    arguments.add("--normalization", "RMSNorm" if model.norm == "rms" else "LayerNorm")
    arguments.add("--norm-epsilon", Shell("$NORM_EPSILON"))
    biases = _biases(model)
    arguments.add_if(biases != "all", "--disable-bias-linear")
    arguments.add_if(biases == "qkv", "--add-qkv-bias")
    arguments.add_if(not model.tied_embeddings, "--untie-embeddings-and-output-weights")
    arguments.add("--make-vocab-size-divisible-by", case.implementation.pads_vocabulary_to)
    arguments.add("--init-method-std", Shell("$INIT_STD"))
    dropout = 0.1 if any("dropout" in row.name for row in case.implementation.saved) else 0.0
    arguments.add("--attention-dropout", dropout)
    arguments.add("--hidden-dropout", dropout)
    if experts is not None:
        _add_experts(arguments, model, experts)
    if model.num_mtp_layers:
        arguments.add("--mtp-num-layers", model.mtp_passes)
        arguments.add_if(model.shares_mtp, "--mtp-use-repeated-layer")
        arguments.add("--mtp-loss-scaling-factor", Shell("$MTP_LOSS_FACTOR"))


def _add_activation(arguments: Arguments, model: Model) -> None:
    """SwiGLU where gated, GELU where not, or what the architecture is known for."""
    gated = model.feed_forward.gated
    named = _ACTIVATIONS.get(model.architecture, ())
    for flag in named or (("--swiglu",) if gated else ()):
        arguments.add(flag)
    if "--quick-geglu" in named:
        arguments.add("--glu-linear-offset", 1.0)
        arguments.add("--activation-func-clamp-value", 7.0)
    arguments.add_if("--squared-relu" in named and _biases(model) == "all", "--no-bias-gelu-fusion")


def _add_attention(arguments: Arguments, model: Model) -> None:
    """Heads, latent attention, query and key norms, windows and sinks."""
    attention = model.attention
    arguments.add("--num-attention-heads", attention.num_heads)
    if latent := attention.latent:
        arguments.add("--kv-channels", latent.nope_dim)
        arguments.add("--multi-latent-attention")
        arguments.add_if(latent.query_rank, "--q-lora-rank", latent.query_rank)
        arguments.add("--kv-lora-rank", latent.key_value_rank)
        arguments.add("--qk-head-dim", latent.nope_dim)
        arguments.add("--qk-pos-emb-head-dim", latent.rope_dim)
        arguments.add("--v-head-dim", latent.value_dim)
        arguments.add("--qk-layernorm")  # norms of the two latents
    else:
        arguments.add("--kv-channels", attention.head_dim)
        if attention.num_key_value_heads != attention.num_heads:
            arguments.add("--group-query-attention")
            arguments.add("--num-query-groups", attention.num_key_value_heads)
        if attention.query_key_norm == "head":
            arguments.add("--qk-layernorm" if attention.query_key_norm_weight else "--qk-l2-norm")
    layers = [model.kinds[index].attention for index in model.pattern]
    windows = [each.window_tokens for each in layers if each is not None]
    if window := next((tokens for tokens in windows if tokens), None):
        arguments.add("--window-size", f"{window - 1},0")  # tokens before the current one, tokens after it
        if None in windows:
            arguments.add("--window-attn-skip-freq", expression([int(tokens is not None) for tokens in windows]))
    arguments.add_if(attention.sinks, "--softmax-type", "learnable")
    arguments.add_if(attention.gate == "full", "--attention-output-gate")
    _add_linear_attention(arguments, model)
    add_sparse_attention(arguments, model)


def _add_linear_attention(arguments: Arguments, model: Model) -> None:
    """Gated delta nets: their widths, and which layers have them instead of attention."""
    mixer = next((each for each in model.mixers if isinstance(each, GatedDelta)), None)
    if mixer is None:
        return
    arguments.add("--experimental-attention-variant", "gated_delta_net")
    where = [int(model.kinds[index].mixer is not None) for index in model.pattern]
    arguments.add("--linear-attention-freq", expression(where))
    arguments.add("--linear-num-key-heads", mixer.key_heads)
    arguments.add("--linear-num-value-heads", mixer.value_heads)
    arguments.add("--linear-key-head-dim", mixer.key_dim)
    arguments.add("--linear-value-head-dim", mixer.value_dim)
    arguments.add("--linear-conv-kernel-dim", mixer.convolution)


def _add_mamba(arguments: Arguments, model: Model) -> None:
    """Mamba-2: its widths, and what builds a stack of single blocks; which of them it has stands among the flags of the layout."""
    mixer = next((each for each in model.mixers if isinstance(each, Mamba2)), None)
    if mixer is None:
        return
    arguments.add_if(arguments.version.minor < PIPES, "--is-hybrid-model")
    arguments.add("--spec", *specification(arguments.version))
    arguments.add("--mamba-num-heads", mixer.num_heads)
    arguments.add("--mamba-head-dim", mixer.head_dim)
    arguments.add("--mamba-state-dim", mixer.state_dim)
    arguments.add("--mamba-num-groups", mixer.num_groups)


def _add_positions(arguments: Arguments, case: Case) -> None:
    """Position encoding, and how many positions there are."""
    model, sequence = case.model, case.batch.sequence_tokens
    kind = {"rope": "rope", "learned": "learned_absolute", "none": "none"}[model.position]
    arguments.add("--position-embedding-type", kind)
    arguments.add("--max-position-embeddings", model.position_table or max(sequence, model.max_sequence or 0))
    if model.position == "rope":
        known = model.rotary_base  # Megatron-LM reads a whole number
        arguments.add("--rotary-base", Shell("$ROTARY_BASE" if known is None else f"${{ROTARY_BASE:-{round(known)}}}"))
        arguments.add_if(model.rotary_ratio != 1, "--rotary-percent", model.rotary_ratio)
    if model.attention.latent:
        arguments.add("--no-rope-fusion")  # refused by 0.12, experimental since
        arguments.add_if(arguments.version.minor >= 14, "--rope-type", "yarn")
        arguments.add("--rotary-scaling-factor", Shell("$ROTARY_SCALING_FACTOR"))
        arguments.add("--mscale", Shell("$MSCALE"))
        arguments.add("--mscale-all-dim", Shell("$MSCALE_ALL_DIM"))


def _add_experts(arguments: Arguments, model: Model, experts: MixtureOfExperts) -> None:
    """Router, routed and shared experts, and which layers have them."""
    arguments.add("--num-experts", experts.num_experts)
    arguments.add("--moe-router-topk", experts.experts_per_token)
    arguments.add("--moe-ffn-hidden-size", experts.expert_width)
    arguments.add_if(experts.latent, "--moe-latent-size", experts.latent)
    where = [int(model.kinds[index].experts is not None) for index in model.pattern]
    if not is_hybrid(model):  # its pattern says it
        arguments.add("--moe-layer-freq", expression(where) if 0 in where else 1)
    if experts.shared_width:
        arguments.add("--moe-shared-expert-intermediate-size", experts.shared_width)
        arguments.add_if(experts.shared_gate, "--moe-shared-expert-gate")
    if experts.num_groups > 1:
        arguments.add("--moe-router-num-groups", experts.num_groups)
        arguments.add("--moe-router-group-topk", experts.groups_per_token)
    if experts.correction_bias:
        arguments.add("--moe-router-score-function", "sigmoid")
        arguments.add("--moe-router-enable-expert-bias")
    elif experts.experts_per_token == 1 or experts.routed_scale != 1:
        arguments.add("--moe-router-pre-softmax")  # a softmax over one expert says nothing; scaled are shares of all experts
    arguments.add_if(experts.routed_scale != 1, "--moe-router-topk-scaling-factor", experts.routed_scale)
    arguments.add("--moe-router-load-balancing-type", "seq_aux_loss" if experts.correction_bias else "aux_loss")
    arguments.add("--moe-aux-loss-coeff", Shell("$MOE_AUX_LOSS_COEFFICIENT"))
    arguments.add_if(arguments.version.minor >= 12, "--moe-router-dtype", "fp32")
    # The fused bias and dropout of the grouped experts knows no bias.
    arguments.add_if(experts.expert_bias, "--no-bias-dropout-fusion")
