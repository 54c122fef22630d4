"""ChatLearn: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.chatlearn.asking import packing_limit
from meshwright.frameworks.chatlearn.deciding import TRAINER, UNSPOKEN, decide, normal
from meshwright.frameworks.chatlearn.limits import LIMITS, foreign
from meshwright.frameworks.chatlearn.mistakes import CHECKS, unknown_key
from meshwright.frameworks.chatlearn.reading import interpret
from meshwright.frameworks.chatlearn.sources import open_files
from meshwright.frameworks.chatlearn.writing import write
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.domain.case import Case

__all__ = ["CHATLEARN"]

RELEASES = ("b7af31a9",)
"""Commits: the newest is of 2025-10-23."""
_MEGATRON_MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts")


@cache
def surface() -> Surface:
    """Every field of the configuration classes of both back ends, and those that the patch adds."""
    return load_surface(__name__, "ChatLearn", RELEASES)


def _narrowed(case: Case) -> Features:
    """The back end fsdp alone for models that the back end megatron cannot build."""
    if not foreign(case.model):
        return CHATLEARN.features
    return replace(
        CHATLEARN.features, zero_stages=(3,), partial_sharding=False, tensor_parallel=False, pipeline_parallel=False,
        expert_parallel=False, expert_tensor_parallel=False, sequence_parallel=False, context_kinds=("ulysses",),
        schedules=("1f1b",), recompute=("full",), recompute_first_layers=False, uneven_stages=False, optimizer_offload=False,
        overlaps=("p2p",),
    )


CHATLEARN = Framework(
    name="chatlearn",
    title="ChatLearn",
    implementation="megatron-te",
    version=RELEASES[-1],
    releases=RELEASES,
    features=Features(
        name="chatlearn",
        zero_stages=(0, 1, 3),  # 3: the back end fsdp, without any other degree but Ulysses
        partial_sharding=True,
        instances_divide_experts=True,
        context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
        selective_modules=_MEGATRON_MODULES,
        positions=("rope",),
        overlaps=("p2p", "tp"),
        tasks=("sft", "pretrain"),
    ),
    narrowed=_narrowed,
    limits=LIMITS,
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=interpret,
    checks=tuple(CHECKS),
    config_keys=("--config-file",),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=(
        frozenset(
            f"{TRAINER}.{name}"
            for name in ("pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
                         "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
        ),
    ),
    facts=Facts(
        allocator_key=f"{TRAINER}.use_expandable_segments", packing=packing_limit,
        remedies=(
            Remedy(phase="loss", key=f"{TRAINER}.megatron_model_cfg.cross_entropy_loss_fusion",
                   words="megatron_model_cfg.cross_entropy_loss_fusion: true keeps fewer copies of the logits"),
        ),
    ),
)
