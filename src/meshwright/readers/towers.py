"""Vision towers of multi-modal wrappers: their shape, and every weight with what projects images into the model's width.

A function turns the fields of a wrapper, of its ``vision_config`` and the width of its model into a tower; it is registered under
the model types of wrappers, for what projects images is the wrapper's. Source of all: the vision classes of transformers, to which
tests hold the counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from meshwright.domain.tower import Tower
from meshwright.readers.fields import Fields
from meshwright.registry import Registry
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

Reader: TypeAlias = "Callable[[Fields, Fields, int], Tower]"
towers: Registry[Reader] = Registry("vision tower")
"""By ``model_type`` of the wrapper."""


def sees(*names: str) -> Callable[[Reader], Reader]:
    """Register a function under model types of wrappers."""

    def register(function: Reader) -> Reader:
        for name in names:
            towers.add(name, function)
        return function

    return register


def _layer(
    hidden: int, width: int, *, gated: bool = False, norm: int = 2, query_bias: bool = True, output_bias: bool = True,
    block_bias: bool = True,
) -> int:
    """Weights of one layer: four products of attention, a block, two norms of so many weights a channel."""
    inputs = 2 if gated else 1
    attention = 4 * hidden * hidden + (3 * hidden if query_bias else 0) + (hidden if output_bias else 0)
    block = (inputs + 1) * hidden * width + (inputs * width + hidden if block_bias else 0)
    return attention + block + 2 * norm * hidden


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """A product and its bias."""
    return inputs * outputs + (outputs if bias else 0)


def _edge(fields: Fields, name: str, default: int) -> int:
    """Pixels of an edge, written once or for both edges."""
    value = fields.data.get(name)
    return fields.same(name) or default if isinstance(value, list) else fields.size(name, default=default)


def _heads(fields: Fields, hidden: int, default: int) -> int:
    """Heads, that divide the width."""
    heads = fields.size("num_heads", "num_attention_heads", default=default)
    if hidden % heads and not fields.faults:
        fields.fault("num_heads", "config.heads", "{heads} does not divide hidden size {hidden}", heads=heads, hidden=hidden)
    return heads


def _pixels(fields: Fields, *, frames: int, patch: int) -> int:
    """Numbers of one patch: channels, frames, and pixels of both edges."""
    edge = _edge(fields, "patch_size", patch)
    return fields.size("in_channels", "in_chans", "num_channels", default=3) * frames * edge * edge


@sees("qwen2_vl")
def qwen2_vl(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """Qwen2-VL: layer norms, plain blocks; four patches become one token."""
    hidden, layers = fields.size("embed_dim", default=1280), fields.layers("depth")
    block = int(hidden * fields.number("mlp_ratio", default=4.0))
    merge = fields.size("spatial_merge_size", default=2)
    wide = merge * merge * hidden
    frames = fields.size("temporal_patch_size", default=2)
    rest = _pixels(fields, frames=frames, patch=14) * hidden + 2 * hidden + _linear(wide, wide) + _linear(wide, width)
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * _layer(hidden, block) + rest,
        heads=_heads(fields, hidden, 16), width=block, merged=merge * merge,
    )


@sees("qwen2_5_vl")
def qwen2_5_vl(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """Qwen2.5-VL: gated blocks, windows of 112 pixels but in a few layers."""
    hidden, layers = fields.size("hidden_size"), fields.layers("depth")
    block, merge = fields.size("intermediate_size", default=3420), fields.size("spatial_merge_size", default=2)
    wide, frames = merge * merge * hidden, fields.size("temporal_patch_size", default=2)
    rest = _pixels(fields, frames=frames, patch=14) * hidden + hidden + _linear(wide, wide) + _linear(wide, width)
    window = fields.size("window_size", default=112) // _edge(fields, "patch_size", 14)
    whole = len({each for each in fields.numbers("fullatt_block_indexes") if each < layers})
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * _layer(hidden, block, gated=True, norm=1) + rest,
        heads=_heads(fields, hidden, 16), width=block, gated=True, merged=merge * merge,
        window_patches=max(1, window * window), whole_layers=whole,
    )


@sees("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
def qwen3_vl(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """Qwen3-VL: learned positions, and projections of some layers' outputs into the first layers of the model (DeepStack)."""
    hidden, layers = fields.size("hidden_size"), fields.layers("depth")
    block, merge = fields.size("intermediate_size", default=4304), fields.size("spatial_merge_size", default=2)
    wide, frames = merge * merge * hidden, fields.size("temporal_patch_size", default=2)
    merger = _linear(wide, wide) + _linear(wide, width)
    deep = len(fields.numbers("deepstack_visual_indexes"))
    rest = _linear(_pixels(fields, frames=frames, patch=16), hidden) + 2 * hidden + merger
    rest += fields.size("num_position_embeddings", default=2304) * hidden + deep * (2 * wide + merger)
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * _layer(hidden, block) + rest,
        heads=_heads(fields, hidden, 16), width=block, merged=merge * merge,
    )


@sees("glm4v", "glm46v", "glm4v_moe")
def glm4v(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """GLM-4.1V and 4.5V: gated blocks as wide as the model, patches joined by a convolution and a gated block."""
    hidden, layers = fields.size("hidden_size", default=1536), fields.layers("depth")
    merge, context = fields.size("spatial_merge_size", default=2), fields.size("intermediate_size", default=13696)
    frames, edge = fields.size("temporal_patch_size", default=2), _edge(fields, "patch_size", 14)
    bias = fields.flag("attention_bias", default=False)
    each = _layer(hidden, width, gated=True, norm=1, query_bias=bias, output_bias=False, block_bias=False)
    positions = (_edge(fields, "image_size", 336) // edge) ** 2
    rest = _linear(_pixels(fields, frames=frames, patch=14), hidden) + positions * hidden + 2 * hidden
    rest += _linear(merge * merge * hidden, width) + width * width + 2 * width + 3 * width * context
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * each + rest, heads=_heads(fields, hidden, 12),
        width=width, gated=True, merged=merge * merge,
    )


@sees("gemma3")
def siglip(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """SigLIP in front of Gemma 3: an image of one size becomes ``mm_tokens_per_image`` tokens."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    block, edge = fields.size("intermediate_size"), _edge(fields, "patch_size", 16)
    patches = (_edge(fields, "image_size", 224) // edge) ** 2
    tokens = wrapper.size("mm_tokens_per_image", default=256)
    rest = _linear(_pixels(fields, frames=1, patch=16), hidden) + patches * hidden + 2 * hidden
    if fields.flag("vision_use_head", default=True):
        rest += hidden + _linear(hidden, 3 * hidden) + _linear(hidden, hidden) + 2 * hidden
        rest += _linear(hidden, block) + _linear(block, hidden)
    rest += hidden * width + hidden
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * _layer(hidden, block) + rest,
        heads=_heads(fields, hidden, 12), width=block, merged=max(1, patches // tokens), image_patches=max(1, patches),
    )


@sees("llama4")
def llama4(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """Llama 4: tiles of one size; pixels are shuffled to fewer, wider tokens behind the last layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    block, edge = fields.size("intermediate_size"), _edge(fields, "patch_size", 14)
    patches = (_edge(fields, "image_size", 448) // edge) ** 2
    ratio = fields.number("pixel_shuffle_ratio", default=0.5, maximum=1.0)
    if ratio * ratio * patches < 1.0:
        words = "{ratio:g} leaves no token of {patches} patches"
        fields.fault("pixel_shuffle_ratio", "config.shuffle", words, ratio=ratio, patches=patches)
        ratio = 1.0
    outward, inner = fields.size("vision_output_dim", default=7680), fields.size("projector_input_dim", default=4096)
    bias = fields.flag("multi_modal_projector_bias", default=False)
    rest = _pixels(fields, frames=1, patch=14) * hidden + (patches + 2) * hidden + 4 * hidden
    rest += block * inner + fields.size("projector_output_dim", default=4096) ** 2 + _linear(outward, width, bias=bias)
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * _layer(hidden, block) + rest,
        heads=_heads(fields, hidden, 16), width=block, merged=max(1, round(1.0 / ratio**2)), image_patches=patches + 1,
    )


@sees("mistral3")
def pixtral(wrapper: Fields, fields: Fields, width: int) -> Tower:
    """Pixtral in front of Mistral Small 3.1 and Ministral 3: gated blocks without biases, images of any size, merged patches."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    block, merge = fields.size("intermediate_size"), wrapper.size("spatial_merge_size", default=2)
    bias = wrapper.flag("multimodal_projector_bias", default=False)
    each = _layer(hidden, block, gated=True, norm=1, query_bias=False, output_bias=False, block_bias=False)
    listed = wrapper.data.get("vision_feature_layer")
    features = len(listed) if isinstance(listed, list) else 1
    rest = _pixels(fields, frames=1, patch=16) * hidden + hidden + hidden + merge * merge * hidden * hidden
    rest += _linear(hidden * features, width, bias=bias) + _linear(width, width, bias=bias)
    return Tower(
        name="vision tower", layers=layers, hidden=hidden, parameters=layers * each + rest, heads=_heads(fields, hidden, 16),
        width=block, gated=True, merged=merge * merge,
    )


def tower_of(wrapper: Fields, width: int, architecture: str) -> Tower | None:
    """The vision tower of a wrapper in front of a model so wide; None where no reader knows it, or its file leaves something out.

    A value that cannot be is a fault of the file, one that is missing only leaves the tower undescribed.
    """
    kind = wrapper.data.get("model_type")
    if not isinstance(kind, str) or kind not in towers or not wrapper.has("vision_config"):
        return None
    own = Fields(wrapper.data, wrapper.path)
    vision = own.inner("vision_config")
    given = vision.data.get("hidden_size" if kind == "qwen2_vl" else "out_hidden_size")
    if given is not None and given != width:
        vision.fault(
            "hidden_size" if kind == "qwen2_vl" else "out_hidden_size", "config.tower-width",
            "{given} is not the width of the language model: {width}", given=shown(given), width=width,
        )
    tower = towers[kind](own, vision, width)
    if not own.faults:
        return replace(tower, architecture=architecture)
    wrapper.faults += [each for each in own.faults if each.id != "config.missing"]
    return None
