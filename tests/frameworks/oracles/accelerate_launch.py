"""``accelerate launch`` as judge of its YAML, without launching; DIRECTORY holds the wheel.

The launcher's own parser and checks make the environment of the processes; there ``FullyShardedDataParallelPlugin`` and
``ParallelismConfig`` read it, as ``Accelerator()`` does. ``argv`` may hold flags of ``accelerate launch``.
"""

from __future__ import annotations

import os
import sys
import types
import typing
from unittest import mock

from serving import Case, Judge, only_file, plain, serve, stand_in


def ready(directory: str) -> Judge:
    sys.path.insert(0, directory)
    stand_in("psutil")
    import torch
    from accelerate.commands import launch
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.state import DistributedType
    from accelerate.utils import FullyShardedDataParallelPlugin, dataclasses
    from accelerate.utils import launch as environments

    dataclasses.is_cuda_available, torch.cuda.current_device = lambda *_: True, lambda: 0  # FSDP 1 asks for a device
    environments.is_port_in_use = lambda *_: False

    def judge(case: Case) -> typing.Any:
        name = ["--config_file", only_file(case, ".yaml", ".yml")] if case.get("files") else []
        args = launch.launch_command_parser().parse_args([*name, *case.get("argv", []), "train.py"])
        args, _, _ = launch._validate_launch_command(args)
        if args.use_deepspeed:
            args.deepspeed_fields_from_accelerate_config = ""  # launch_command fills it for the plugin
            _, said = environments.prepare_deepspeed_cmd_env(args)
        else:
            said = environments.prepare_multi_gpu_env(args)
        parsed: dict[str, typing.Any] = {"num_processes": args.num_processes, "num_machines": args.num_machines}
        with mock.patch.dict(os.environ, said):
            version = 1
            if args.use_fsdp:
                plugin = FullyShardedDataParallelPlugin()
                version = plugin.fsdp_version
                parsed["fsdp"] = {key: plain(value) for key, value in vars(plugin).items() if not key.startswith("_")}
            if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
                config = ParallelismConfig()
                kind = DistributedType.DEEPSPEED if args.use_deepspeed else DistributedType.FSDP
                config._validate_accelerator(
                    types.SimpleNamespace(
                        multi_device=case["world"] > 1 and not args.use_fsdp,
                        num_processes=case["world"],
                        is_fsdp2=version == 2,
                        distributed_type=kind,
                        is_main_process=False,
                    )
                )
                parsed["parallelism"] = dict(config._sizes)
        parsed["env"] = {key: value for key, value in said.items() if key.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_"))}
        return parsed

    return judge


if __name__ == "__main__":
    serve(ready)
