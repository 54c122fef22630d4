"""Megatron-Bridge: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.bridge.automatic import RELEASES
from meshwright.frameworks.bridge.deciding import UNSPOKEN, decide, normal
from meshwright.frameworks.bridge.limits import CORES, limits_of
from meshwright.frameworks.bridge.mistakes import CHECKS, unknown_key
from meshwright.frameworks.bridge.reading import interpret
from meshwright.frameworks.bridge.sources import detect, lacks_program, open_files
from meshwright.frameworks.bridge.writing import write
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.megatron.narrowing import narrowed
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case

__all__ = ["BRIDGE", "surface"]

_MEGATRON_MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts")


@cache
def surface() -> Surface:
    """Every field of ``ConfigContainer`` and of the dataclasses in it, by release."""
    return load_surface(__name__, "Megatron-Bridge", RELEASES)


@cache
def _variant(release: str) -> Framework:
    """Megatron-Bridge at a release."""
    return replace(BRIDGE, version=release, limits=limits_of(release), narrowed=_narrowed(release))


def _narrowed(release: str) -> Callable[[Case], Features]:
    """What is left of its features for a case: what its core leaves, and hybrids without virtual stages."""
    return partial(narrowed, _FEATURES, parse_version(CORES[release]).minor, chunks=False)


_FEATURES = Features(
    name="bridge",
    attentions=("flash", "fused", "math"), dispatchers=("alltoall", "flex"), offloads=("offload_modules", "offload_layers"),
    zero_stages=(0, 1, 2, 3),
    offload_zero_stages=(1, 2, 3),
    instances_divide_experts=True,
    context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    selective_modules=_MEGATRON_MODULES,
    tasks=("pretrain", "sft", "lora"),
)
BRIDGE = Framework(
    name="bridge",
    title="Megatron-Bridge",
    aliases=("megatron-bridge", "nemo"),
    implementation="megatron-te",
    version="0.3",
    releases=RELEASES,
    variant=_variant,
    features=_FEATURES,
    narrowed=_narrowed("0.3"),
    limits=limits_of("0.3"),
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    detect=detect,
    interpreter=interpret,
    lacks_program=lacks_program,
    checks=tuple(CHECKS),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=(
        frozenset({
            "model.pipeline_model_parallel_layout", "model.num_layers_in_first_pipeline_stage",
            "model.num_layers_in_last_pipeline_stage", "model.account_for_embedding_in_pipeline_split",
            "model.account_for_loss_in_pipeline_split",
        }),
    ),
    facts=Facts(stages_inside_key="dist.use_tp_pp_dp_mapping"),
)
