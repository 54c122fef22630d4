"""MindFormers 2.1.0 PyNative as judge of a YAML file, without MindSpore; DIRECTORY holds the wheel.

Executed from the framework: ``TrainConfig.from_dict``, the trainer's ``_compute_data_parallel_size``, ``ParallelDims``, the
dense shard size, the layers of the pipeline stages and the choice of the schedule. ``checks``: ``num_layers`` (default:
``model.num_hidden_layers`` or ``model.num_layers`` of the YAML).
"""

from __future__ import annotations

import contextlib
import sys
import types
import typing
from pathlib import Path
from unittest import mock

import yaml
from serving import Case, Judge, bare_package, only_file, serve, stand_in, taken


def ready(directory: str) -> Judge:
    sys.path.insert(0, directory)
    package = Path(directory, "mindformers")
    stand_in("mindspore", "hyper_parallel", "mindformers.tools.check_rules", "mindformers.tools.logger")
    for name in ("", ".tools", ".pynative", ".pynative.distributed", ".pynative.trainer"):
        bare_package(f"mindformers{name}", package.joinpath(*name.split(".")))
    from mindformers.pynative.config import TrainConfig
    from mindformers.pynative.distributed import pipeline_parallel as pipeline
    from mindformers.pynative.distributed.parallel_dims import ParallelDims
    from mindformers.pynative.trainer.dynamic_batch import build_dynamic_scheduler

    degrees_of = taken(
        package / "pynative" / "trainer" / "trainer.py", "_compute_data_parallel_size",
        {"logger": pipeline.logger, "build_dynamic_scheduler": build_dynamic_scheduler},
    )

    def judge(case: Case) -> typing.Any:
        config = TrainConfig.from_dict(yaml.safe_load(Path(only_file(case, ".yaml", ".yml")).read_text(encoding="utf-8")))
        parallel = config.parallelism
        trainer = types.SimpleNamespace(
            config=config, world_size=case["world"], global_batch_size=config.training.global_batch_size,
            dynamic_batch_enabled=config.training.rampup_batch_size is not None, is_inference=False,
        )
        degrees_of(trainer)
        dims = ParallelDims.from_config(parallel, case["world"])
        if parallel.dense_fsdp_shard_size is not None:
            dims.get_mesh, dims._world_mesh = lambda *_: None, mock.MagicMock()  # past its checks only groups are made
            dims.get_fsdp_shard_mesh(parallel.dense_fsdp_shard_size)
        layers = case.get("checks", {}).get("num_layers") or layers_of(config.model)
        stages = None
        if parallel.pipeline_parallel > 1:
            stages = chunks(pipeline, parallel, layers, trainer.num_accumulation_steps) if layers else None
        return {"config": config.to_dict(), "num_accumulation_steps": trainer.num_accumulation_steps, "stages": stages}

    return judge


def layers_of(model: typing.Any) -> int | None:
    """The number of layers that the YAML gives, under either name."""
    for name in ("num_hidden_layers", "num_layers"):
        with contextlib.suppress(AttributeError):
            value = getattr(model, name)
            if isinstance(value, int):
                return value
    return None


def chunks(pipeline: typing.Any, parallel: typing.Any, layers: int, micro_batches: int) -> list[list[int]]:
    """First and last layer of each (virtual) stage, after the framework's checks of split and schedule."""
    setting = pipeline.PpLayerSetting(layers, parallel)
    pipeline._create_schedule(pipeline._infer_schedule_type(parallel), [], micro_batches, parallel)
    return [list(setting.get_layer_range(stage)) for stage in range(setting.num_virtual_stages)]


if __name__ == "__main__":
    serve(ready)
