"""What the families share: the registry, attention, the pattern of layers, and windows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.readers.fields import Fields

Architecture: TypeAlias = "Callable[[Fields], Model]"

architectures: Registry[Architecture] = Registry("architecture")
"""By class name (``LlamaForCausalLM``) and by ``model_type`` (``llama``)."""


_NAMES: dict[Architecture, tuple[str, ...]] = {}
"""Names of each function, in the order in which it is registered under them: its own class first."""


def classes_of(name: str) -> tuple[str, ...]:
    """Classes that are read as a model type is, its own first."""
    return tuple(each for each in _NAMES.get(architectures[name], ()) if each[:1].isupper())


def reads(*names: str, inside: str = "") -> Callable[[Architecture], Architecture]:
    """Register a function under class names and model types; ``inside``: the class of a wrapper, where no class has the language
    model alone."""

    def register(function: Architecture) -> Architecture:
        for name in names:
            architectures.add(name, function)
        _NAMES[function] = (*names, inside) if inside else names
        return function

    return register


def grouped_attention(
    fields: Fields,
    hidden: int,
    *,
    bias: bool | None = None,
    output_bias: bool | None = None,
    query_key_norm: Literal["none", "head", "full"] = "none",
    head_dim: int | None = None,
    heads: int | None = None,
    key_value_heads: int | None = None,
) -> Attention:
    """Attention from ``num_attention_heads``, ``num_key_value_heads``, ``head_dim`` and ``attention_bias``."""
    if bias is None:
        bias = fields.flag("attention_bias", default=False)
    num_heads = fields.size("num_attention_heads", default=heads)
    return Attention(
        num_heads=num_heads,
        num_key_value_heads=fields.size("num_key_value_heads", default=key_value_heads or num_heads),
        head_dim=fields.size("head_dim", default=head_dim or head_width(fields, hidden, num_heads)),
        query_bias=bias,
        key_value_bias=bias,
        output_bias=bias if output_bias is None else output_bias,
        query_key_norm=query_key_norm,
    )


def head_width(fields: Fields, hidden: int, heads: int) -> int:
    """Hidden width over heads, where nothing else says how wide a head is."""
    if hidden % heads and not fields.has("head_dim") and not fields.faults:
        fields.fault(
            "num_attention_heads",
            "config.heads",
            "{heads} does not divide hidden size {hidden}",
            heads=heads,
            hidden=hidden,
        )
    return max(1, hidden // heads)


def windows(fields: Fields, layers: int, default: Sequence[bool] | bool, *, width: int | None = None) -> list[int | None]:
    """The window of every layer: from ``layer_types``, else ``default`` says which layers slide.

    A window as long as the longest sequence is none (Phi-3.5 writes such).
    """
    types = fields.words("layer_types", layers, ("full_attention", "sliding_attention", "chunked_attention"))
    window = fields.optional_size("sliding_window", "attention_chunk_size") or width
    if types is not None:
        slides: Sequence[bool] = [kind != "full_attention" for kind in types]
    else:
        slides = [default] * layers if isinstance(default, bool) else default
    longest = fields.optional_size("max_position_embeddings")
    if window is not None and longest is not None and window >= longest:
        window = None
    return [window if slide else None for slide in slides]


def layer_pattern(layers: Sequence[LayerKind]) -> tuple[tuple[LayerKind, ...], tuple[int, ...]]:
    """Kinds in the order in which they are met, and the index of the kind of every layer."""
    indices = {kind: index for index, kind in enumerate(dict.fromkeys(layers))}
    return tuple(indices), tuple(indices[kind] for kind in layers)


def with_windows(attention: Attention, widths: Sequence[int | None]) -> list[Attention]:
    """One attention a layer."""
    return [attention if width is None else replace(attention, window_tokens=width) for width in widths]


def gated_mlp(fields: Fields, *, name: str = "intermediate_size", bias: bool = False) -> Mlp:
    """A gated block as wide as ``intermediate_size``."""
    return Mlp(width=fields.size(name), bias=bias)
