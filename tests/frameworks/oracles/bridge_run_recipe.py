"""Megatron-Bridge as judge of a launch: its own ``run_recipe`` up to the runtime configuration update, from a checkout.

The second argument names the checkout, ``MESHWRIGHT_MEGATRON_BRIDGE_CORE`` the Megatron-LM below it (the commit of its
submodule). Executed: the recipe or the written program, the overrides, ``pretrain`` or ``finetune`` with
``runtime_config_update``, and the layers of each stage. Nothing is fetched: a model of the hub has the shapes of ``checks``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import runpy
import sys
import types
import typing
import warnings
from pathlib import Path

import torch
from serving import Case, Judge, plain, serve, stand_in

ABSENT = ("triton", "apex", "datasets", "diffusers", "torchvision", "PIL", "einops", "webdataset", "nemo_run", "qwen_vl_utils",
          "megatron.energon", "torch.utils.tensorboard", "six", "tensorstore", "zarr", "wandb", "mlflow", "comet_ml", "decord",
          "cv2", "soundfile", "librosa", "peft", "multistorageclient", "sentencepiece", "tiktoken", "nltk", "fla", "mamba_ssm",
          "causal_conv1d", "deep_ep")
VERSIONS = {"transformer_engine": "2.12.0", "transformer_engine_torch": "2.12.0", "nvidia_resiliency_ext": "0.6.0",
            "modelopt": "0.40.0", "flash_attn": "2.8.0"}


class ReachedError(Exception):
    """The configuration is as it would be trained."""

    def __init__(self, config: typing.Any) -> None:
        super().__init__("reached")
        self.config = config


def ready(_: str) -> Judge:
    source = Path(sys.argv[2])
    scripts = [str(source / "scripts" / name) for name in ("training", "common")]
    sys.path[:0] = [os.environ["MESHWRIGHT_MEGATRON_BRIDGE_CORE"], *scripts]
    surroundings_of_a_gpu()
    import megatron

    megatron.__path__.append(str(source / "src" / "megatron"))
    from megatron.bridge.training import pretrain
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    def layers_of(transformer: typing.Any, rank: int, chunk: int | None) -> int:
        parallel_state.set_pipeline_model_parallel_rank(rank)
        parallel_state.set_pipeline_model_parallel_world_size(transformer.pipeline_model_parallel_size)
        parallel_state.set_virtual_pipeline_model_parallel_world_size(transformer.virtual_pipeline_model_parallel_size)
        return get_num_layers_to_build(transformer, vp_stage=chunk, pp_rank=rank)

    def reached(*args: typing.Any, **named: typing.Any) -> None:
        raise ReachedError((named.get("state") or args[0]).cfg)

    pretrain._pretrain = reached
    offer_shapes(shapes := {})

    def judge(case: Case) -> typing.Any:
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"])})
        shapes.clear()
        shapes.update(case["checks"])
        program = Path(case["program"])
        path = program if program.is_file() else source / program
        try:
            runpy.run_path(str(path), run_name="__main__")
        except ReachedError as found:
            return resolved(found.config, layers_of)
        raise ValueError(f"{program} never trains")

    return judge


def resolved(config: typing.Any, layers_of: typing.Callable[..., int]) -> dict[str, typing.Any]:
    """What would be trained, with the layers of each chunk of each stage."""
    transformer = getattr(config.model, "transformer", config.model)
    chunks = transformer.virtual_pipeline_model_parallel_size
    stages = [
        [layers_of(transformer, rank, chunk if chunks else None) for chunk in range(chunks or 1)]
        for rank in range(transformer.pipeline_model_parallel_size)
    ]
    parts = {part: plain(getattr(config, part)) for part in ("train", "ddp", "optimizer", "checkpoint", "dataset", "peft", "dist")}
    return parts | {
        "model": plain(config.model) | plain(transformer), "model_class": type(config.model).__name__,
        "data_parallel_size": config.data_parallel_size, "layers_of_stages": stages,
    }


def surroundings_of_a_gpu() -> None:
    """Packages that need a GPU, and the GPU, are stood in for."""
    warnings.simplefilter("ignore")
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    stand_in(*(name for name in ABSENT if importlib.util.find_spec(name.partition(".")[0]) is None or "." in name))
    for name, version in VERSIONS.items():
        stand_in(name, version=version)
    version_of = importlib.metadata.version
    told = {name.replace("_", "-"): version for name, version in VERSIONS.items()}
    importlib.metadata.version = lambda name: told.get(name.replace("_", "-")) or version_of(name)
    device = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3")
    torch.cuda.get_device_properties = lambda *_: device  # type: ignore[assignment]
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    torch.cuda.device_count = lambda: 8
    torch.cuda.is_available = lambda: True


def offer_shapes(shapes: dict[str, typing.Any]) -> None:
    """``config.json`` of any model of the hub is made of the case's shapes."""
    import transformers

    def from_pretrained(name: str, *_: typing.Any, **named: typing.Any) -> typing.Any:
        kind = shapes["model_type"]
        config = transformers.AutoConfig.for_model(kind, **{key: value for key, value in shapes.items() if key != "model_type"})
        config.name_or_path = str(name)
        return (config, {}) if named.get("return_unused_kwargs") else config

    transformers.AutoConfig.from_pretrained = from_pretrained
    transformers.PretrainedConfig.get_config_dict = classmethod(lambda cls, name, **_: (dict(shapes), {}))


if __name__ == "__main__":
    serve(ready)
