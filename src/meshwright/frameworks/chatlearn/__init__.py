"""ChatLearn: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.chatlearn.asking import limit_stays, packing_limit
from meshwright.frameworks.chatlearn.deciding import TRAINER, UNSPOKEN, decide, normal
from meshwright.frameworks.chatlearn.limits import COMMIT, FSDP, FSDP_LIMITS, LIMITS, ULYSSES, foreign
from meshwright.frameworks.chatlearn.mistakes import CHECKS, unknown_key
from meshwright.frameworks.chatlearn.reading import interpret
from meshwright.frameworks.chatlearn.sources import open_files
from meshwright.frameworks.chatlearn.writing import write
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.domain.case import Case
    from meshwright.domain.model import Model

__all__ = ["CHATLEARN"]

RELEASES = (FSDP, COMMIT)
"""Back ends of one commit, which a release stands for: they compute and are priced in their own ways."""
_MEGATRON_MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts")


@cache
def surface() -> Surface:
    """Every field of the configuration classes of both back ends, and those that the patch adds."""
    return load_surface(__name__, "ChatLearn", RELEASES)


def _detect(source: Source) -> str | None:
    """The back end that files choose; None where they do not."""
    return {"fsdp": FSDP, "megatron": COMMIT}.get(str(source.value("runtime_args.train_backend")))


_ON_MEGATRON = Features(
    name="chatlearn",
    zero_stages=(0, 1),
    offload_zero_stages=(1,),
    partial_sharding=True,
    instances_divide_experts=True,
    context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    selective_modules=_MEGATRON_MODULES,
    positions=("rope",),
    overlaps=("p2p", "tp"),
    tasks=("sft", "pretrain"),
)
_ON_FSDP = Features(
    name="chatlearn",
    zero_stages=(3,),
    partial_sharding=False,
    tensor_parallel=False,
    pipeline_parallel=False,
    expert_parallel=False,
    expert_tensor_parallel=False,
    sequence_parallel=False,
    uneven_stages=False,
    context_kinds=("ulysses",),
    schedules=("1f1b",),
    recompute=("full",),
    recompute_first_layers=False,
    optimizer_offload=False,
    positions=("rope", "learned", "alibi", "none"),
    overlaps=("grad", "param"),
    tasks=("sft", "pretrain"),
)


def _narrowed(case: Case) -> Features:
    """The back end fsdp splits sequences of some architectures only."""
    return _ON_FSDP if case.model.architecture in ULYSSES else replace(_ON_FSDP, context_parallel=False)


_ZERO_3 = re.compile(r"\bzero=?3\b|\bshards=\d+,\d+,0*([2-9]|1\d)")
_DEGREE = re.compile(r"\b(tp|pp|vp|ep|etp)=?([2-9]|1\d)")


def _chosen(words: str, model: Model | None) -> str | None:
    """The back end fsdp where parameters are to be sharded, and for models that the other cannot build unless its degrees are asked
    for: then it says why it cannot."""
    unable = model is not None and bool(foreign(model))
    return FSDP if _ZERO_3.search(words) or (unable and not _DEGREE.search(words)) else None


@cache
def _at(release: str) -> Framework:
    """ChatLearn with one of its back ends."""
    if release == FSDP:
        return replace(
            CHATLEARN, version=FSDP, implementation="chatlearn-fsdp", features=_ON_FSDP, narrowed=_narrowed, limits=FSDP_LIMITS,
        )
    return CHATLEARN


CHATLEARN = Framework(
    name="chatlearn",
    title="ChatLearn",
    implementation="megatron-te",
    version=RELEASES[-1],
    releases=RELEASES,
    variant=_at,
    features=_ON_MEGATRON,
    limits=LIMITS,
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    chosen=_chosen,
    detect=_detect,
    interpreter=interpret,
    checks=tuple(CHECKS),
    config_keys=("--config-file",),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    stays=limit_stays,
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
