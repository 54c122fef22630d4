"""What Megatron-Bridge refuses of a case and a layout: its own checks, and those of the Megatron-Core below it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.rules import rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

CORES = {"0.3": "0.16", "main": "main"}
"""Release of Megatron-Core below a release of Megatron-Bridge."""
PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8-delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-cs": "bf16_with_fp8_current_scaling_mixed", "fp8-mx": "bf16_with_mxfp8_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed", "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Precision of the catalogue -> name of a recipe in ``training/mixed_precision.py``."""
OWN: list[Limit] = []
_rule = partial(rule, OWN)


@_rule(
    "bridge.world",
    "world size ({world}) is not divisible by total_model_size (model_cfg.tensor_model_parallel_size={tp} * "
    "model_cfg.pipeline_model_parallel_size={pp} * model_cfg.context_parallel_size={cp})",
)
def _world(case: Case, layout: Layout) -> Values | None:
    tp, pp, cp = layout.tensor_parallel, layout.pipeline_parallel, layout.context_parallel
    world = case.cluster.num_devices
    return values_if(world % (tp * pp * cp), world=world, tp=tp, pp=pp, cp=cp)


@_rule("bridge.sequence-parallel-alone", "Cannot use sequence parallelism without tensor parallelism")
def _sequence_parallel(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.sequence_parallel and layout.tensor_parallel == 1)


@_rule(
    "bridge.context-sequence",
    "Sequence length must be divisible by 2 * context parallel size if context parallel is used.",
)
def _context_sequence(case: Case, layout: Layout) -> Values | None:
    cp = layout.context_parallel
    return values_if(cp > 1 and case.batch.sequence_tokens % (2 * cp))


@_rule(
    "bridge.parameter-overlap",
    "overlap_param_gather without overlap_grad_reduce: accepted in silence, although Megatron-LM's own flags refuse it",
    noticed="never",
)
def _parameter_overlap(case: Case, layout: Layout) -> Values | None:
    several = layout.zero_stage > 0 and layout.data_parallel * layout.context_parallel > 1
    return values_if(several and layout.overlap.parameter_gather and not layout.overlap.gradient_reduce)


@_rule("bridge.precision", "Megatron-Bridge has no recipe for {precision}; it has {known}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    name = case.training.precision.name
    return values_if(name not in PRECISIONS, precision=name, known=", ".join(PRECISIONS))


@_rule("bridge.device", "Megatron-Bridge runs on NVIDIA GPUs, not on {device}", noticed="never", path="cluster")
def _device(case: Case, layout: Layout) -> Values | None:
    device = case.cluster.device
    return values_if(device.family in {"ascend", "cpu", "cdna3", "cdna4"}, device=device.name)


REPLACED = frozenset(
    f"megatron.{name}" for name in ("task", "device", "precision", "sequence", "parameter-overlap", "split", "flag")
)
"""Rules of Megatron-LM that have a form of Bridge's own here, or that only its flags have."""


@cache
def limits_of(release: str) -> tuple[Limit, ...]:
    """Every rule of a release, in the order in which they are reported."""
    below = (limit for limit in MEGATRON.at(CORES[release]).limits if limit.id not in REPLACED)
    return (*OWN, *(replace(limit, id=limit.id.replace("megatron.", "bridge.", 1)) for limit in below))
