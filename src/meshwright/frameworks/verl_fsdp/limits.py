"""What verl's FSDP engine refuses of a case and a layout, in its own words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.divisibility import CONTEXT_MIXERS, context_mixers
from meshwright.frameworks.rules import Rule, limits, values_if, words_if
from meshwright.frameworks.verl.limits import SHARED

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned


def _knobs(plan: Planned) -> Values | None:
    has = [
        (plan.tp > 1, "tensor parallelism"), (plan.pp > 1, "pipeline stages"), (plan.ep * plan.etp > 1, "expert parallelism"),
        (plan.cp > 1 and plan.kind != "ulysses", f"{plan.kind} context parallelism"),
        (plan.layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (set(plan.layout.offload) - {"optimizer"}, "offload of anything but all states"),
    ]
    return words_if("knobs", has)


def _shards(plan: Planned) -> Values | None:
    optimizer, gradient, parameter = plan.shards
    alike = optimizer == gradient and parameter in {1, optimizer} and plan.ranks % optimizer == 0
    return values_if(not alike, groups=plan.shards)


def _heads(plan: Planned) -> Values | None:
    wrong = next((each.num_heads for each in plan.case.model.attentions if each.num_heads % plan.cp), None)
    return values_if(wrong, count=wrong)


def _key_value_heads(plan: Planned) -> Values | None:
    counts = (each.num_key_value_heads for each in plan.case.model.attentions if not each.latent)
    wrong = next((count for count in counts if count % plan.cp and plan.cp % count), None)
    return values_if(wrong, count=wrong)


RULES = (
    *SHARED,
    Rule("fsdp-zero", "FSDP shards gradients and optimizer (reshard_after_forward: false) or parameters, too, not zero{zero}",
         lambda plan: plan.zero < 2, "never"),
    Rule("knobs", "verl's FSDP engine has no key for {knobs}", _knobs, "never"),
    Rule("fsdp-size", "fsdp_size is one group for parameters, gradients and optimizer, which divides the {ranks} ranks, not "
         "{groups}", _shards, "never"),
    Rule("ulysses-heads", "num_attention_heads {count} must be divisible by ulysses_sp_size {cp}", _heads, "start"),
    Rule("ulysses-key-value-heads", "num_key_value_heads {count} must be divisible by ulysses_sp_size {cp}or vise versa. Upon "
         "ulysses_sp_size % num_key_value_heads == 0,kv heads are repeated to ensure correctness.", _key_value_heads, "start"),
    Rule("context-mixers", CONTEXT_MIXERS, context_mixers, "never"),
)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own = limits(features.name, RULES, release=release)
    return (*own, *arithmetic(features, skip=("task", "device", "shards", "zero-stage", "batch")))
