"""What br_master refuses of a case and a layout, and what it takes although it is wrong."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.arithmetic import arithmetic
from meshwright.frameworks.ascend.environment import environment_checks
from meshwright.frameworks.asking import at, whole
from meshwright.frameworks.mindspeed_core_ms.flag_reading import as_flags
from meshwright.frameworks.mindspeed_core_ms.limits import WORDS, shared_limits
from meshwright.frameworks.rules import file_rule, rule, values_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Check, Limit, Values
    from meshwright.frameworks.settings import Reading, Severity


def limits(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of br_master."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.shard-context", "Can not find current rank in zero shard group or group rank id is -1", noticed="start")
    def _context(case: Case, layout: Layout) -> Values | None:
        partial_shards = 1 < layout.optimizer_shards < layout.data_parallel * layout.context_parallel
        return values_if(partial_shards and layout.context_parallel > 1)

    @add(
        f"{prefix}.shard-wrapper",
        "zero_shard_size acts only on the DDP wrapper: without the distributed optimizer it is ignored",
        noticed="never",
    )
    def _wrapper(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.zero_stage == 2 and layout.optimizer_shards < layout.data_parallel * layout.context_parallel)

    @add(f"{prefix}.overlap-param", "--overlap-grad-reduce should be turned on when using --overlap-param-gather")
    def _param(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.overlap.parameter_gather and layout.zero_stage in {1, 3} and not layout.overlap.gradient_reduce)

    @add(
        f"{prefix}.p2p",
        "when interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should be "
        "greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication batch",
    )
    def _p2p(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.virtual_stages > 1 and not layout.overlap.point_to_point and layout.pipeline_parallel <= 2)

    return (*shared_limits(prefix, title, features), *found, *arithmetic(prefix, WORDS))


def flag_checks(prefix: str) -> tuple[Check, ...]:
    """Checks of flags, with identifiers of one framework."""
    checks: list[Check] = []
    add = partial(file_rule, checks)

    @add(f"{prefix}.shard-size", "zero_shard_size {value} {fate}", source="mindspeed_ms/core/parallel_state.py of br_master")
    def _shards(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = as_flags(reading.source).settings.get("--zero_shard_size")
        size = whole(setting.value) if setting else None
        if setting is None or size is None:
            return
        dp = reading.layout.data_parallel if reading.layout else None
        if size <= 1:
            yield at(setting, dp, fate="should be greater than 1", value=size)
        elif dp and (size > dp or dp % size):
            yield {
                "value": size,
                "fate": f"is no divisor of data parallel {dp}: zero_shard_size will not take effect.",
                "expected": dp,
                "path": setting.place,
            }
        elif reading.layout and reading.layout.zero_stage in {0, 2}:
            yield at(setting, None, fate="splits nothing without --use-distributed-optimizer", value=size)

    @add(
        f"{prefix}.zero-level",
        "zero_level must be None or 'z3' when use_distributed_optimizer is ON",
        source="mindspeed_ms/training/arguments.py of br_master",
    )
    def _level(reading: Reading, case: Case | None) -> Iterator[Values]:
        source = as_flags(reading.source)
        setting = source.settings.get("--zero-level")
        if setting and setting.value not in (None, "z3") and source.value("--use-distributed-optimizer") is True:
            yield at(setting, "z3")

    @add(f"{prefix}.hybrid", "hybrid context parallelism is out of reach: the choice is spelt hybarid_cp_algo, the code "
                             "tests hybrid_cp_algo",
         source="mindspeed_ms/training/arguments.py of br_master")
    def _hybrid(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = as_flags(reading.source).settings.get("--context-parallel-algo")
        if setting and str(setting.value).startswith("hyb"):
            yield at(setting, "megatron_cp_algo")

    return (*checks, *environment_checks(prefix, mindspore=True))


def unknown_flag(key: str) -> tuple[Severity, str] | None:
    """argparse stops; YAML keys that nothing asks for are warned of."""
    return ("error", "unrecognized arguments: {key}") if key.startswith("-") else None
