"""Hybrids with Mamba-2 as Megatron-LM builds them: a stack of single blocks, of which a pattern names each by a letter.

Source: ``core/ssm/mamba_hybrid_layer_allocation.py`` and ``mamba_block.py`` of core 0.11 to 0.17, ``core/models/hybrid/`` from 0.18
on, ``core/ssm/mamba_mixer.py`` and ``mamba_context_parallel.py``, and ``megatron/training/arguments.py`` of each release.

One of the planner's layers may be two of Megatron-LM's: the mixer and the feed-forward block of Granite 4 or Bamba.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from meshwright.domain.mixers import Mamba2
from meshwright.domain.model import MixtureOfExperts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.model import LayerKind, Model
    from meshwright.estimate.split import Split
    from meshwright.frameworks.megatron.flags import Version

PIPES, EXPERTS, RECOMPUTES, RENAMED = 17, 16, 18, 18
"""First minor versions: with ``|`` and ``/`` in patterns, with experts in them, that recompute whole layers of a hybrid, and that
call the program and the specification of layers hybrid instead of Mamba."""
LETTERS = frozenset("M*-E")
"""Letters that are written here: Mamba-2, attention, feed-forward, experts."""
KNOWN = LETTERS | frozenset("GD+")
"""Letters of patterns; later releases have gated delta nets, sparse and latent attention, too."""
PATTERNS = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
"""Flags with a pattern; the second is deprecated since the first exists."""


def is_hybrid(model: Model) -> bool:
    """Whether Megatron-LM builds the model as a stack of single blocks."""
    return any(isinstance(each, Mamba2) for each in model.mixers)


def letters(model: Model) -> tuple[str, ...]:
    """The letters of each layer of a hybrid: one for each of its blocks.

    >>> from meshwright.catalog import load_model
    >>> letters(load_model("nemotron-h-8b"))[6:9], letters(load_model("granite4-h-tiny"))[4:7]
    (('M', '*', '-'), ('ME', '*E', 'ME'))
    """
    return tuple(_letters(model.kinds[index]) for index in model.pattern)


def _letters(kind: LayerKind) -> str:
    """The letters of a kind of layer."""
    block = "" if not kind.has_block else "E" if isinstance(kind.feed_forward, MixtureOfExperts) else "-"
    return "M" * (kind.mixer is not None) + "*" * (kind.attention is not None) + block


def pattern(model: Model, split: Split | None = None) -> str:
    """A hybrid as a pattern: ``|`` between chunks of stages where there is a split, ``/`` before what predicts each further token.

    >>> from meshwright.catalog import load_model
    >>> pattern(load_model("nemotron-h-8b"), ((13, 13, 13, 13),))
    'M-M-M-M*-M-M-|M-M-M*-M-M-M-|M-M*-M-M-M-M-|M*-M-M-M-M-M-'
    """
    words = letters(model)
    ends = [0, *accumulate(count for chunk in split for count in chunk)] if split else [0, len(words)]
    main = "|".join("".join(words[start:end]) for start, end in pairwise(ends))
    depth = "".join(_letters(model.kinds[index]) for index in model.mtp_pattern or model.pattern[-1:])
    return "/".join((main, *[depth] * model.mtp_passes))


def main_pattern(text: str) -> str:
    """The letters of the layers of a pattern, without what places them and what follows them."""
    return text.partition("/")[0].replace("|", "")


def layers_of(counts: Sequence[int], model: Model | None, text: str) -> tuple[int, ...] | None:
    """Counts of Megatron-LM's layers, one after another, as counts of the model's own; None where a cut goes through a layer.

    A model that is unknown, or is not that of the pattern, has its blocks for layers.
    """
    if model is None or "".join(words := letters(model)) != main_pattern(text):
        return tuple(counts)
    places = {place: index for index, place in enumerate((0, *accumulate(map(len, words))))}
    ends = [places.get(end) for end in (0, *accumulate(counts))]
    if None in ends:
        return None
    return tuple(end - start for start, end in pairwise(ends))  # type: ignore[operator]


def letters_of_a_layer(model: Model) -> int | None:
    """How many of Megatron-LM's layers each layer is; None where they differ. One for whatever is no hybrid."""
    if not is_hybrid(model):
        return 1
    sizes = set(map(len, letters(model)))
    return sizes.pop() if len(sizes) == 1 else None


def program(model: Model, version: Version) -> str:
    """The program that trains a model."""
    return "pretrain_gpt.py" if not is_hybrid(model) else "pretrain_hybrid.py" if version.minor >= RENAMED else "pretrain_mamba.py"


def specification(version: Version) -> tuple[str, str]:
    """Module and name of the layers of a hybrid."""
    name = "hybrid" if version.minor >= RENAMED else "mamba"
    return f"megatron.core.models.{name}.{name}_layer_specs", f"{name}_stack_spec"


def inexpressible_hybrid(model: Model) -> dict[str, bool]:
    """What a stack of blocks does not have, and whether the model has it."""
    if not is_hybrid(model):
        return {}
    mixers = {each for each in model.mixers if isinstance(each, Mamba2)}
    odd = {each for each in mixers if each.convolution != 4 or not each.convolution_bias or each.bias or not each.norm}
    attentions = model.attentions
    return {
        "attention beside Mamba-2 in a layer": any(kind.mixer is not None and kind.attention is not None for kind in model.kinds),
        "Mamba-2 layers of different shapes": len({(each.num_heads, each.head_dim, each.state_dim, each.num_groups)
                                                   for each in mixers}) > 1,
        "Mamba-2 with other than four taps, their biases, a norm in front of the output and no further biases": bool(odd),
        "another mixer beside Mamba-2": len({type(each) for each in model.mixers}) > 1,
        "latent or sparse attention beside Mamba-2": any(each.latent or each.selected_tokens for each in attentions),
        "query and key norms beside Mamba-2": any(each.query_key_norm != "none" for each in attentions),
        "windows or sinks beside Mamba-2": any(each.window_tokens or each.sinks for each in attentions),
        "gated attention beside Mamba-2": any(each.gate != "none" for each in attentions),
        "learned positions beside Mamba-2": model.position == "learned",
    }
