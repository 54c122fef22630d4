"""What is written for a framework as a case of its oracle: one judge for every framework whose parser can be executed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bridge_cases
from deepspeed_family import judged as json_or_yaml
from deepspeed_family import judged_flags
from megatron_cases import arguments_of, environment_of
from oracles_run import Case, Verdict, commit_of, is_on_pypi, judge, missing, runner, source

from meshwright.documents.launch import parse_launch

if TYPE_CHECKING:
    from meshwright import domain
    from meshwright.frameworks import File

Written = tuple[Sequence["File"], "domain.case.Case", "domain.layout.Layout"]
"""Files with the plan that they were written for."""
CHATLEARN_BLANKS = [f"runtime_args.{name}=x" for name in ("data_path", "output_dir")] + [
    "models.policy.load=y", "models.policy_trainer.load=z",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A framework's own parser as a judge of files."""

    framework: str
    """Name with the release that is judged."""
    parser: str
    """What is executed, for people."""
    absent: Callable[[], str]
    """Why it cannot be asked, or the empty string."""
    verdicts: Callable[[Sequence[Written]], list[Verdict]]
    commit: Callable[[], str] | None = None
    """The commits that are asked, where verdicts on drawn plans are kept (``benchmarks/verdicts.py``); a wheel is asked live."""
    words: Callable[[Any, str], Sequence[str]] | None = None
    """Words behind those of a launch that may be mistakes."""


def text_of(files: Sequence[File], path: str) -> str:
    """The text of one file."""
    return next(file.text for file in files if file.path == path)


def chatlearn_case(written: Written) -> Case:
    """The YAML as it is written, and the patch that it needs."""
    files, _, layout = written
    needed = {file.path: file.text for file in files if file.path in {"grpo.yaml", "chatlearn.patch"}}
    return {"files": needed, "world": layout.world, "argv": CHATLEARN_BLANKS}


def picotron_case(written: Written) -> Case:
    """The JSON, with the shapes that picotron would fetch from the hub."""
    files, case, layout = written
    shapes = {"num_layers": case.model.num_layers, "hidden_size": case.model.hidden, "vocabulary": case.model.vocabulary}
    return {"files": {"config.json": text_of(files, "config.json")}, "world": layout.world, "checks": shapes}


def yaml_case(written: Written) -> Case:
    """The one configuration file."""
    files, _, layout = written
    return {"files": {"config.yaml": text_of(files, "config.yaml")}, "world": layout.world}


def json_or_yaml_case(written: Written) -> Case:
    """Everything that is no script and no README."""
    return json_or_yaml(written[0], written[2])


def factory_case(written: Written) -> Case:
    """The training YAML, with the JSON that it names."""
    files, _, layout = written
    needed = {file.path: file.text for file in files if file.path in {"train.yaml", "ds_config.json"}}
    return {"files": needed, "argv": ["train.yaml"], "world": layout.world}


def factory_bridge_case(written: Written) -> Case:
    """The training YAML for the Megatron back end."""
    files, _, layout = written
    return {"files": {"train.yaml": text_of(files, "train.yaml")}, "argv": ["train.yaml"], "world": layout.world,
            "env": {"USE_MEGATRON_BRIDGE": "1"}}


def flags_case(written: Written) -> Case:
    """The command line of Megatron-DeepSpeed."""
    return judged_flags(written[0], written[2])


def _by_oracle(name: str, ask: Callable[[Written], Case]) -> Callable[[Sequence[Written]], list[Verdict]]:
    return lambda many: judge(name, [ask(written) for written in many])


def _checkout(name: str) -> Callable[[], str]:
    """The commit that is asked, looked up when it is."""
    return lambda: f"commit {commit_of(source(name))}"


def _both(many: Sequence[Written]) -> list[Verdict]:
    """Megatron-DeepSpeed: its flags and the JSON beside them; the first refusal counts."""
    flags = judge("megatron-deepspeed", [flags_case(written) for written in many])
    documents = judge("deepspeed-0.19.8", [json_or_yaml_case(written) for written in many])
    return [document if one["accepted"] else one for one, document in zip(flags, documents, strict=True)]


def _factory(many: Sequence[Written]) -> list[Verdict]:
    """LLaMA-Factory: its YAML, and that of accelerate beside it; the first refusal counts."""
    own = judge("llama-factory", [factory_case(written) for written in many])
    beside = [{"files": {"accelerate_config.yaml": text_of(files, "accelerate_config.yaml")}, "world": layout.world}
              for files, _, layout in many]
    launched = judge("accelerate-1.14.0", beside)
    return [engine if one["accepted"] else one for one, engine in zip(own, launched, strict=True)]


def torchtitan_case(written: Written) -> Case:
    """The TOML, or the command line with the module that it may name."""
    files, case, layout = written
    texts = {file.path: file.text for file in files}
    checks = {"num_layers": case.model.num_layers}
    if "config.toml" in texts:
        return {"files": {"config.toml": texts["config.toml"]}, "world": layout.world, "checks": checks}
    arguments = [word.text for word in parse_launch(texts["launch.sh"]).shell.launch.arguments]
    own = {name: text for name, text in texts.items() if name == "meshwright_flavour.py"}
    return {"argv": arguments, "files": own, "world": layout.world, "checks": checks}


def megatron_source() -> str:
    """The checkout of Megatron-LM, or the empty string."""
    return os.environ.get("MESHWRIGHT_MEGATRON_SOURCE", "")


def megatron_version() -> str:
    """The version of the checkout, as ``megatron@VERSION`` spells it."""
    info = (Path(megatron_source()) / "megatron" / "core" / "package_info.py").read_text()
    minor = int(re.search(r"^MINOR = ([0-9]+)", info, re.MULTILINE)[1])
    return "main" if minor >= 20 else f"0.{minor}"


def _megatron(many: Sequence[Written]) -> list[Verdict]:
    """Megatron-LM's ``parse_args``, ``validate_args`` and configuration on the command line of ``train.sh``."""
    scripts = [(text_of(files, "train.sh"), layout) for files, _, layout in many]
    cases = [{"argv": arguments_of(text), "world": layout.world, "env": environment_of(text)} for text, layout in scripts]
    python = os.environ.get("MESHWRIGHT_MEGATRON_PYTHON", sys.executable)
    return runner(python, "-W", "ignore", str(Path(__file__).with_name("megatron_parser.py")), megatron_source()).verdicts(cases)


def judges() -> tuple[Judge, ...]:
    """Every parser that can be executed, absent or not."""
    release = megatron_version() if megatron_source() else "0.16"
    plain = {
        "accelerate@1.14": ("accelerate-1.14.0", json_or_yaml_case, "launch parser, plugins of 1.14.0"),
        "deepspeed@0.19": ("deepspeed-0.19.8", json_or_yaml_case, "DeepSpeedConfig of 0.19.8"),
        "mindformers@2.1": ("mindformers-2.1.0", yaml_case, "TrainConfig, ParallelDims, PpLayerSetting of 2.1.0"),
        "nanotron@0.4": ("nanotron", yaml_case, "get_config_from_file, ParallelContext of 2411b02"),
        "picotron@59714b1": ("picotron", picotron_case, "train.py to the world's assertion, distribute_layers of 59714b1"),
        "chatlearn@b7af31a9": ("chatlearn", chatlearn_case, "git apply, OmegaConf into GrpoConfig, its validate() of b7af31a9"),
        "chatlearn@fsdp": ("chatlearn", chatlearn_case, "OmegaConf into GrpoConfig, its validate() of b7af31a9"),
        "llama-factory-megatron@main": (
            "llama-factory", factory_bridge_case, "get_train_args, _compute_train_schedule of ff6d4d12 with transformers 5.8.0"),
        "llama-factory-hf@main": ("llama-factory", factory_case, "get_train_args of ff6d4d12 with transformers 5.8.0"),
    }
    found = [
        Judge(
            framework=name, parser=parser, absent=lambda oracle=oracle: missing(oracle), verdicts=_by_oracle(oracle, ask),
            commit=None if is_on_pypi(oracle) else _checkout(oracle),
        )
        for name, (oracle, ask, parser) in plain.items()
    ]
    found += [
        Judge(
            framework=f"torchtitan@{oracle[11:14]}", parser=f"ConfigManager, ParallelDims, split and schedule of {oracle[11:]}",
            absent=lambda oracle=oracle: missing(oracle), verdicts=_by_oracle(oracle, torchtitan_case),
        )
        for oracle in ("torchtitan-0.2.2", "torchtitan-0.3.0")
    ]
    found.append(Judge(
        framework="megatron-deepspeed@4efb479d", parser="parse_args, validate_args of 4efb479d; DeepSpeedConfig of 0.19.8",
        absent=lambda: missing("megatron-deepspeed") or missing("deepspeed-0.19.8"), verdicts=_both,
        commit=_checkout("megatron-deepspeed"),
    ))
    found.append(Judge(
        framework="llama-factory-hf@fsdp2", parser="get_train_args of ff6d4d12; launch parser, plugins of accelerate 1.14.0",
        absent=lambda: missing("llama-factory") or missing("accelerate-1.14.0"), verdicts=_factory,
        commit=_checkout("llama-factory"),
    ))
    found.append(Judge(
        framework=f"megatron@{release}", parser=f"parse_args, validate_args, TransformerConfig of core {release}",
        absent=lambda: "" if megatron_source() else "MESHWRIGHT_MEGATRON_SOURCE names no checkout", verdicts=_megatron,
        commit=_checkout("megatron"),
    ))
    bridge = bridge_cases.release() if source("megatron-bridge") else "0.3"
    found.append(Judge(
        framework=f"bridge@{bridge}", parser="run_recipe or the written program, runtime_config_update, layers of each stage",
        absent=bridge_cases.absent, verdicts=bridge_cases.verdicts, commit=bridge_cases.commits, words=bridge_cases.words_for,
    ))
    return tuple(found)
