"""What is wrong with the engine that generates, with where it stands, and with asynchronous training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at
from meshwright.frameworks.nemo_rl.asking import Asked, asks
from meshwright.frameworks.nemo_rl.keys import COLOCATED, ENGINE
from meshwright.frameworks.rules import Mistake

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values

_SETUP = "nemo_rl/algorithms/grpo.py setup"
_VLLM = "nemo_rl/models/generation/vllm/vllm_generation.py VllmGeneration.__init__"
RESOURCES = f"{COLOCATED}.resources"


def _runs_vllm(asked: Asked) -> bool:
    return asked.generates and asked.value("policy.generation.backend") == "vllm"


def _world(asked: Asked) -> Iterator[Values]:
    tp, pp = asked.count(f"{ENGINE}.tensor_parallel_size"), asked.count(f"{ENGINE}.pipeline_parallel_size", 1)
    world = asked.engine_devices
    if _runs_vllm(asked) and tp and pp and world and world % (tp * pp):
        yield at(asked.setting(f"{ENGINE}.tensor_parallel_size"), f"a divisor of {world}", world=world, size=tp * pp)


def _parallel(asked: Asked) -> Iterator[Values]:
    tp, pp, ep = (asked.count(f"{ENGINE}.{name}_parallel_size", 1) for name in ("tensor", "pipeline", "expert"))
    asynchronous = asked.value(f"{ENGINE}.async_engine")
    if not _runs_vllm(asked) or not (tp and pp and ep):
        return
    if pp > 1 and asynchronous is False:
        yield at(asked.setting(f"{ENGINE}.async_engine"), True, words="When pipeline_parallel_size > 1, async_engine must be set "
                 "to "
                 "True in the vLLM configuration.")
    if ep > 1 and ep % tp:
        yield at(asked.setting(f"{ENGINE}.expert_parallel_size"), f"a multiple of {tp}",
                 words="When EP > 1, EP must be a multiple of TP since vLLM's EP = DP * TP.")
    if ep > 1 and ep % tp == 0 and ep != tp and asynchronous is True:
        yield at(asked.setting(f"{ENGINE}.async_engine"), False,
                 words="vLLM async_engine has some issues when using DP inside vLLM. (NeMo-RL issue 1101)")


def _share(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{ENGINE}.gpu_memory_utilization")
    if _runs_vllm(asked) and setting is not None and isinstance(setting.value, (int, float)) and not (
        isinstance(setting.value, bool) or 0 < setting.value <= 1
    ):
        yield at(setting, 0.6)


def _fp8(asked: Asked) -> Iterator[Values]:
    if _runs_vllm(asked) and asked.value(f"{ENGINE}.precision") == "fp8" and (
        asked.value("loss_fn.use_importance_sampling_correction") is False
    ):
        yield at(asked.setting("loss_fn.use_importance_sampling_correction"), True)


def _separate(asked: Asked) -> Iterator[Values]:
    nodes, each = asked.cluster
    own, own_nodes = asked.value(f"{RESOURCES}.gpus_per_node"), asked.value(f"{RESOURCES}.num_nodes")
    if not asked.is_separate or not nodes or not each:
        return
    setting = asked.setting(f"{RESOURCES}.gpus_per_node", f"{COLOCATED}.enabled")
    on_nodes = asked.setting(f"{RESOURCES}.num_nodes", f"{COLOCATED}.enabled")
    is_count = isinstance(own, int) and own > 0
    if nodes == 1:
        if not is_count and not isinstance(own, str):
            yield at(setting, 1, words="policy.generation.colocated.resources.gpus_per_node must be explicitly set to a value > 0 "
                     "when "
                     f"policy_nodes = 1 and inference is non-colocated, but got {own}.")
        elif isinstance(own, int) and own >= each:
            yield at(setting, f"fewer than {each}", words=f"No enough GPUs for training, train_gpus_per_node:{each - own}")
        if isinstance(own_nodes, int) and own_nodes != 1:
            yield at(on_nodes, 1, words="policy.generation.colocated.resources.num_nodes must be 1 or set to null when "
                     "policy_nodes = 1 "
                     f"and inference is non-colocated, but got {own_nodes}.")
        return
    if own != each and (own is None or isinstance(own, int)):
        yield at(setting, each, words="policy.generation.colocated.resources.gpus_per_node must be explicitly set and equal to "
                 f"cluster.gpus_per_node when cluster.num_nodes > 1 and inference is non-colocated, but got "
                 f"inference_gpus_per_node={own}, "
                 f"cluster.gpus_per_node={each}.")
    if own_nodes is None or (isinstance(own_nodes, int) and own_nodes < 1):
        yield at(on_nodes, 1, words="policy.generation.colocated.resources.num_nodes must be > 0 when cluster.num_nodes > 1 and "
                 "inference is "
                 f"non-colocated, but got {own_nodes}.")
    elif isinstance(own_nodes, int) and own_nodes >= nodes:
        yield at(on_nodes, f"fewer than {nodes}", words="Non-colocated mode requires train_nodes > 0 and inference_nodes > 0, got "
                 f"train_nodes={nodes - own_nodes}, inference_nodes={own_nodes}")


def _asynchronous(asked: Asked) -> Iterator[Values]:
    if not asked.is_on("grpo.async_grpo.enabled") or asked.algorithm != "grpo":
        return
    if _runs_vllm(asked) and asked.value(f"{ENGINE}.async_engine") is False:
        yield at(asked.setting(f"{ENGINE}.async_engine"), True, words="Async GRPO requires Dynamo, Megatron, or an async vLLM or "
                 "TRT-LLM "
                 "generation engine. Set policy.generation.vllm_cfg.async_engine=true (vLLM)")
    if asked.value("loss_fn.use_importance_sampling_correction") is False:
        yield at(asked.setting("loss_fn.use_importance_sampling_correction"), True, words="Importance sampling correction must be "
                 "enabled "
                 "for async GRPO for good convergence due to off-policy samples!")


def _stale(asked: Asked) -> Iterator[Values]:
    age, key = asked.count("grpo.async_grpo.max_trajectory_age_steps"), "grpo.async_grpo.in_flight_weight_updates"
    if asked.is_on("grpo.async_grpo.enabled") and age and age > 1 and asked.value(key) is False:
        yield at(asked.setting(key), True)


def rollout_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    return (
        Mistake("rollout-world", "World size must be a multiple of model parallel size. Got world size {world} and model parallel "
                "size "
                "(TP * PP) {size}.", asks(section, _world), source=_VLLM),
        Mistake("rollout-parallel", "{words}", asks(section, _parallel), source=_VLLM),
        Mistake("rollout-memory", "gpu_memory_utilization {value} is a share of the whole GPU", asks(section, _share),
                source="vLLM gpu_memory_utilization"),
        Mistake("rollout-fp8", "Importance sampling must be enabled for vLLM FP8 generation for good convergence!",
                asks(section, _fp8), source=_SETUP),
        Mistake("separate-engine", "{words}", asks(section, _separate), source=_SETUP),
        Mistake("asynchronous", "{words}", asks(section, _asynchronous), source="nemo_rl/algorithms/grpo.py async_grpo_train"),
        Mistake("stale-weights", "In-flight weight updates must be enabled for async GRPO with max_trajectory_age_steps > 1: "
                "without "
                "them, having more gives no benefit", asks(section, _stale), "warning",
                "nemo_rl/algorithms/grpo.py async_grpo_train"),
    )
