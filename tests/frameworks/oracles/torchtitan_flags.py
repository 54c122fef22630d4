"""torchtitan 0.3.0 as judge of its flags; DIRECTORY holds the wheel.

``argv`` names ``--module`` and ``--config`` of the registry and overrides it. Executed: ``ConfigManager.parse_args`` (with the
registry's function and the checks of ``Trainer.Config``), ``ParallelDims`` and the pipeline split. ``checks``: ``num_layers``
(default: those of the registry's model). A module among ``files`` can be imported.
"""

from __future__ import annotations

import importlib
import sys
import types
import typing

from serving import Case, Judge, insist, plain, serve, stand_in
from torchtitan_toml import SplitError, split, stages, without_help


def ready(directory: str) -> Judge:
    sys.path.insert(0, directory)
    stand_in(
        "datasets", "wandb", "PIL", "torchvision", "torchdata", "tensorboard", "torch.utils.tensorboard", "grain", "triton",
        "etils", "torch_checkpointing", "array_record", "cloudpickle", "absl", "einops",
    )
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims, pipeline_parallel

    pipeline_parallel._pipeline_module_split = split
    without_help()
    manager = ConfigManager()  # one: each adds its rules to one registry, and every rule is tried on every field
    sys.path.insert(0, "")

    def judge(case: Case) -> typing.Any:
        for name in case.get("files", {}):  # a module beside the script, named by --module
            sys.modules.pop(name.removesuffix(".py"), None)
        importlib.invalidate_caches()
        config = manager.parse_args(list(case.get("argv", [])))
        training = config.training
        dims = ParallelDims.from_config(config.parallelism, case["world"])
        # torchtitan/trainer.py, Trainer.__init__
        divisor = (dims.tp if config.parallelism.enable_sequence_parallel else 1) * (2 * dims.cp if dims.cp > 1 else 1)
        insist(
            training.seq_len % divisor == 0,
            f"Training sequence length ({training.seq_len}) must be divisible by {divisor} for the configured "
            f"sequence/context parallelism.",
        )
        # the same: "verify batch sizes"
        replicas = dims.dp_replicate * dims.dp_shard
        step = training.local_batch_size * replicas
        batch = training.global_batch_size if training.global_batch_size >= 0 else step
        insist(
            batch > 0 and batch % step == 0,
            f"global batch size must be multiple of local batch size times data-parallel degree "
            f"({batch} % ({training.local_batch_size} * {replicas}) != 0)",
        )
        parts = pipeline(pipeline_parallel, config, dims, case) if dims.pp > 1 else None
        return {
            "parallelism": plain(config.parallelism), "training": plain(training), "dp_shard": dims.dp_shard,
            "activation_checkpoint": type(config.activation_checkpoint).__qualname__, "module_fqns": parts,
            "compile": plain(config.compile),
        }

    return judge


def pipeline(module: typing.Any, config: typing.Any, dims: typing.Any, case: Case) -> list[list[str]]:
    """The framework's own split of the layers over the stages."""
    layers = case.get("checks", {}).get("num_layers") or len(config.model_spec.model.layers)
    asked = types.SimpleNamespace(pp=dims.pp, get_mesh=lambda *_: None)
    try:
        module.pipeline_llm(
            None, parallel_dims=asked, training=config.training, parallelism=config.parallelism, compile_config=config.compile,
            ac_config=config.activation_checkpoint, dump_folder="", device=None, parallelize_fn=None, loss_fn=None,
            model_config=types.SimpleNamespace(layers=[None] * layers),
        )
    except SplitError as found:
        parts: list[list[str]] = found.args[0]
    module._get_pp_rank_to_stage_indices_mapping(0, dims.pp, config.parallelism.pipeline_parallel_schedule, len(parts))
    module._build_pipeline_schedule(
        parallelism=config.parallelism, local_batch_size=config.training.local_batch_size,
        stages=stages(config.parallelism, parts, dims.pp), loss_fn=lambda *_: None,
    )
    return parts


if __name__ == "__main__":
    serve(ready)
