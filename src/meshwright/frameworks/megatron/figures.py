"""What the flags say of the case: batch, sequence, numbers, optimizer, and the figures of the model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from meshwright.domain.launch import launch_words, offload_words
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.megatron.hybrid import layers_of, letters, main_pattern
from meshwright.frameworks.megatron.hybrid_stages import pattern_of
from meshwright.frameworks.megatron.precision_arguments import FP8_RECIPES, MOMENTS
from meshwright.frameworks.settings import Said

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.frameworks.compose import Values
    from meshwright.frameworks.settings import Given

_FIGURES = {
    "layers": "--num-layers", "hidden": "--hidden-size", "heads": "--num-attention-heads", "experts": "--num-experts",
    "expert_ffn": "--moe-ffn-hidden-size", "shared_ffn": "--moe-shared-expert-intermediate-size",
    "mtp_layers": "--mtp-num-layers", "head_dim": "--kv-channels", "ffn": "--ffn-hidden-size",
    "experts_per_token": "--moe-router-topk",
}
_FP8_NAMES = {recipe: name for name, (_, recipe) in FP8_RECIPES.items()}
_MOMENT_NAMES = {moment: name for name, moment in MOMENTS.items() if moment}


def said_of(values: Values, given: Given) -> Said:
    """The case as far as the flags say it; a fault of a figure is noted in ``values``."""
    devices = given.num_devices or values.source.devices
    return Said(
        devices=devices, global_batch_sequences=values.int("--global-batch-size"), sequence_tokens=values.int("--seq-length"),
        precision=_precision(values), gradient_dtype=gradient_dtype(values), optimizer=_optimizer(values),
        task="sft" if values.bool("--sft") else None if values.bool("--mock-data") else "pretrain",
        figures=model_figures(values, given.model), launch=_launch(values),
    )


def _launch(values: Values) -> str | None:
    """Settings of the launch that flags make; what no flag says is not said."""
    found: dict[str, str] = {}
    scope = _scope(values)
    if values.has("--cuda-graph-impl"):
        kind = values.text("--cuda-graph-impl")
        found["graphs"] = "none" if kind == "none" else "step" if "full_iteration" in (kind, *scope) else "partial"
    elif any(values.has(flag) for flag in ("--enable-cuda-graph", "--external-cuda-graph")):
        found["graphs"] = "step" if "full_iteration" in scope else "partial"
    found |= {name: value for flag, name, value in _SWITCHES if values.bool(flag)}
    if layers := values.int("--cpu-offloading-num-layers", 0):
        found["offload_layers"] = str(layers)
    if values.bool("--fine-grained-activation-offloading"):
        found |= offload_words(values.words("--offload-modules") if values.has("--offload-modules") else ())
    if values.has("--moe-token-dispatcher-type"):
        found["dispatcher"] = "flex" if values.text("--moe-token-dispatcher-type") == "flex" else "alltoall"
    return launch_words(found) or None


def _scope(values: Values) -> tuple[str, ...]:
    """Of what graphs are captured: one word until core 0.15, several from then on, under another name from 0.18 on."""
    names = ("--cuda-graph-scope", "--cuda-graph-modules")
    return tuple(word for name in names if values.has(name) for word in values.words(name) or (values.text(name),))


_SWITCHES = (
    ("--deterministic-mode", "deterministic", "on"), ("--manual-gc", "host", "bound"),
    ("--moe-router-force-load-balancing", "routing", "balanced"),
)
"""Flag -> setting of the launch that it makes."""


def model_figures(values: Values, model: Model | None = None) -> dict[str, object]:
    """The model's figures; what follows from others by the parser's own rules is filled in."""
    figures: dict[str, object] = {}
    for name, flag in _FIGURES.items():
        if (value := values.int(flag)) is not None:
            figures[name] = value
    hidden, heads, experts = (values.int(flag) for flag in ("--hidden-size", "--num-attention-heads", "--num-experts"))
    latent = values.bool("--multi-latent-attention")
    figures |= {
        "gated": values.bool("--swiglu") or values.bool("--quick-geglu"), "latent_attention": latent,
        "windowed": values.has("--window-size"),
    }
    if hidden and "ffn" not in figures:
        figures["ffn"] = int(4 * hidden * 2 / 3 / 64) * 64 if values.bool("--swiglu") else 4 * hidden
    if heads and not latent:
        figures["key_value_heads"] = _groups(values) or heads
        if hidden and "head_dim" not in figures:
            figures["head_dim"] = hidden // heads
    if latent:
        figures.pop("head_dim", None)
    if experts:
        figures.setdefault("experts_per_token", 2)
        if "expert_ffn" not in figures and "ffn" in figures:
            figures["expert_ffn"] = figures["ffn"]
        figures["mixtures"] = mixtures(values.text("--moe-layer-freq", "1"), values.int("--num-layers") or 0)
    figures.setdefault("experts", 0)
    if (pattern := pattern_of(values)) is not None:
        figures |= _hybrid(main_pattern(pattern), model, experts=bool(experts))
        if depths := pattern.count("/"):
            figures["mtp_layers"] = depths
    if figures.get("mtp_layers"):
        figures["mtp_shared"] = values.bool("--mtp-use-repeated-layer")
    if (rows := _vocabulary(values)) is not None:
        figures["vocabulary"] = rows
    if hidden:
        figures["tied_embeddings"] = not values.bool("--untie-embeddings-and-output-weights")
    return figures


def _hybrid(blocks: str, model: Model | None, *, experts: bool) -> dict[str, object]:
    """What a pattern says: its blocks, and the layers, which are the model's where the pattern is."""
    counts = layers_of([len(blocks)], model, blocks) or (len(blocks),)
    own = letters(model) if model is not None and counts[0] == model.num_layers and "".join(letters(model)) == blocks else blocks
    found: dict[str, object] = {"blocks": blocks, "layers": counts[0]}
    return found | ({"mixtures": tuple("E" in word for word in own)} if experts else {})


def mixtures(frequency: str, layers: int) -> tuple[bool, ...]:
    """Of each layer whether it is a mixture; empty where the words do not say it of every one.

    Every so many layers from the first, or a list as Megatron-LM evaluates it.

    >>> mixtures("([0]*1+[1]*3)", 4), mixtures("2", 4)
    ((False, True, True, True), (True, False, True, False))
    """
    if frequency.isdecimal() and 0 < int(frequency) <= _LONGEST:
        return tuple(layer % int(frequency) == 0 for layer in range(layers))
    try:
        listed = _evaluated(ast.parse(frequency[:_LONGEST], mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(map(bool, listed)) if isinstance(listed, list) and len(listed) == layers else ()


_LONGEST = 4000
"""Characters of a list, and layers that one may have."""


def _evaluated(node: ast.expr) -> list[int] | int:
    """Lists of numbers, repeated and joined; anything else is a ``ValueError``."""
    match node:
        case ast.Constant(value=int() as number) if 0 <= number <= _LONGEST:
            return number
        case ast.List(elts=items):
            found = [_evaluated(item) for item in items]
            return [item for item in found if isinstance(item, int)]
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as operator, right=right):
            first, second = _evaluated(left), _evaluated(right)
            if isinstance(operator, ast.Add) and isinstance(first, list) and isinstance(second, list):
                return first + second
            fits = isinstance(first, list) and isinstance(second, int) and len(first) * second <= _LONGEST
            if isinstance(operator, ast.Mult) and fits:
                return first * second  # type: ignore[operator]
    raise ValueError("no list of layers")


def _groups(values: Values) -> int | None:
    """Heads of keys and values; before core 0.18 the count alone is not read."""
    if values.bool("--group-query-attention"):
        return values.int("--num-query-groups", 1)
    return values.int("--num-query-groups") if parse_version(values.release).minor >= 18 else None


def _vocabulary(values: Values) -> int | None:
    """Tokens; the NullTokenizer adds one to those it is told."""
    rows = values.int("--vocab-size")
    return rows + 1 if rows is not None and values.text("--tokenizer-type") == "NullTokenizer" else rows


def _precision(values: Values) -> str | None:
    """The precision of the catalogue; None where nothing but FP32 is said."""
    if values.has("--fp4-format"):
        return "nvfp4"
    if values.has("--fp8-format"):
        return _FP8_NAMES.get(values.text("--fp8-recipe", "delayed"))
    return next((name for name in ("bf16", "fp16") if values.bool(f"--{name}")), None)


def gradient_dtype(values: Values) -> str | None:
    """The type in which gradients are summed, where that is said: ``bf16`` is any of two bytes, FP16's own among them."""
    if values.bool("--bf16"):
        return "bf16" if values.bool("--grad-reduce-in-bf16") else "fp32"
    if values.bool("--fp16"):
        return "fp32" if values.bool("--accumulate-allreduce-grads-in-fp32") else "bf16"
    return None


def _optimizer(values: Values) -> str | None:
    """The optimizer of the catalogue."""
    name = values.text("--optimizer", "adam")
    if name == "adam":
        moment = values.text("--exp-avg-dtype", "fp32") if values.bool("--use-precision-aware-optimizer") else "fp32"
        return _MOMENT_NAMES.get(moment, "adamw")
    return {"sgd": "sgd", "muon": "muon", "dist_muon": "muon"}.get(name)
