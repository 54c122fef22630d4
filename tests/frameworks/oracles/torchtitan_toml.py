"""torchtitan 0.2.2 as judge: a TOML file (or flags), ``ParallelDims`` and the pipeline split; DIRECTORY holds the wheel.

``checks``: ``num_layers`` (for the split of a pipeline).
"""

from __future__ import annotations

import sys
import types
import typing

from serving import Case, Judge, insist, serve, stand_in


class SplitError(Exception):
    """Carries the split out of ``pipeline_llm`` before a model is cut."""


def split(*args: typing.Any, **_: typing.Any) -> None:
    """Stands for the cutting of a model: its fifth argument names the modules of each stage."""
    raise SplitError(args[4])


def without_help() -> None:
    """Help texts, for which tyro reads the source of every class again in each case, are not judged."""
    import tyro

    tyro._docstrings.get_field_docstring = lambda *_: None


def ready(directory: str) -> Judge:
    sys.path.insert(0, directory)
    stand_in(
        "datasets", "torchdata", "torch.utils.tensorboard", "torchtitan.components.quantization", "torchtitan.models.moe.kernels"
    )
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims, pipeline_parallel

    pipeline_parallel.pipeline_module_split = split
    without_help()
    manager = ConfigManager()  # one: each adds its rules to one registry, and every rule is tried on every field

    def judge(case: Case) -> typing.Any:
        config = manager.parse_args(arguments(case))
        degrees, training = config.parallelism, config.training
        dims = ParallelDims(
            dp_shard=degrees.data_parallel_shard_degree, dp_replicate=degrees.data_parallel_replicate_degree,
            cp=degrees.context_parallel_degree, tp=degrees.tensor_parallel_degree, pp=degrees.pipeline_parallel_degree,
            ep=degrees.expert_parallel_degree, etp=degrees.expert_tensor_parallel_degree, world_size=case["world"],
        )
        parts = pipeline(pipeline_parallel, config, dims, case) if dims.pp > 1 else None
        # torchtitan/models/*/infra/parallelize.py
        insist(
            training.seq_len % dims.seq_len_divisor == 0,
            f"Sequence length {training.seq_len} must be divisible by the product of TP degree "
            f"({dims.tp}) and 2 * CP degree ({dims.cp}).",
        )
        # torchtitan/train.py, Trainer.__init__: "verify batch sizes"
        replicas = dims.dp_replicate * dims.dp_shard
        step = training.local_batch_size * replicas
        batch = training.global_batch_size if training.global_batch_size >= 0 else step
        insist(
            batch > 0 and batch % step == 0,
            f"global batch size must be multiple of local batch size times data-parallel degree "
            f"({batch} % ({training.local_batch_size} * {replicas}) != 0)",
        )
        return {"config": config, "dp_shard": dims.dp_shard, "module_fqns": parts}

    return judge


def arguments(case: Case) -> list[str]:
    """The arguments, with the case's TOML where they do not name it."""
    given = list(case.get("argv", []))
    files = [name for name in case.get("files", {}) if name.endswith(".toml")]
    if files and not any(word.startswith("--job.config") for word in given):
        given = ["--job.config_file", files[0], *given]
    return given


def pipeline(module: typing.Any, config: typing.Any, dims: typing.Any, case: Case) -> list[list[str]]:
    """The framework's own split of the layers, then its own check of the schedule's micro-batches."""
    layers = case.get("checks", {}).get("num_layers")
    parts: list[list[str]] = []
    asked = types.SimpleNamespace(pp=dims.pp, get_mesh=lambda _: None)
    if layers is not None:
        try:
            module.pipeline_llm(None, asked, config, None, types.SimpleNamespace(n_layers=layers), None, None)
        except SplitError as found:
            parts = found.args[0]
        # torchtitan/distributed/pipeline_parallel.py, pipeline_module_split
        insist(len(parts) % dims.pp == 0, f"num_stages {len(parts)} must be evenly divisible by pp_degree {dims.pp}")
        folded = config.parallelism.pipeline_parallel_schedule in {"ZBVZeroBubble", "DualPipeV"}
        held = len(parts) // dims.pp
        insist(not folded or held == 2, f"v schedules assume 2 stages per rank, got {held}")
    module.build_pipeline_schedule(config, stages(config.parallelism, parts, dims.pp), lambda *_: None)
    return parts


def stages(parallelism: typing.Any, parts: list[list[str]], ranks: int) -> list[typing.Any]:
    """Stand-ins for the stages of the first rank; without a split as many as the schedule has by default."""
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    single = issubclass(get_schedule_class(parallelism.pipeline_parallel_schedule), PipelineScheduleSingle)
    here = len(parts) // ranks or (1 if single else 2)
    return [stage(index * ranks, here * ranks, ranks) for index in range(here)]


def stage(index: int, stages: int, ranks: int) -> typing.Any:
    """What a schedule of torch reads of a stage when it is built."""
    return types.SimpleNamespace(
        is_first=index == 0, is_last=index == stages - 1, num_stages=stages, stage_index=index, group_rank=0,
        group_size=ranks, has_backward=False, group=None, device="cpu", submod=None,
        stage_index_to_group_rank={number: number % ranks for number in range(stages)},
    )


if __name__ == "__main__":
    serve(ready)
