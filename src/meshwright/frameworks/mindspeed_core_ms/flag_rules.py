"""What br_master refuses of a case and a layout, and what it takes although it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_mistakes
from meshwright.frameworks.asking import at, whole
from meshwright.frameworks.mindspeed_core_ms.flag_reading import as_flags
from meshwright.frameworks.mindspeed_core_ms.limits import shared_limits
from meshwright.frameworks.rules import Mistake, Rule, checks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Check, Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.settings import Reading, Severity


def _partly_sharded(plan: Planned) -> bool:
    """Whether optimizer states are cut over fewer than all ranks."""
    return plan.layout.optimizer_shards < plan.ranks


_OWN = (
    Rule("shard-context", "Can not find current rank in zero shard group or group rank id is -1",
         lambda plan: plan.layout.optimizer_shards > 1 and _partly_sharded(plan) and plan.cp > 1, "start"),
    Rule("shard-wrapper", "zero_shard_size acts only on the DDP wrapper: without the distributed optimizer it is ignored",
         lambda plan: plan.zero == 2 and _partly_sharded(plan), "never"),
    Rule("overlap-param", "--overlap-grad-reduce should be turned on when using --overlap-param-gather",
         lambda plan: plan.layout.overlap.parameter_gather and plan.zero in {1, 3} and not plan.layout.overlap.gradient_reduce),
    Rule("p2p", "when interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should "
         "be greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication batch",
         lambda plan: plan.vp > 1 and not plan.layout.overlap.point_to_point and plan.pp <= 2),
)


def limits_of(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of br_master."""
    return shared_limits(prefix, title, features, _OWN)


def _shard_size(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = as_flags(reading.source).settings.get("--zero_shard_size")
    size = whole(setting.value) if setting else None
    if setting is None or size is None:
        return
    dp = reading.layout.data_parallel if reading.layout else None
    if size <= 1:
        yield at(setting, dp, fate="should be greater than 1", value=size)
    elif dp and (size > dp or dp % size):
        fate = f"is no divisor of data parallel {dp}: zero_shard_size will not take effect."
        yield at(setting, dp, fate=fate, value=size)
    elif reading.layout and reading.layout.zero_stage in {0, 2}:
        yield at(setting, None, fate="splits nothing without --use-distributed-optimizer", value=size)


def _zero_level(reading: Reading, case: Case | None) -> Iterator[Values]:
    source = as_flags(reading.source)
    setting = source.settings.get("--zero-level")
    if setting and setting.value not in (None, "z3") and source.value("--use-distributed-optimizer") is True:
        yield at(setting, "z3")


def _hybrid(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = as_flags(reading.source).settings.get("--context-parallel-algo")
    if setting and str(setting.value).startswith("hyb"):
        yield at(setting, "megatron_cp_algo")


_ARGUMENTS = "mindspeed_ms/training/arguments.py of br_master"
_MISTAKES = (
    Mistake("shard-size", "zero_shard_size {value} {fate}", _shard_size, source="mindspeed_ms/core/parallel_state.py of br_master"),
    Mistake("zero-level", "zero_level must be None or 'z3' when use_distributed_optimizer is ON", _zero_level, source=_ARGUMENTS),
    Mistake("hybrid", "hybrid context parallelism is out of reach: the choice is spelt hybarid_cp_algo, the code tests "
            "hybrid_cp_algo", _hybrid, source=_ARGUMENTS),
    *environment_mistakes(mindspore=True),
)


def flag_checks(prefix: str) -> tuple[Check, ...]:
    """Checks of flags, with identifiers of one framework."""
    return checks(prefix, _MISTAKES)


def unknown_flag(key: str) -> tuple[Severity, str] | None:
    """argparse stops; YAML keys that nothing asks for are warned of."""
    return ("error", "unrecognized arguments: {key}") if key.startswith("-") else None
