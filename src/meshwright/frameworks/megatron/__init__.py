"""Megatron-LM: what each release can express, what it refuses, how its launch scripts are written, read and judged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from meshwright.domain.features import Features
from meshwright.errors import InputError
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import FUSED_LOSS, Facts
from meshwright.frameworks.megatron.dump import logged
from meshwright.frameworks.megatron.flags import DEFAULT_VERSION, RELEASES, parse_version, surface
from meshwright.frameworks.megatron.hybrid import PATTERNS
from meshwright.frameworks.megatron.layout_arguments import UNSPOKEN, decide, normal
from meshwright.frameworks.megatron.limits import MODULES
from meshwright.frameworks.megatron.mistakes import CHECKS, unknown_key
from meshwright.frameworks.megatron.narrowing import narrowed
from meshwright.frameworks.megatron.reading import detect, interpret
from meshwright.frameworks.megatron.script import write
from meshwright.frameworks.megatron.version_limits import limits_of
from meshwright.frameworks.programs import other_program
from meshwright.frameworks.resume import SHARDED, Meaning

__all__ = ["MEGATRON"]

_STAGES = frozenset({
    "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout",
    "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers", "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
})
_RECOMPUTE = frozenset({
    "--recompute-activations", "--recompute-granularity", "--recompute-method", "--recompute-num-layers", "--recompute-modules",
})
_SHARDS = frozenset({
    "--use-distributed-optimizer", "--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2",
    "--torch-fsdp2-no-reshard-after-forward", "--data-parallel-sharding-strategy", "--outer-dp-sharding-strategy",
})


def _release(text: str) -> str | None:
    """A release from what users write."""
    try:
        return parse_version(text).name
    except InputError:
        return None


@cache
def _variant(release: str) -> Framework:
    """Megatron-LM at a release."""
    version = parse_version(release)
    features = _features(version.minor)
    return replace(
        MEGATRON, version=release, features=features, limits=limits_of(version),
        narrowed=partial(narrowed, features, version.minor),
    )


def _features(minor: int) -> Features:
    """What a minor version can run."""
    modules = MODULES if minor >= 14 else tuple(module for module in MODULES if module != "shared_experts")
    return Features(
        name="megatron",
        attentions=("flash", "fused", "math"), dispatchers=("alltoall", "flex"),
        offloads=("offload_modules", "offload_layers") if minor >= 16 else (),
        instances_divide_experts=True,
        zero_stages=(0, 1, 2, 3) if minor >= 12 else (0, 1),  # 2 and 3: Megatron-FSDP, without pipeline stages
        context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
        selective_modules=modules if minor >= 12 else ("core_attn",),
        uneven_stages=minor >= 13,
        optimizer_offload=minor >= 12,
        offload_zero_stages=(1, 2, 3),
        overlaps=("grad", "param", "tp", "p2p", *(("ep",) if minor >= 14 else ())),
        tasks=("pretrain", "sft") if minor >= 13 else ("pretrain",),
        plain_optimizers=("muon",) if minor < 18 else (),
    )


MEGATRON = Framework(
    name="megatron",
    title="Megatron-LM",
    aliases=("megatron-lm", "megatron-core", "mcore"),
    implementation="megatron-te",
    version=DEFAULT_VERSION,
    releases=RELEASES,
    spellings=_release,
    variant=_variant,
    features=_features(parse_version(DEFAULT_VERSION).minor),
    narrowed=partial(narrowed, _features(parse_version(DEFAULT_VERSION).minor), parse_version(DEFAULT_VERSION).minor),
    limits=limits_of(parse_version(DEFAULT_VERSION)),
    writer=write,
    surface=surface,
    decide=decide,
    detect=detect,
    interpreter=interpret,
    logged=logged,
    checks=CHECKS,
    adds_keys=other_program,
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    alternatives=(_STAGES, _RECOMPUTE, _SHARDS, frozenset(PATTERNS)),
    resume={
        **SHARDED,
        "zero": Meaning(resume="reshard", reason="a torch_dist checkpoint is loaded into other shards; Megatron-FSDP has a format "
                                                 "of its own (fsdp_dtensor), which must be converted"),
    },
    facts=Facts(stages_inside_key="--use-tp-pp-dp-mapping", guides=("megatron",), remedies=(FUSED_LOSS,)),
)
