"""verl: a line a step of reinforcement learning with all its metrics, and before them the dump of the configuration.

The seconds of a phase stand under ``timing_s/`` (of old releases under ``timing/``); ``perf/mfu/actor`` is that of the actor's
update alone. Names with another slash are of single requests inside a phase.
"""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, settings_said, world_by_rates
from meshwright.readers.pairs import number
from meshwright.units import GIB

_STEP = re.compile(r"\bstep:(\d{1,12}) - |\btraining/global_step:(\d{1,12})\b")
_TIMED = re.compile(r"\btiming(_s)?/step:")
_METRIC = re.compile(r"([A-Za-z][\w/@.\-]{0,120}):(?:np\.\w{1,12}\()?([-+.\w]{1,40})")
_TIMER = re.compile(r"timing(?:_s)?/([^/]+)")
_BY = (b"timing_s/step:", b"timing/step:")
_SAID = (
    "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.actor.ppo_epochs", "data.train_batch_size",
    "actor_rollout_ref.rollout.gpu_memory_utilization", "actor_rollout_ref.rollout.free_cache_engine",
)
"""Of the configuration; of those that several models have the actor's stands first."""


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.whole
    settings_said(draft, text, _SAID)
    if _TIMED.search(text) is None or (step := _STEP.search(text)) is None:
        return
    said = {name: value for name, shown in _METRIC.findall(text) if (value := number(shown)) is not None}
    timers = {timer[1]: value for name, value in said.items() if (timer := _TIMER.fullmatch(name)) is not None}
    memory, host, mfu = (said.get(f"perf/{name}") for name in ("max_memory_reserved_gb", "cpu_memory_used_gb", "mfu/actor"))
    if mfu is not None and mfu > 1:
        draft.note("The log counts more work for the actor's update than its devices can do (perf/mfu/actor above 1): left out.")
    draft.step(
        int(step[1] or step[2]), hit.line.number, at_s=at_s(text), step_s=timers.pop("step", None), loss=said.get("actor/pg_loss"),
        tokens=said.get("perf/total_num_tokens"), tokens_per_s_per_device=said.get("perf/throughput"), actor_mfu_ratio=mfu,
        memory_bytes=None if memory is None else memory * GIB, host_bytes=None if host is None else host * GIB,
        response_mean_tokens=said.get("response_length/mean"), response_most_tokens=said.get("response_length/max"),
        prompt_mean_tokens=said.get("prompt_length/mean"),
    )
    for name, seconds in timers.items():
        draft.timer(name, seconds, seconds, hit.line.number)


DIALECT = Dialect(
    name="verl_log", says="logs of verl", framework="verl", take=_take, finish=world_by_rates, tells=_TIMED, by=_BY,
    seeks=(*_BY, *(f"'{key.rpartition('.')[2]}'".encode() for key in _SAID)),
)
FORMAT = DIALECT.format
