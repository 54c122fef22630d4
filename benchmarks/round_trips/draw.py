"""Drawn plans: any release that writes and reads, models and clusters of its kind, layouts that its limits allow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.coherence.draw import LARGE, MIXTURES, SMALL
from meshwright.api.cases import Setup, setup
from meshwright.api.fields import Faults
from meshwright.catalog import cluster_for, precision, precisions
from meshwright.domain.launch import OFFLOAD_MODULES, SETTINGS, launch_words, parse_launch
from meshwright.errors import InputError
from meshwright.estimate.naming import name_of
from meshwright.frameworks import framework, frameworks
from meshwright.testing.plans import draw_layout, is_legal, offered
from meshwright.value import Value

if TYPE_CHECKING:
    import random

OTHERS = (
    "qwen3-8b", "qwen3-0.6b", "mistral-7b", "llama3.2-1b", "qwen2.5-72b", "qwen3-next-80b-a3b", "deepseek-v2-lite", "glm-4.5-air",
)
"""Beside those of the coherence campaign; a name that the catalogue does not have is drawn again."""
DEVICES = ("h100-sxm", "h100-sxm", "a100-80g-sxm", "h200", "b200")
ASCEND = ("ascend-910b", "ascend-910c")
NODES = (1, 1, 2, 2, 3, 4, 4, 6, 8, 16)
TRIES = 400
LAYOUTS = 40
"""Draws of a case, and of a layout of each, until one is legal."""


class Plan(Value, frozen=True, kw_only=True):
    """A plan as a user would have saved it."""

    release: str
    """NAME@VERSION."""
    request: dict[str, Any]
    label: str


def drawn(rng: random.Random, *, only: str = "", task: str = "") -> Plan:
    """A legal plan of a drawn release, or of one that begins with ``only``; of those that have it, of a ``task``.

    Errors: ``AssertionError`` where none is found.
    """
    names = [name for name in frameworks() if name.startswith(only.partition("@")[0])
             and (not task or task in framework(name).features.tasks)]
    name = rng.choice(names)
    release = only.partition("@")[2] or rng.choice(framework(name).releases or (framework(name).version,))
    for _ in range(TRIES):
        request = _request(rng, name)
        request |= {"task": task} if task else {}
        try:
            given = setup({**request, "framework": f"{name}@{release}"}, Faults())
        except InputError:
            continue
        if (label := _label(rng, given)) is not None:
            return Plan(release=f"{name}@{release}", request=request, label=label)
    raise AssertionError(f"{name}@{release}: no plan in {TRIES} draws")


def _label(rng: random.Random, given: Setup) -> str | None:
    """A layout of the case that features and limits allow, by its name, as the files can say it; None where none is found."""
    runner, case = given.framework, given.case
    for _ in range(LAYOUTS):
        feature = rng.choice((None, None, *offered(runner.features)))
        if not case.model.is_moe and feature and feature.startswith("expert"):
            continue
        layout = draw_layout(case, runner.features, rng.choice, feature=feature)
        if layout.num_microbatches * layout.microbatch_sequences * layout.data_parallel != case.batch.global_batch_sequences:
            continue
        layout = replace(layout, overlap=runner.overlap(case, layout))
        try:
            if is_legal(runner, case, layout):
                label = name_of(case, runner.normal(case, layout))
                given.layout(label)
                return str(label)
        except InputError:
            continue
    return None


def _request(rng: random.Random, name: str) -> dict[str, Any]:
    """A case in the words of a request."""
    device = rng.choice(ASCEND if name.startswith("mind") else DEVICES)
    nodes = rng.choice(NODES)
    devices = nodes * cluster_for(device, nodes=1).devices_per_node
    request: dict[str, Any] = {
        "model": rng.choice(rng.choices((SMALL, LARGE, MIXTURES, OTHERS), (4, 1, 4, 4))[0]), "device": device, "nodes": nodes,
        "global_batch": devices * rng.choice((1, 2, 4, 8, 12)), "sequence": rng.choice((1024, 2048, 4096, 8192, 6144)),
        "task": "sft" if name == "chatlearn" else rng.choice(framework(name).features.tasks),
    }
    if rng.random() < 0.15:
        request["layers"] = rng.choice((8, 12, 16, 24))
    able = [each for each in precisions() if precision(each).runs_on(cluster_for(device, nodes=1).device)]
    if able and rng.random() < 0.3:
        request["precision"] = rng.choice(able)
    if rng.random() < 0.15:
        request["gradient_dtype"] = rng.choice(("fp32", "bf16"))
    if rng.random() < 0.1:
        request["optimizer"] = rng.choice(("adamw", "muon", "sgd", "adamw-bf16-states"))
    if rng.random() < 0.3:
        settings = {key: rng.choice(values) for key, values in SETTINGS.items() if key != "vision" and rng.random() < 0.3}
        if rng.random() < 0.2:
            settings["offload_modules"] = rng.choice(OFFLOAD_MODULES)
        if settings.get("graphs") == "step":  # a graph of the whole step has no room for the counts of natural routing
            settings["routing"] = "balanced"
        try:
            parse_launch(launch_words(settings))
        except InputError:
            settings = {}
        if settings:
            request["launch"] = launch_words(settings)
    return request
