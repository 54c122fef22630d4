"""What is wrong with the rollout engine of verl's files, and with where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.rules import Mistake
from meshwright.frameworks.verl.asking import MINI, PROMPTS, Asked
from meshwright.frameworks.verl.batch_mistakes import asks
from meshwright.frameworks.verl.keys import ROLLOUT

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values

_CONFIG = "verl/workers/config/rollout.py RolloutConfig.__post_init__"
DEFAULT_TENSOR = 2


def _separate(asked: Asked) -> bool:
    return asked.reading.source.value("trainer.v1.trainer_mode") == "separate_async"


def _ranks(asked: Asked) -> tuple[int | None, int | None, int | None]:
    tp = asked.count(f"{ROLLOUT}.tensor_model_parallel_size", DEFAULT_TENSOR)
    return tp, asked.count(f"{ROLLOUT}.data_parallel_size", 1), asked.count(f"{ROLLOUT}.pipeline_model_parallel_size", 1)


def _world(asked: Asked) -> Iterator[Values]:
    tp, dp, pp = _ranks(asked)
    if tp and dp and pp and asked.world and not _separate(asked) and asked.world % (tp * dp * pp):
        size = tp * dp * pp
        yield at(asked.setting(f"{ROLLOUT}.tensor_model_parallel_size"), f"a divisor of {asked.world}", world=asked.world,
                 size=size, value=tp, default=" (the default of tensor_model_parallel_size is 2)" if size == DEFAULT_TENSOR else "")


def _experts(asked: Asked) -> Iterator[Values]:
    tp, dp, _ = _ranks(asked)
    ep = asked.count(f"{ROLLOUT}.expert_parallel_size", 1)
    if asked.reading.source.value(f"{ROLLOUT}.name") != "trtllm" and tp and dp and ep and ep > 1 and ep != tp * dp:
        yield at(asked.setting(f"{ROLLOUT}.expert_parallel_size"), tp * dp)


def _expert_tensor(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{ROLLOUT}.moe_tensor_parallel_size")
    if setting is not None and isinstance(setting.value, int) and setting.value > 1 and (
        asked.reading.source.value(f"{ROLLOUT}.name") != "trtllm"
    ):
        yield at(setting, 1)


def _pipeline(asked: Asked) -> Iterator[Values]:
    _, _, pp = _ranks(asked)
    name = asked.reading.source.value(f"{ROLLOUT}.name")
    if pp and pp > 1 and name in {"vllm", "sglang", "trtllm"}:
        yield at(asked.setting(f"{ROLLOUT}.pipeline_model_parallel_size"), 1, name=name)


def _mode(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{ROLLOUT}.mode")
    if setting is not None and setting.value == "sync":
        yield at(setting, "async")


def _name(asked: Asked) -> Iterator[Values]:
    if asked.setting(f"{ROLLOUT}.name") is None and asked.reading.source.program:
        yield at(None, "vllm")


def _parameter_sync(asked: Asked) -> Iterator[Values]:
    prompts, mini, every = asked.prompts, asked.count(MINI), asked.count("trainer.v1.separate_async.parameter_sync_step", 4)
    if _separate(asked) and prompts and mini and every and prompts != mini * every:
        yield at(asked.setting(PROMPTS, MINI), mini * every, prompts=prompts, every=every, mini=mini)


def _separate_engine(asked: Asked) -> Iterator[Values]:
    if not _separate(asked):
        return
    if asked.count(f"{ROLLOUT}.nnodes", 0) in {None, 0}:
        yield at(asked.setting(f"{ROLLOUT}.nnodes"), 1, words="nnodes must be > 0 in separate async training")
    if asked.reading.source.value(f"{ROLLOUT}.checkpoint_engine.backend", "naive") == "naive":
        yield at(asked.setting(f"{ROLLOUT}.checkpoint_engine.backend"), "nccl",
                 words="please use nccl/nixl/mooncake, etc. backend for separate async training")


def _utilization(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{ROLLOUT}.gpu_memory_utilization")
    if setting is not None and isinstance(setting.value, (int, float)) and not isinstance(setting.value, bool) and not (
        0 < setting.value <= 1
    ):
        yield at(setting, 0.5)


def _awake(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{ROLLOUT}.free_cache_engine")
    if setting is not None and setting.value is False and not _separate(asked):
        share = asked.reading.source.value(f"{ROLLOUT}.gpu_memory_utilization", 0.5)
        yield at(setting, True, share=share)


def rollout_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    return (
        Mistake("rollout-world", "rollout world_size: {world} is not divisible by infer_world_size: {size}{default}",
                asks(section, _world), source="verl/workers/engine_workers.py; verl issue 1191"),
        Mistake("rollout-experts", "expert_parallel_size must be equal to tensor_model_parallel_size * data_parallel_size",
                asks(section, _experts), source=_CONFIG),
        Mistake("rollout-expert-tensor", "moe_tensor_parallel_size is only supported for trtllm", asks(section, _expert_tensor),
                source=_CONFIG),
        Mistake("rollout-pipeline", "Current rollout self.name='{name}' not implemented pipeline_model_parallel_size > 1 yet.",
                asks(section, _pipeline), source=_CONFIG),
        Mistake("rollout-mode", "Rollout mode 'sync' has been removed. Please set `actor_rollout_ref.rollout.mode=async` or remove "
                "the mode setting entirely.", asks(section, _mode), source=_CONFIG),
        Mistake("rollout-name", "Missing mandatory value: actor_rollout_ref.rollout.name", asks(section, _name),
                source="verl/trainer/config/rollout/rollout.yaml"),
        Mistake("parameter-sync", "train_batch_size must equal parameter_sync_step * ppo_mini_batch_size in separate async "
                "training, but got train_batch_size={prompts}, parameter_sync_step={every}, ppo_mini_batch_size={mini}",
                asks(section, _parameter_sync), releases=("0.10",), source="verl/trainer/ppo/v1/trainer_separate_async.py"),
        Mistake("separate-engine", "{words}", asks(section, _separate_engine), releases=("0.10",),
                source="verl/trainer/ppo/v1/trainer_separate_async.py"),
        Mistake("rollout-memory", "gpu_memory_utilization {value} is a share of the whole GPU", asks(section, _utilization),
                source="vLLM gpu_memory_utilization; verl/workers/rollout"),
        Mistake("rollout-awake", "free_cache_engine: false keeps {share:.0%} of each GPU for the rollout engine while the policy "
                "is trained: the rest must hold the trainer", asks(section, _awake), "warning",
                "verl/workers/rollout/vllm_rollout/vllm_async_server.py"),
    )
