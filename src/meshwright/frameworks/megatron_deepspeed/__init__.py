"""Megatron-DeepSpeed: what it can express, what it refuses, how its flags and its JSON are written together, read and judged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.megatron_deepspeed.limits import limits_of
from meshwright.frameworks.megatron_deepspeed.mistakes import CHECKS, forks, unknown_key
from meshwright.frameworks.megatron_deepspeed.reading import interpret, open_run
from meshwright.frameworks.megatron_deepspeed.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.programs import other_program
from meshwright.frameworks.resume import CUT, Meaning
from meshwright.frameworks.surface import Key, Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source

__all__ = ["MEGATRON_DEEPSPEED", "surface"]

RELEASES = ("4efb479d",)
"""Commits: there are no releases. 4efb479d is of 2025-07-16."""
_UNIVERSAL = Meaning(
    resume="convert", reason="DeepSpeed's universal checkpoint (tools/convert_checkpoint, ds_to_universal.py) is cut anew"
)


@cache
def surface() -> Surface:
    """The flags of ``megatron/arguments.py``, and every key that any release of DeepSpeed reads."""
    from meshwright.frameworks.deepspeed import surface as json_surface

    flags = load_surface(__name__, "Megatron-DeepSpeed", RELEASES)
    keys = {name: (_timeless(spans[-1]),) for name, spans in json_surface().keys.items() if not name.startswith("-")}
    return replace(flags, keys={**flags.keys, **keys})


def _timeless(key: Key) -> Key:
    """A key of DeepSpeed's JSON: which release is installed beside the commit is not known."""
    return structs.replace(key, since=0, until=len(RELEASES) - 1)


_FEATURES = Features(
    name="megatron-deepspeed",
    attentions=("flash", "math"),
    schedules=("1f1b",),  # interleaving is parsed, the DeepSpeed engine has none
    zero_stages=(0, 1, 2, 3),
    offload_zero_stages=(1, 2, 3),
    partial_sharding=False,
    context_kinds=("ulysses",),
    expert_tensor_parallel=False,
    sequence_parallel_against="DeepSpeed's engine bypasses Megatron's optimizer, which would sum gradients of norms over tensor "
    "ranks (reported in Megatron-DeepSpeed issue 170)",
    uneven_stages=False,
    recompute=("none", "selective", "full"),
    recompute_first_layers=False,  # the pipeline engine does not apply the block method
    positions=("rope", "learned"),
    overlaps=(),
    tasks=("pretrain",),
)


def _adds_keys(source: Source) -> str:
    """BigScience's fork, by the flag that all its scripts have, or another program."""
    return "BigScience's fork" if "--tokenizer-name-or-path" in source.settings else other_program(source)


MEGATRON_DEEPSPEED = Framework(
    name="megatron-deepspeed",
    title="Megatron-DeepSpeed",
    implementation="megatron-deepspeed",
    version=RELEASES[-1],
    releases=RELEASES,
    features=_FEATURES,
    limits=limits_of(_FEATURES),
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_run,
    interpreter=interpret,
    checks=tuple(CHECKS),
    adds_keys=_adds_keys,
    unknown_keys=unknown_key,
    forks=forks,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=(
        frozenset({"--recompute-granularity", "--recompute-activations", "--checkpoint-activations"}),
        frozenset({"--recompute-num-layers", "--checkpoint-num-layers"}),
    ),
    resume=dict(CUT) | dict.fromkeys(("tp", "pp", "dp", "zero", "cp", "layers"), _UNIVERSAL),
    facts=Facts(
        guides=("megatron",), other_rules=frozenset({"megatron.flash-attention"}), fork_of="megatron", signs="deepspeed|zero-stage",
    ),
)
