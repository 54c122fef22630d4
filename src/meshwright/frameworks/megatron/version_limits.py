"""What some versions of Megatron-LM refuse and others accept, in their own words, and what a version has no flag for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.domain.layout import Selective
from meshwright.frameworks.base import Limit
from meshwright.frameworks.megatron.arguments import data_arguments, groups
from meshwright.frameworks.megatron.flags import surface
from meshwright.frameworks.megatron.limits import LIMITS
from meshwright.frameworks.megatron.pipeline import is_even, only_ends_differ, split_of
from meshwright.frameworks.rules import Predicate, attention_of, rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.megatron.flags import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLimit:
    """A rule of the versions before ``until``, a minor number."""

    until: int
    limit: Limit


OLD_LIMITS: list[OldLimit] = []


def limits_of(version: Version) -> tuple[Limit, ...]:
    """Every rule of a version, in the order in which they are reported."""
    old = tuple(old.limit for old in OLD_LIMITS if version.minor < old.until)
    return (*LIMITS, *old, _split_limit(version), _flag_limit(version))


def _split_limit(version: Version) -> Limit:
    """Versions before the layout string place the first and the last stage by their own counts, and nothing else."""

    def broken(case: Case, layout: Layout) -> Values | None:
        if version.minor >= 13 or layout.pipeline_parallel == 1:
            return None
        split = split_of(case, layout)
        return values_if(not is_even(split) and not only_ends_differ(split), version=version.name)

    return Limit(
        id="megatron.split", words="this split of layers needs a layout string, which Megatron-LM has from core 0.13 on; the "
                                   "target "
        "is {version}: only the first and the last stage may differ", noticed="never", broken=broken,
    )


def _flag_limit(version: Version) -> Limit:
    """Everything that is written must be among the flags of the version, and be one of their choices."""
    others = [*LIMITS, *(old.limit for old in OLD_LIMITS if version.minor < old.until), _split_limit(version)]

    def broken(case: Case, layout: Layout) -> Values | None:
        if any(limit.broken(case, layout) is not None for limit in others):
            return None  # what cannot be run at all is not written out
        for arguments in (*groups(case, layout, version).values(), data_arguments(case, layout, version)[1]):
            for flag in arguments.lacking():
                span = surface().span(flag)
                return {"flag": flag, "span": span, "version": version.name}
        return None

    return Limit(
        id="megatron.flag", words="{flag} exists in Megatron-LM {span}; the target is {version}", noticed="parse", broken=broken
    )


def _before(until: int, id: str, words: str) -> Callable[[Predicate], Predicate]:
    """A decorator that adds a rule of versions before ``until``."""

    def add(broken: Predicate) -> Predicate:
        into: list[Limit] = []
        rule(into, f"megatron.{id}", words)(broken)
        OLD_LIMITS.append(OldLimit(until=until, limit=into[0]))
        return broken

    return add


@_before(13, "fp8-blockwise", "argument --fp8-recipe: invalid choice: 'blockwise' (core 0.13 has it)")
def _blockwise(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name == "fp8-blockwise")


@_before(13, "bf16-moments", "argument --exp-avg-dtype: invalid choice: 'bf16' (core 0.13 has it)")
def _moments(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name == "adamw-bf16-moments")


@_before(14, "mtp-context", "Multi-Token Prediction (MTP) is not supported with Context Parallelism.")
def _mtp_context(case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.num_mtp_layers and layout.context_parallel > 1)


@_before(14, "mtp-layout", "MTP layer is not supported for flexible pipeline layout")
def _mtp_layout(case: Case, layout: Layout) -> Values | None:
    uneven = not is_even(split_of(case, layout))
    return values_if(case.model.num_mtp_layers and layout.pipeline_parallel > 1 and uneven)


@_before(14, "recompute-shared", "Invalid choices for recompute_modules: {{'shared_experts'}}")
def _recompute_shared(case: Case, layout: Layout) -> Values | None:
    return values_if("shared_experts" in _modules(layout))


@_before(14, "recompute-fp8", "moe_act and layernorm recompute cannot work with fp8.")
def _recompute_fp8(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.gemm_dtype == "fp8" and {"moe_act", "layernorm"} & set(_modules(layout)))


@_before(
    16,
    "copied-query-groups",
    "num_query_groups ({groups}) must be a multiple of tensor_model_parallel_size ({tp}).",
)
def _copied_query_groups(case: Case, layout: Layout) -> Values | None:
    groups, tp = attention_of(case).num_key_value_heads, layout.tensor_parallel
    return values_if(not attention_of(case).latent and groups % tp, groups=groups, tp=tp)


@_before(16, "muon-version", "argument --optimizer: invalid choice: 'muon' (core 0.16 has it)")
def _muon(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name == "muon")


@_before(16, "grouped-gemm-dtype", "moe_act in recompute_modules is only supported with moe_grouped_gemm, which only "
         "supports bf16 dtype.")
def _grouped_gemm(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.base_dtype != "bf16" and "moe_act" in _modules(layout))


@_before(16, "expert-fp16", "Expert parallelism is not supported with fp16 training.")
def _expert_fp16(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.expert_parallel > 1 and case.training.precision.base_dtype == "fp16")


@_before(
    18,
    "expert-overlap-mtp-pipeline",
    "Pipeline model parallel size must be larger than 1 when enabling overlap_moe_expert_parallel_comm with MTP layer.",
)
def _expert_overlap_mtp(case: Case, layout: Layout) -> Values | None:
    overlap = layout.overlap.expert and layout.expert_parallel > 1
    return values_if(overlap and case.model.num_mtp_layers and layout.pipeline_parallel == 1)


@_before(
    18,
    "muon",
    "Muon optimizer does not support distributed optimizer, overlap grad reduce or overlap param gather for now.",
)
def _muon_sharding(case: Case, layout: Layout) -> Values | None:
    overlaps = layout.overlap.gradient_reduce and layout.data_parallel * layout.context_parallel > 1
    return values_if(case.training.optimizer.name == "muon" and (layout.zero_stage > 0 or overlaps))


def _modules(layout: Layout) -> tuple[str, ...]:
    """Modules of selective recomputation; none for any other kind."""
    return layout.recompute.modules if isinstance(layout.recompute, Selective) else ()
