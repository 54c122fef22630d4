"""What Megatron-Bridge refuses of a case and a layout: its own checks, and those of the Megatron-Core below it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.bridge.automatic import is_automatic
from meshwright.frameworks.bridge.recipes import packs, recipe_of
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.hybrid import is_hybrid
from meshwright.frameworks.megatron.model_arguments import inexpressible
from meshwright.frameworks.megatron.pipeline import is_even, split_of
from meshwright.frameworks.megatron.version_limits import packs_delta
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Limit, Noticed, Values
    from meshwright.frameworks.planned import Planned

CORES = {"0.3": "0.16", "main": "main"}
"""Release of Megatron-Core below a release of Megatron-Bridge."""
PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8-delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-cs": "bf16_with_fp8_current_scaling_mixed", "fp8-mx": "bf16_with_mxfp8_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed", "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Precision of the catalogue -> name of a recipe in ``training/mixed_precision.py``."""


def _world(plan: Planned) -> Values | None:
    world = plan.case.cluster.num_devices
    return values_if(world % (plan.tp * plan.pp * plan.cp), world=world)


def _parameter_overlap(plan: Planned) -> bool:
    overlap = plan.layout.overlap
    return plan.zero > 0 and plan.ranks > 1 and overlap.parameter_gather and not overlap.gradient_reduce


def _packs(plan: Planned) -> bool:
    return packs(plan.case, plan.release) or plan.case.batch.packing is not None


def _model(plan: Planned) -> Values | None:
    """What the fields of its providers cannot say, where no recipe and no AutoBridge builds the model."""
    model = plan.case.model
    if is_automatic(model, plan.release) or recipe_of(plan.case, plan.release):
        return None
    features = inexpressible(model)
    return values_if(features, features="; nor ".join(features))


def _own_stages(plan: Planned) -> bool:
    automatic = is_hybrid(plan.case.model) and is_automatic(plan.case.model, plan.release)
    return automatic and plan.pp > 1 and not is_even(split_of(plan.case, plan.layout))


def _tower(plan: Planned) -> Values | None:
    """What a tower is not trained with."""
    if plan.case.model.tower is None:
        return None
    against = [
        word for word, found in (
            ("context parallelism", plan.cp > 1), ("tuning, for which no data set of images is written here",
                                                   plan.case.training.task != "pretrain"),
            ("a chosen attention kernel", bool(plan.case.implementation.kernel)),
        ) if found
    ]
    return values_if(against, against=" nor ".join(against))


OWN = (
    Rule("tower", "{model} with its vision tower takes no {against}", _tower, "start", "model", ("main",)),
    Rule("model", "Megatron-Bridge {release} has no recipe, no AutoBridge and no field for {features}", _model, "never", "model"),
    Rule("world", "world size ({world}) is not divisible by total_model_size (model_cfg.tensor_model_parallel_size={tp} * "
         "model_cfg.pipeline_model_parallel_size={pp} * model_cfg.context_parallel_size={cp})", _world),
    Rule("sequence-parallel-alone", "Cannot use sequence parallelism without tensor parallelism",
         lambda plan: plan.sp and plan.tp == 1),
    Rule("context-sequence", "Sequence length must be divisible by 2 * context parallel size if context parallel is used.",
         lambda plan: plan.cp > 1 and plan.sequence % (2 * plan.cp)),
    Rule("parameter-overlap", "overlap_param_gather without overlap_grad_reduce: accepted in silence, although Megatron-LM's own "
         "flags refuse it", _parameter_overlap, "never"),
    Rule("packed-microbatch", "Micro batch size should be 1 when training with packed sequence, but your micro batch size is {mb}.",
         lambda plan: plan.mb > 1 and packs(plan.case, plan.release)),
    Rule("packed-delta", "GDN does not support packed sequence for now. (main does; this release has no recipe that pads)",
         lambda plan: _packs(plan) and packs_delta(plan), "step", "training", ("0.3",)),
    Rule("own-stages", "stages of {model} are alike: its class of Bridge places layers itself (mamba_hybrid_layer_allocation.py)",
         _own_stages, "never", releases=("main",)),
    Rule("hybrid-virtual", "Virtual pipeline model parallelism is temporarily unsupported in Hybrid models due to upstream MCore "
         "HybridModel API dependency", lambda plan: is_hybrid(plan.case.model) and plan.vp > 1, "start", releases=("main",)),
    Rule("precision", "Megatron-Bridge has no recipe for {precision}; it has {known}",
         lambda plan: values_if(plan.precision not in PRECISIONS, known=", ".join(PRECISIONS)), "never", "training"),
    Rule("device", "Megatron-Bridge runs on NVIDIA GPUs, not on {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu", "cdna3", "cdna4"}, "never", "cluster"),
)
REPLACED = frozenset(
    f"megatron.{name}" for name in (
        "task", "model", "device", "precision", "sequence", "parameter-overlap", "split", "flag", "packed-delta",
    )
)
"""Rules of Megatron-LM that have a form of Bridge's own here, or that only its flags have."""

LATER: dict[str, Noticed] = {
    "megatron.positions": "never", "megatron.tensor-overlap": "never", "megatron.interleaved-p2p": "never",
    "megatron.expert-count": "start",
}
"""Rules of which Megatron-LM's flags know, and Bridge's configuration does not: when they are noticed."""


@cache
def limits_of(release: str) -> tuple[Limit, ...]:
    """Every rule of a release, in the order in which they are reported."""
    below = (limit for limit in MEGATRON.at(CORES[release]).limits if limit.id not in REPLACED)
    later = LATER | ({"megatron.batch": "start"} if release == "0.3" else {})  # main divides the batch of its evaluation
    renamed = (structs.replace(limit, id=limit.id.replace("megatron.", "bridge.", 1), noticed=later.get(limit.id, limit.noticed))
               for limit in below)
    return (*limits("bridge", OWN, release=release), *renamed)
