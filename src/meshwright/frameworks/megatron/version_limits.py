"""What some versions of Megatron-LM refuse and others accept, in their own words, and what a version has no flag for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.mixers import GatedDelta
from meshwright.frameworks.megatron.arguments import ORDER, data_arguments, groups_of_case, groups_of_layout
from meshwright.frameworks.megatron.flags import RELEASES, parse_version, surface
from meshwright.frameworks.megatron.hybrid import is_hybrid
from meshwright.frameworks.megatron.hybrid_limits import OLD_HYBRIDS
from meshwright.frameworks.megatron.limits import RULES, expert_overlap
from meshwright.frameworks.megatron.pipeline import is_even, only_ends_differ, split_of
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.megatron.flags import Version
    from meshwright.frameworks.planned import Planned


def _before(release: str) -> tuple[str, ...]:
    """The releases before one."""
    return RELEASES[: RELEASES.index(release)]


def _mtp_layout(plan: Planned) -> bool:
    model = plan.case.model
    return model.num_mtp_layers > 0 and plan.pp > 1 and not is_hybrid(model) and not is_even(split_of(plan.case, plan.layout))


def _muon_sharding(plan: Planned) -> bool:
    overlaps = plan.layout.overlap.gradient_reduce and plan.ranks > 1
    return plan.optimizer == "muon" and (plan.zero > 0 or overlaps)


def _packs(plan: Planned) -> bool:
    """Whether sequences are packs of samples between which nothing passes: the user's lengths, and always in tuning."""
    return plan.task != "pretrain" or plan.case.batch.packing is not None


def packs_delta(plan: Planned) -> bool:
    """Samples packed for gated delta nets."""
    return _packs(plan) and any(isinstance(each, GatedDelta) for each in plan.case.model.mixers)


def _split(plan: Planned) -> Values | None:
    """Versions before the layout string place the first and the last stage by their own counts, and nothing else."""
    if plan.pp == 1 or plan.release not in _before("0.13") or is_hybrid(plan.case.model):
        return None
    split = split_of(plan.case, plan.layout)
    return values_if(not is_even(split) and not only_ends_differ(split), version=plan.release)


OLD = (
    *OLD_HYBRIDS,
    Rule("fp8-blockwise", "argument --fp8-recipe: invalid choice: 'blockwise' (core 0.13 has it)",
         lambda plan: plan.precision == "fp8-blockwise", releases=_before("0.13")),
    Rule("bf16-moments", "argument --exp-avg-dtype: invalid choice: 'bf16' (core 0.13 has it)",
         lambda plan: plan.optimizer == "adamw-bf16-moments", releases=_before("0.13")),
    Rule("mtp-context", "Multi-Token Prediction (MTP) is not supported with Context Parallelism.",
         lambda plan: plan.case.model.num_mtp_layers and plan.cp > 1, releases=_before("0.14")),
    Rule("mtp-shared", "unrecognized arguments: --mtp-use-repeated-layer (core 0.17 has it)",
         lambda plan: plan.case.model.shares_mtp and not is_hybrid(plan.case.model), "parse", "model", _before("0.17")),
    Rule("mtp-layout", "MTP layer is not supported for flexible pipeline layout", _mtp_layout, releases=_before("0.14")),
    Rule("recompute-shared", "Invalid choices for recompute_modules: {{'shared_experts'}}",
         lambda plan: "shared_experts" in plan.modules, releases=_before("0.14")),
    Rule("recompute-fp8", "moe_act and layernorm recompute cannot work with fp8.",
         lambda plan: plan.case.training.precision.gemm_dtype == "fp8" and {"moe_act", "layernorm"} & plan.modules,
         releases=_before("0.14")),
    Rule("copied-query-groups", "num_query_groups ({groups}) must be a multiple of tensor_model_parallel_size ({tp}).",
         lambda plan: not plan.attention.latent and plan.groups % plan.tp, releases=_before("0.16")),
    Rule("muon-version", "argument --optimizer: invalid choice: 'muon' (core 0.16 has it)", lambda plan: plan.optimizer == "muon",
         releases=_before("0.16")),
    Rule("grouped-gemm-dtype", "moe_act in recompute_modules is only supported with moe_grouped_gemm, which only supports bf16 "
         "dtype.", lambda plan: plan.case.training.precision.base_dtype != "bf16" and "moe_act" in plan.modules,
         releases=_before("0.16")),
    Rule("expert-fp16", "Expert parallelism is not supported with fp16 training.",
         lambda plan: plan.ep > 1 and plan.case.training.precision.base_dtype == "fp16", releases=_before("0.16")),
    Rule("expert-overlap-mtp-pipeline", "Pipeline model parallel size must be larger than 1 when enabling "
         "overlap_moe_expert_parallel_comm with MTP layer.",
         lambda plan: expert_overlap(plan) and plan.case.model.num_mtp_layers and plan.pp == 1, releases=_before("0.18")),
    Rule("packed-delta", "GDN does not support packed sequence for now. (core 0.18 does)",
         packs_delta, "step", "training", _before("0.18")),
    Rule("muon", "Muon optimizer does not support distributed optimizer, overlap grad reduce or overlap param gather for now.",
         _muon_sharding, releases=_before("0.18")),
)
"""Rules that later versions do not have."""
_SPLIT = Rule("split", "this split of layers needs a layout string, which Megatron-LM has from core 0.13 on; the target is "
              "{version}: only the first and the last stage may differ", _split, "never")


def limits_of(version: Version) -> tuple[Limit, ...]:
    """Every rule of a version, in the order in which they are reported."""
    known = limits("megatron", (*RULES, *OLD, _SPLIT), release=version.name)
    last: tuple[Case | None, Mapping[str, tuple[str, ...]]] = (None, {})

    def lacking_of_case(case: Case, target: Version) -> Mapping[str, tuple[str, ...]]:
        """Group -> flags of a case that its version lacks; hundreds of layouts of one case are asked about."""
        nonlocal last
        known, lacking = last
        if known is not case:
            lacking = {name: each.lacking() for name, each in groups_of_case(case, target).items()}
            last = (case, lacking)
        return lacking

    def flag(plan: Planned) -> Values | None:
        """Everything that is written must be among the flags of the version, and be one of their choices."""
        if any(limit.broken(plan.case, plan.layout) is not None for limit in known):
            return None  # what cannot be run at all is not written out
        case, target = plan.case, parse_version(plan.release)
        own = {name: each.lacking() for name, each in groups_of_layout(case, plan.layout, target).items()}
        lacking = {**lacking_of_case(case, target), **own}
        absent = next((flag for name in ORDER for flag in lacking[name]), None)
        absent = absent or next(iter(data_arguments(case, plan.layout, target)[1].lacking()), None)
        return None if absent is None else {"flag": absent, "span": surface().span(absent), "version": plan.release}

    words = "{flag} exists in Megatron-LM {span}; the target is {version}"
    return (*known, *limits("megatron", (Rule("flag", words, flag),), release=version.name))
