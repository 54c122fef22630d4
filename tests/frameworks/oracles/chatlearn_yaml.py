"""ChatLearn as judge of its YAML, from a checkout (development only): DIRECTORY holds OmegaConf, the second argument the source.

Executed: the merge of the file into the structured ``GrpoConfig`` as ``entrypoint.py`` does it, and ``GrpoConfig.validate``; where
a ``chatlearn.patch`` is among the files, ``git apply`` on a copy of the checkout first. The world is that of
``models.policy_trainer.num_gpu``; ``argv`` holds Hydra's ``key=value`` words. What Megatron-LM checks afterwards is not asked here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import typing
from pathlib import Path

from serving import Case, Judge, bare_package, only_file, serve, stand_in, taken

PATCH = "chatlearn.patch"


def ready(directory: str) -> Judge:
    source = Path(sys.argv[2])
    sys.path[:0] = [directory]
    stand_in("megatron", "ray", "vllm", "sglang")
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *args: None if name == "vllm" else found(name, *args)  # its version would be read
    from omegaconf import OmegaConf

    @functools.cache
    def config_class(patch: str) -> typing.Any:
        """``GrpoConfig`` of the checkout as a patch leaves it."""
        if not patch:
            return _config_class(source)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source / "chatlearn", Path(folder, "chatlearn"))
            subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, text=True, check=True)
            return _config_class(Path(folder))

    def judge(case: Case) -> typing.Any:
        given = OmegaConf.load(only_file(case, ".yaml", ".yml"))
        for key, value in OmegaConf.from_dotlist(case.get("argv", [])).items():
            OmegaConf.update(given, key, value)
        into = OmegaConf.structured(config_class(case["files"].get(PATCH, "")))
        config = OmegaConf.to_object(OmegaConf.merge(into, given))
        config.validate()
        return config

    return judge


def _config_class(source: Path) -> typing.Any:
    """``GrpoConfig`` from the files of a checkout, imported anew."""
    for name in [each for each in sys.modules if each.split(".")[0] == "chatlearn"]:
        del sys.modules[name]
    for name in ("chatlearn", "chatlearn.utils"):
        bare_package(name, source.joinpath(*name.split(".")))
    from chatlearn import configs
    from chatlearn.configs import fsdp_config, megatron_config

    names = {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "fields": dataclasses.fields, "Any": typing.Any}
    for module in (configs, fsdp_config, megatron_config):
        names |= {key: value for key, value in vars(module).items() if isinstance(value, type)}
    names["__name__"] = "chatlearn.algorithm.grpo"
    bare_package(names["__name__"], source)
    grpo = source / "chatlearn" / "algorithm" / "grpo.py"
    taken(grpo, "GrpoModelConfig", names)
    return taken(grpo, "GrpoConfig", names)


if __name__ == "__main__":
    serve(ready)
