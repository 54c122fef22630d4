"""ChatLearn as judge of its YAML, from a checkout (development only): DIRECTORY holds OmegaConf, the second argument the source.

Executed: the merge of the file into the structured ``GrpoConfig`` as ``entrypoint.py`` does it, and ``GrpoConfig.validate``.
The world is that of ``models.policy_trainer.num_gpu``; ``argv`` holds Hydra's ``key=value`` words. What Megatron-LM checks
afterwards is not asked here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import typing
from pathlib import Path

from serving import Case, Judge, bare_package, only_file, serve, stand_in, taken


def ready(directory: str) -> Judge:
    source = Path(sys.argv[2])
    sys.path[:0] = [str(source), directory]
    for name in ("chatlearn", "chatlearn.utils"):
        bare_package(name, source.joinpath(*name.split(".")))
    stand_in("megatron", "ray", "vllm", "sglang")
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *args: None if name == "vllm" else found(name, *args)  # its version would be read
    from chatlearn import configs
    from chatlearn.configs import fsdp_config, megatron_config
    from omegaconf import OmegaConf

    names = {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "fields": dataclasses.fields, "Any": typing.Any}
    for module in (configs, fsdp_config, megatron_config):
        names |= {key: value for key, value in vars(module).items() if isinstance(value, type)}
    names["__name__"] = "chatlearn.algorithm.grpo"
    bare_package(names["__name__"], source)
    grpo = source / "chatlearn" / "algorithm" / "grpo.py"
    taken(grpo, "GrpoModelConfig", names)
    config_class = taken(grpo, "GrpoConfig", names)

    def judge(case: Case) -> typing.Any:
        given = OmegaConf.load(only_file(case, ".yaml", ".yml"))
        for key, value in OmegaConf.from_dotlist(case.get("argv", [])).items():
            OmegaConf.update(given, key, value)
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config_class), given))
        config.validate()
        return config

    return judge


if __name__ == "__main__":
    serve(ready)
