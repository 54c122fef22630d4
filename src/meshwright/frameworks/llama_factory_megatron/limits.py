"""What LLaMA-Factory refuses of a plan for its Megatron-Bridge back end, and what Bridge below it does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.adapters import is_everywhere
from meshwright.frameworks.bridge.limits import limits_of as bridge_limits
from meshwright.frameworks.bridge.program import HALF_GRADIENTS
from meshwright.frameworks.llama_factory_megatron.reading import NAME
from meshwright.frameworks.llama_factory_megatron.writing import BELOW
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned


def _parallel(plan: Planned) -> Values | None:
    size = plan.tp * plan.pp * plan.cp * plan.ep
    return values_if(plan.world % size, size=size)


def _uneven(plan: Planned) -> bool:
    return plan.layout.stage_layers is not None or bool(plan.layers % (plan.pp * plan.vp))


def _gradients(plan: Planned) -> Values | None:
    """Bridge's recipe of the precision says it again after LLaMA-Factory's ``grad_reduce_in_fp32=True``."""
    wanted = "two bytes" if plan.precision in HALF_GRADIENTS else "fp32"
    return values_if((plan.gradients == "fp32") != (wanted == "fp32"), wanted=wanted)


_RULES = (
    Rule("parallel-size", "Total Megatron Bridge parallel size ({size}) must divide `world_size` ({world}).", _parallel),
    Rule("sequence-parallel-alone", "`sequence_parallel` requires `tensor_model_parallel_size` > 1.",
         lambda plan: plan.sp and plan.tp == 1),
    Rule("even-stages", "{layers} layers do not split evenly over {pp} stages x {vp} chunks, and weights are converted without a "
         "layout of stages", _uneven, "start"),
    Rule("optimizer", "the optimizer is always adam, not {optimizer}", lambda plan: plan.optimizer != "adamw", "never", "training"),
    Rule("gradients", "gradients are reduced in {wanted} with mixed_precision of {precision}, not in {gradients}", _gradients,
         "never", "training"),
    Rule("adapters", "adapters stand at all linear layers: a custom lora_target is not supported by Megatron Bridge",
         lambda plan: plan.case.training.lora is not None and not is_everywhere(plan.case.training.lora), "never", "training"),
    Rule("tower", "{model} with its vision tower is not written for this back end", lambda plan: plan.case.model.tower is not None,
         "never", "model"),
    Rule("packed-microbatch", "Micro batch size should be 1 when training with packed sequence, but your micro batch size is {mb}.",
         lambda plan: plan.case.batch.packing is not None and plan.task != "pretrain" and plan.mb > 1, "start"),
)
_REPLACED = frozenset({"bridge.sequence-parallel-alone", "bridge.packed-microbatch", "bridge.tower", "bridge.optimizer"})


@cache
def all_limits() -> tuple[Limit, ...]:
    """Every rule; what Bridge checks is noticed when the training starts, for the arguments are parsed before."""
    below = (
        structs.replace(limit, id=limit.id.replace("bridge.", f"{NAME}.", 1),
                        noticed="start" if limit.noticed == "parse" else limit.noticed)
        for limit in bridge_limits(BELOW) if limit.id not in _REPLACED
    )
    return (*limits(NAME, _RULES), *below)
