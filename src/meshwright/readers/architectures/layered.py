"""Gemma 3n and 4: inputs for each layer, keys and values of earlier layers, heads that differ by kind of attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Lookup, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.parts import reads, windows
from meshwright.readers.architectures.stacks import of_layers

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def _widths(fields: Fields, layers: int) -> list[int]:
    """Width of the feed-forward block of every layer: one for all, or a list."""
    if isinstance(fields.data.get("intermediate_size"), list):
        widths = fields.numbers("intermediate_size")
        if len(widths) != layers and not fields.faults:
            fields.fault("intermediate_size", "config.length", "has {length} entries for {count} layers",
                         length=len(widths), count=layers)
        return [max(1, width) for width in widths] if len(widths) == layers else [1] * layers
    return [fields.size("intermediate_size")] * layers


def _with_inputs(model: Model, fields: Fields, inputs: int) -> Model:
    """The model with a table of inputs for each layer, and what projects them."""
    total = model.num_layers * inputs
    table = Lookup(name="inputs of layers", rows=fields.size("vocab_size_per_layer_input", default=model.vocabulary), width=total)
    projection = Side(name="inputs of layers", inputs=model.hidden, outputs=total, weights=inputs)
    return replace(model, lookups=(table,), front=(*model.front, projection))


def _input_sides(hidden: int, inputs: int) -> tuple[Side, ...]:
    """How a layer takes its own input in: gate, projection and norm."""
    return (
        Side(name="gate of the layer's input", inputs=hidden, outputs=inputs),
        Side(name="the layer's input", inputs=inputs, outputs=hidden, weights=hidden),
    )


@reads("Gemma3nForCausalLM", "gemma3n_text")
def gemma3n(fields: Fields) -> Model:
    """Gemma 3n: AltUp's four streams, Laurel beside attention, inputs for each layer, shared keys and values."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    streams, rank = fields.count("altup_num_inputs", default=4), fields.size("laurel_rank", default=64)
    inputs = fields.size("hidden_size_per_layer_input", default=256)
    sides = (
        Side(name="altup router", inputs=hidden, outputs=streams, weights=2 * hidden),
        Side(name="altup prediction", inputs=streams, outputs=streams * streams),
        Side(name="altup correction", inputs=streams, outputs=streams),
        Side(name="laurel in", inputs=hidden, outputs=rank),
        Side(name="laurel out", inputs=rank, outputs=hidden, weights=hidden),
        *_input_sides(hidden, inputs),
    )
    heads = fields.size("num_attention_heads")
    attention = Attention(
        num_heads=heads, num_key_value_heads=fields.size("num_key_value_heads"), head_dim=fields.size("head_dim", default=256),
        query_key_norm="head",
    )
    shared = fields.size("num_kv_shared_layers", default=15, minimum=0)
    slides = windows(fields, layers, [(index + 1) % 5 != 0 for index in range(layers)], width=512)
    stack = [
        LayerKind(
            attention=replace(attention, window_tokens=window, borrows_key_value=index >= layers - shared),
            feed_forward=Mlp(width=width), norms=4, sides=sides, streams=streams,
        )
        for index, (window, width) in enumerate(zip(slides, _widths(fields, layers), strict=True))
    ]
    model = of_layers(fields, stack, hidden=hidden, tied=True)
    apart = (Side(name="stream", inputs=hidden, outputs=hidden),) * (streams - 1)
    return _with_inputs(replace(model, front=apart, back=apart), fields, inputs)


@reads("Gemma4UnifiedForCausalLM", "gemma4_unified_text")
def gemma4_unified(fields: Fields) -> Model:
    """Gemma 4's models without towers: no inputs for each layer, no experts."""
    fields.data = {**fields.data, "hidden_size_per_layer_input": 0, "enable_moe_block": False}
    return gemma4(fields)


@reads("Gemma4ForCausalLM", "gemma4_text")
def gemma4(fields: Fields) -> Model:
    """Gemma 4: wide heads in full attention, where keys may be the values; experts beside a dense block; inputs for each layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    inputs = fields.size("hidden_size_per_layer_input", default=256, minimum=0)
    slides = windows(fields, layers, [(index + 1) % 6 != 0 for index in range(layers)], width=512)
    shared = fields.size("num_kv_shared_layers", default=0, minimum=0)
    wide_blocks, apart = fields.flag("use_double_wide_mlp", default=False), fields.flag("enable_moe_block", default=False)
    stack = []
    for index, (window, width) in enumerate(zip(slides, _widths(fields, layers), strict=True)):
        borrows = index >= layers - shared
        block: Mlp | MixtureOfExperts = Mlp(width=width * (2 if wide_blocks and borrows else 1))
        sides = _input_sides(hidden, inputs) if inputs else ()
        if apart:
            number = fields.size("num_experts")
            block = MixtureOfExperts(
                num_experts=number, experts_per_token=fields.size("top_k_experts", "num_experts_per_tok"),
                expert_width=fields.size("moe_intermediate_size"), shared_width=width,
            )
            sides += (Side(name="norm and scales of the router", weights=hidden + number),)
        stack.append(LayerKind(
            attention=_gemma4_attention(fields, index, window, borrows=borrows), feed_forward=block, norms=7 if apart else 4,
            sides=sides,
        ))
    model = of_layers(fields, stack, hidden=hidden, tied=True)
    return _with_inputs(model, fields, inputs) if inputs else model


def _gemma4_attention(fields: Fields, index: int, window: int | None, *, borrows: bool) -> Attention:
    """Attention of one layer; full attention has sizes of its own, as ``global_*`` or in ``per_layer_config``."""
    own = fields
    listed = fields.inner("per_layer_config")
    key = next((key for key in listed.data if key.isdigit() and int(key) == index), None)
    if key is not None:
        own = listed.inner(key)
    heads, keys = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
    dim = fields.size("head_dim", default=256)
    if window is None:
        dim = fields.size("global_head_dim", default=dim)
        keys = fields.size("num_global_key_value_heads", default=keys)
    return Attention(
        num_heads=heads, num_key_value_heads=own.size("num_key_value_heads", default=keys) if key is not None else keys,
        head_dim=own.size("head_dim", default=dim) if key is not None else dim, window_tokens=window, query_key_norm="head",
        shared_key_value=window is None and fields.flag("attention_k_eq_v", default=False), borrows_key_value=borrows,
    )
