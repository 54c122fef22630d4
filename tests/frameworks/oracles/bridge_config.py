"""Megatron-Bridge as judge of a Python configuration, from a checkout (development only): the second argument.

``MESHWRIGHT_MEGATRON_BRIDGE_CORE`` names Megatron-LM (main) beside it. The case's ``*.py`` is executed; its ``ConfigContainer``, a
name at its top or what a function without arguments gives, is validated for the world. Executed: the dataclasses, the
provider's ``finalize``, ``ConfigContainer.validate`` and the layers of each stage; packages of models and data are stood in
for, so Python 3.11 serves.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
import typing
import warnings
from pathlib import Path

import torch
from serving import Case, Judge, bare_package, only_file, plain, serve, stand_in

BARE = ("", ".data", ".data.builders", ".data.sources", ".models", ".models.conversion", ".models.gpt", ".models.hybrid",
        ".models.megatron_mimo", ".peft", ".training", ".training.tokenizers", ".training.utils", ".utils")
NOT_NEEDED = ("triton", "omegaconf", "hydra", "datasets", "megatron.energon", "megatron.bridge.data.builders.energon",
              "megatron.bridge.training.pretrain", "megatron.bridge.training.gpt_step", "torchvision", "PIL")


def ready(_: str) -> Judge:
    source = Path(sys.argv[2], "src", "megatron", "bridge")
    sys.path.insert(0, os.environ["MESHWRIGHT_MEGATRON_BRIDGE_CORE"])
    warnings.simplefilter("ignore")
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    stand_in(*NOT_NEEDED)
    import megatron

    megatron.__path__.append(str(source.parent))
    for name in BARE:
        bare_package(f"megatron.bridge{name}", source.joinpath(*name.split(".")))
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.t5_provider import T5ModelProvider

    for provider in (GPTModelProvider, T5ModelProvider):
        setattr(sys.modules["megatron.bridge.models"], provider.__name__, provider)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)  # type: ignore[assignment]
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    from megatron.bridge.training.config import ConfigContainer
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    def judge(case: Case) -> typing.Any:
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"])})
        module = types.ModuleType("written")
        sys.modules["written"] = module
        name = only_file(case, ".py")
        exec(compile(Path(name).read_text(encoding="utf-8"), name, "exec", dont_inherit=True), module.__dict__)
        config = container(module, ConfigContainer)
        config.validate()
        model, chunks = config.model, config.model.virtual_pipeline_model_parallel_size
        stages = [
            [get_num_layers_to_build(model, vp_stage=chunk if chunks else None, pp_rank=rank) for chunk in range(chunks or 1)]
            for rank in range(model.pipeline_model_parallel_size)
        ]
        return {part: plain(getattr(config, part)) for part in ("model", "train", "ddp", "optimizer")} | {
            "data_parallel_size": config.data_parallel_size, "layers_of_stages": stages,
        }

    return judge


def container(module: types.ModuleType, kind: type) -> typing.Any:
    """The one configuration that a written file holds or makes."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == "written" or isinstance(value, kind)]
    for value in own:
        if isinstance(value, kind):
            return value
    for value in own:
        if inspect.isfunction(value) and not inspect.signature(value).parameters and value.__name__ != "main":
            made = value()
            if isinstance(made, kind):
                return made
    raise ValueError(f"the file makes no {kind.__name__}")


if __name__ == "__main__":
    serve(ready)
