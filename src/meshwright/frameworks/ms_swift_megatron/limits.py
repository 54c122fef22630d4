"""What ms-swift refuses of a plan for Megatron, in its own words, and what the Megatron-Core below it does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.precision_arguments import FP8_RECIPES, OPTIMIZERS
from meshwright.frameworks.ms_swift_megatron.names import CORE, NAME, in_its_words, own_id
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Noticed, Values
    from meshwright.frameworks.planned import Planned

PRECISIONS = ("bf16", "fp16", *FP8_RECIPES, "nvfp4")


def is_padded(case: Case, layout: Layout) -> bool:
    """Whether samples are padded instead of laid behind each other, which other kernels than flash attention may not take."""
    return layout.attention == "math" or bool(case.model.attention.sinks)


def _precision(plan: Planned) -> Values | None:
    precision = plan.case.training.precision
    has = [
        (precision.name not in PRECISIONS, f"precision {precision.name}: torch_dtype float32 alone means fp16"),
        (precision.gradient_bytes < 4, "gradients in half precision: main_grads_dtype is read, not written"),
        (precision.bf16_edge_layers, "layers at the ends in bf16"),
        (precision.gather_bytes < 2 and precision.name == "fp8-mx", "parameters gathered in mxfp8"),
    ]
    return words_if("precisions", has, between="; ")


def _batch(plan: Planned) -> Values | None:
    return values_if(plan.batch % (plan.mb * plan.dp), size=plan.mb)


def _overlaps(plan: Planned) -> bool:
    overlap = plan.layout.overlap
    return plan.ranks > 1 and (overlap.gradient_reduce or (plan.zero > 0 and overlap.parameter_gather))


_RULES = (
    Rule("device", "ms-swift's files are written for NVIDIA GPUs here, not for {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu"}, "never", "cluster"),
    Rule("precision", "ms-swift's arguments have no {precisions}", _precision, "never", "training"),
    Rule("optimizer", "ms-swift has no optimizer {optimizer}; it has adam, sgd and muon",
         lambda plan: plan.optimizer not in OPTIMIZERS, "never", "training"),
    Rule("tower", "{model} with its vision tower is not written for ms-swift", lambda plan: plan.case.model.tower is not None,
         "never", "model"),
    Rule("schedule", "ms-swift has the schedules 1f1b and interleaved (vp > 1), not {schedule}",
         lambda plan: plan.schedule != ("interleaved" if plan.vp > 1 else "1f1b"), "never"),
    Rule("batch", "global batch size ({batch}) is not divisible by micro batch size ({size}) times data parallel size ({dp}).",
         _batch, "start"),
    Rule("tensor-overlap", "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is enabled",
         lambda plan: plan.layout.overlap.tensor and plan.tp > 1 and not plan.sp),
    Rule("expert-overlap", "overlap of experts has no argument: overlap_moe_expert_parallel_comm is not written",
         lambda plan: plan.layout.overlap.expert and plan.ep > 1, "never"),
    Rule("parameter-overlap", "overlap_param_gather without overlap_grad_reduce is taken, although Megatron-LM's own flags refuse "
         "it", lambda plan: plan.zero > 0 and plan.ranks > 1 and plan.layout.overlap.parameter_gather
         and not plan.layout.overlap.gradient_reduce, "never"),
    Rule("instances", "ms-swift has no distributed-optimizer instances: state is split over {ranks} ranks or not at all",
         lambda plan: plan.zero > 0 and set(plan.shards) - {1, plan.ranks}, "never"),
    Rule("context-kind", "samples are laid behind each other (padding_free) and split in a ring here, not by {kind}",
         lambda plan: plan.cp > 1 and plan.kind != "ring", "never"),
    Rule("muon-sharding", "Muon optimizer does not support distributed optimizer for now: it is switched off in silence",
         lambda plan: plan.optimizer == "muon" and plan.zero > 0, "never"),
    Rule("muon-overlap", "Muon optimizer does not support overlap grad reduce. Use dist_muon instead.",
         lambda plan: plan.optimizer == "muon" and _overlaps(plan), "start"),
    Rule("softmax", 'Attention backend "flash" does not support learnable softmax_type.',
         lambda plan: plan.layout.attention == "flash" and plan.attention.sinks, "start"),
    Rule("padded-packs", "packs are laid behind each other, which needs flash attention: padding_free is off with this kernel",
         lambda plan: plan.case.batch.packing is not None and is_padded(plan.case, plan.layout), "never"),
)
_REPLACED = frozenset(f"megatron.{name}" for name in (
    "task", "device", "precision", "optimizer", "schedule", "batch", "context-kind", "context-heads", "context-hybrid",
    "tensor-overlap", "parameter-overlap", "expert-shards", "split", "flag", "offload-layers", "cpu-offloading-pipeline",
    "offload-recompute", "graphs-recompute", "graphs-offload", "deterministic-overlap",
))
"""Rules of Megatron-LM that have a form of ms-swift's own, or cannot be broken through it."""


@cache
def all_limits() -> tuple[Limit, ...]:
    """Every rule, in the order in which they are reported."""
    return (*limits(NAME, _RULES), *_below())


def _below() -> Iterator[Limit]:
    """Megatron-Core's rules; ms-swift hands the values on unread, and groups are built before its own arithmetic."""
    for limit in MEGATRON.at(CORE).limits:
        if limit.id not in _REPLACED and not limit.id.startswith(("megatron.expert-overlap", "megatron.hybrid", "megatron.mamba")):
            noticed: Noticed = "start" if limit.noticed == "parse" else limit.noticed
            yield structs.replace(limit, id=own_id(limit.id), words=in_its_words(limit.words), noticed=noticed)
