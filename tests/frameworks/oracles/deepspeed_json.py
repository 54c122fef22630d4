"""DeepSpeed's ``DeepSpeedConfig`` as judge of a JSON file; DIRECTORY holds the wheel.

``checks``: ``data_parallel`` ranks (default: world over autotp_size and sequence_parallel_size of the JSON).
"""

from __future__ import annotations

import os
import sys
import types
import typing
from pathlib import Path

from serving import Case, Judge, insist, only_file, serve, stand_in


def ready(directory: str) -> Judge:
    sys.path.insert(0, directory)
    os.environ.update({"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"})
    stand_in("einops", "ninja", "msgpack", "psutil", "cpuinfo")
    import hjson
    from deepspeed.runtime import config as module

    def judge(case: Case) -> typing.Any:
        name = only_file(case, ".json")
        given = hjson.loads(Path(name).read_text(encoding="utf-8"))
        world = case["world"]
        module.dist.get_rank = lambda *_: 0
        module.dist.get_world_size = lambda *_: world
        module.dist.is_initialized = lambda: True
        tensor, sequence = ranks(given, "tensor_parallel", "autotp_size"), ranks(given, "sequence_parallel_size")
        replicas = case.get("checks", {}).get("data_parallel") or world // (tensor * sequence)
        # deepspeed/utils/groups.py, _init_tp_groups_with_new_group; runtime/sequence_parallel/parallel_state_sp.py
        insist(world % tensor == 0, f"{world} is not divisible by {tensor}")
        insist(world % sequence == 0, f"world_size ({world}) is not divisible by sequence_parallel_size {sequence})")
        config = module.DeepSpeedConfig(name, mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: replicas))
        zero = config.zero_config
        return {
            "train_batch_size": config.train_batch_size,
            "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
            "gradient_accumulation_steps": config.gradient_accumulation_steps,
            "zero_optimization": zero.model_dump(mode="json"),
            "bf16": config.bfloat16_config.enabled, "fp16": config.float16_config.enabled,
            "autotp_size": tensor, "data_parallel": replicas,
        }

    return judge


def ranks(given: typing.Any, *path: str) -> int:
    """A degree of the JSON, 1 where it is not said or not a number: then the parser judges it."""
    for key in path:
        given = given.get(key) if isinstance(given, dict) else None
    return int(given) if str(given).isdecimal() and int(given) > 0 else 1


if __name__ == "__main__":
    serve(ready)
