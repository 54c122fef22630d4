"""A model as the fields of Bridge's GPT provider, for which there is no recipe: Megatron-LM's arguments under Bridge's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import Shell, Written
from meshwright.frameworks.bridge.limits import CORES
from meshwright.frameworks.megatron.flags import Arguments, parse_version
from meshwright.frameworks.megatron.hybrid import is_hybrid, pattern
from meshwright.frameworks.megatron.model_arguments import add_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.model import Model

_SAID: Mapping[str, Mapping[str, object]] = {
    "--swiglu": {"gated_linear_unit": True, "activation_func": Written("functional.silu")},
    "--squared-relu": {"activation_func": Written("squared_relu")},
    "--quick-geglu": {"gated_linear_unit": True, "activation_func": Written("quick_gelu")},
    "--disable-bias-linear": {"add_bias_linear": False},
    "--untie-embeddings-and-output-weights": {"share_embeddings_and_output_weights": False},
    "--no-bias-gelu-fusion": {"bias_activation_fusion": False}, "--no-bias-dropout-fusion": {"bias_dropout_fusion": False},
    "--no-rope-fusion": {"apply_rope_fusion": False}, "--group-query-attention": {}, "--max-position-embeddings": {},
    "--multi-latent-attention": {"multi_latent_attention": True}, "--spec": {},
}
"""Arguments that say something else than their name."""
VARIANT_SPEC = "get_transformer_block_with_experimental_attention_variant_spec"
"""What builds layers of gated delta nets and of sparse attention."""
_NAMES = {"num_experts": "num_moe_experts"}
_EVALUATED = {"moe_layer_freq", "window_attn_skip_freq", "linear_attention_freq"}
"""Arguments whose text Megatron-LM evaluates as a list of Python."""


def provider(case: Case, release: str) -> str:
    """The class that builds the model."""
    return _provider(case.model, release)[1]


def module(case: Case, release: str) -> str:
    """Where that class stands."""
    return f"megatron.bridge.models.{_provider(case.model, release)[0]}"


def _provider(model: Model, release: str) -> tuple[str, str]:
    """Module and class that build a model."""
    if is_hybrid(model):
        name = "Mamba" if release == "0.3" else "Hybrid"
        return f"{name.lower()}.{name.lower()}_provider", f"{name}ModelProvider"
    return ("mla_provider", "MLAModelProvider") if model.attention.latent else ("gpt_provider", "GPTModelProvider")


def model_fields(case: Case, release: str) -> dict[str, object]:
    """Field -> value (``Written``: an expression); what Megatron-LM's files leave to the user keeps Bridge's default."""
    arguments = Arguments(version=parse_version(CORES[release]))
    add_model(arguments, case)
    fields: dict[str, object] = {"vocab_size": case.model.vocabulary, "should_pad_vocab": True}
    for flag, value in arguments.items.items():
        name = flag.removeprefix("--").replace("-", "_")
        if flag in _SAID:
            fields |= _SAID[flag]
        elif flag == "--rotary-base":
            fields |= {name: round(case.model.rotary_base)} if case.model.rotary_base else {}
        elif flag == "--window-size":
            fields[name] = tuple(int(tokens) for tokens in str(value).split(","))
        elif not isinstance(value, Shell):
            fields[_NAMES.get(name, name)] = Written(value) if name in _EVALUATED else value
    if is_hybrid(case.model):
        fields |= _hybrid(case.model, release)
    elif "experimental_attention_variant" in fields:
        fields["transformer_layer_spec"] = Written(VARIANT_SPEC)
    elif case.model.is_moe:
        fields["transformer_layer_spec"] = Written("partial(get_gpt_decoder_block_spec, use_transformer_engine=True)")
    return fields


def _hybrid(model: Model, release: str) -> dict[str, object]:
    """The pattern of a hybrid, and what its provider has other defaults for than that of GPT."""
    main, _, depths = pattern(model).partition("/")
    fields: dict[str, object] = {"hybrid_override_pattern" if release == "0.3" else "hybrid_layer_pattern": main}
    if depths:
        fields["mtp_hybrid_override_pattern"] = depths.partition("/")[0]
    return {**fields, "is_hybrid_model": True, "share_embeddings_and_output_weights": model.tied_embeddings}
