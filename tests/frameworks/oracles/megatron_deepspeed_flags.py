"""Megatron-DeepSpeed as judge of its flags, from a checkout (development only): the second argument.

Executed: ``parse_args`` and ``validate_args`` of ``megatron/arguments.py``. The JSON of ``--deepspeed_config`` is DeepSpeed's to
judge (oracle ``deepspeed-0.19.8`` with ``data_parallel`` of this verdict).
"""

from __future__ import annotations

import argparse
import os
import sys
import types
import typing
from pathlib import Path

import torch
from serving import Case, Judge, bare_package, insist, plain, serve, stand_in


def ready(_: str) -> Judge:
    source = Path(sys.argv[2])
    sys.path.insert(0, str(source))
    for name in ("megatron", "megatron.core", "megatron.core.transformer", "tools", "tools.retro"):
        bare_package(name, source.joinpath(*name.split(".")))
    stand_in("megatron.global_vars", "megatron.core.transformer.transformer_config", "tools.retro.utils", "deepspeed")
    sys.modules["megatron.core.transformer"].TransformerConfig = object  # type: ignore[attr-defined]
    import deepspeed

    deepspeed.__version__ = "0.19.8"
    deepspeed.add_config_arguments = deepspeed_arguments  # type: ignore[attr-defined]
    deepspeed.accelerator = types.SimpleNamespace(  # type: ignore[attr-defined]
        get_accelerator=lambda: types.SimpleNamespace(device_name=lambda: "cuda")
    )
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)  # type: ignore[assignment]
    from megatron import arguments

    def judge(case: Case) -> typing.Any:
        if "CUDA_DEVICE_MAX_CONNECTIONS" not in case.get("env", {}):
            os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"])})
        args = arguments.parse_args()
        arguments.validate_args(args, {})
        # deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__ (made unless --no-pipeline-parallel)
        insist(
            not args.deepspeed or args.no_pipeline_parallel or args.zero_stage < 2,
            "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
        )
        # megatron/microbatches.py, ConstantNumMicroBatches
        step = args.micro_batch_size * args.data_parallel_size
        insist(
            args.rampup_batch_size is not None or args.global_batch_size % step == 0,
            f"global batch size ({args.global_batch_size}) is not divisible by micro batch size ({args.micro_batch_size}) "
            f"times data parallel size ({args.data_parallel_size})",
        )
        return {name: plain(value) for name, value in vars(args).items()}

    return judge


def deepspeed_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The arguments that DeepSpeed adds (``deepspeed/__init__.py``, ``_add_core_arguments``)."""
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config", type=str)
    parser.add_argument("--deepscale", action="store_true")
    parser.add_argument("--deepscale_config", type=str)
    return parser


if __name__ == "__main__":
    serve(ready)
