"""Cases, layouts and files for the tests of MindSpeed-Core-MS, MindFormers and MindSpeed-LLM."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.draws import draws, seed

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.case import Case
from meshwright.domain.layout import Layout, Overlap
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given, Reading
from meshwright.testing import legal_plans, offered
from meshwright.testing.promises import read_back

PLAIN = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)


@cache
def case_of(name: str, model: str = "qwen3-8b", *, devices: int = 64, batch: int = 256, sequence: int = 4096, **more: Any) -> Case:
    """A case that a framework trains on Ascend."""
    return make_case(
        model, cluster_for("ascend-910b", num_devices=devices), global_batch_sequences=batch, sequence_tokens=sequence,
        framework=name, calibration="none", **{"task": "pretrain", **more},
    )


def layout_of(case: Case, **knobs: Any) -> Layout:
    """A layout that fills the cluster and makes the global batch; ``zero`` is a stage over all ranks."""
    zero = knobs.pop("zero", 0)
    plain = Layout(overlap=PLAIN, **knobs)
    dp = case.cluster.num_devices // (plain.tensor_parallel * plain.context_parallel * plain.pipeline_parallel)
    ranks = dp * plain.context_parallel
    filled: dict[str, Any] = {
        "data_parallel": dp, "num_microbatches": case.batch.global_batch_sequences // (dp * plain.microbatch_sequences),
        "optimizer_shards": ranks if zero >= 1 else 1, "gradient_shards": ranks if zero >= 2 else 1,
        "parameter_shards": ranks if zero >= 3 else 1, "schedule": "interleaved" if plain.virtual_stages > 1 else "1f1b",
        "sequence_parallel": plain.tensor_parallel > 1,
    }
    return replace(plain, **{key: value for key, value in filled.items() if key not in knobs})


def document(settings: dict[str, object]) -> str:
    """A YAML of dotted keys."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        section = tree
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return yaml.safe_dump(tree)


def script(flags: str, *, nodes: int = 1, per_node: int = 8, environment: str = "") -> str:
    """A launch script."""
    return f"#!/bin/bash\n{environment}\ntorchrun --nnodes {nodes} --nproc_per_node {per_node} pretrain_gpt.py {flags}\n"


def read(name: str, settings: dict[str, object] | str, *, devices: int | None = None, shell: str = "", **given: Any) -> Reading:
    """The reading of dotted keys (YAML) or of a script."""
    files = (
        [File(path="launch.sh", text=settings)]
        if isinstance(settings, str)
        else [File(path="config.yaml", text=document(settings))]
    )
    if shell:
        files.append(File(path="run.sh", text=shell))
    base, _, version = name.partition("@")
    return framework(base).read(files, version=version or None, given=Given(num_devices=devices, **given))


def found(name: str, reading: Reading, case: Case | None = None) -> set[str]:
    """Identifiers of what the checks of a framework find."""
    there = framework(name.partition("@")[0]).at(reading.version)
    return {finding.message.id for check in there.checks for finding in check.findings(reading, case)}


def refused(name: str, case: Case, layout: Layout) -> set[str]:
    """Identifiers of the limits that a layout breaks."""
    return {message.id for message in framework(name).check(case, layout)}


def plans(name: str, *, many: int, each: int) -> list[tuple[Case, Layout]]:
    """Random legal plans, and some with each feature that the framework offers."""
    result = list(legal_plans(name, draws(many), seed=seed(11)))
    for feature in offered(framework(name).features):
        result += legal_plans(name, draws(each), seed=seed(7), feature=feature)
    return result


def unread(name: str, many: int = 20, each: int = 3) -> list[str]:
    """What differs between plans and the reading of their files."""
    there, odd = framework(name), []
    for case, layout in plans(name, many=many, each=each):
        reading = read_back(there, case, there.write(case, layout))
        if reading.layout != there.normal(case, layout):
            odd.append(f"{case.model.name}: {layout} is read as {reading.layout}: {'; '.join(map(str, reading.messages))}")
    return odd


def class_arguments(path: Path, name: str) -> set[str]:
    """Arguments of a class's ``__init__`` in a source file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            (init,) = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            return {argument.arg for argument in init.args.args} - {"self"}
    raise AssertionError(f"{path} has no class {name}")


def flags_in(path: Path) -> set[str]:
    """Flags that a source file adds to a parser."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.startswith("--")
    }


def function_of(path: Path, name: str, names: dict[str, Any]) -> Any:
    """A function or class of a source file, executed with these names alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
    assert nodes, f"{path} has no {name}"
    nodes[0].decorator_list = []
    scope = dict(names)
    exec(compile(ast.Module(body=[nodes[0]], type_ignores=[]), str(path), "exec"), scope)
    return scope[name]
