"""Megatron-LM itself as the judge of what is written for it.

``MESHWRIGHT_MEGATRON_SOURCE`` names a checkout (any release from core 0.11, or main), ``MESHWRIGHT_MEGATRON_PYTHON`` an
interpreter with torch, triton, six, einops and regex; the wheel ``megatron-core`` 0.16.1 alone serves for the parameters.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from megatron_cases import MODELS, arguments_of, case_of, environment_of, layout_of, random_layout
from megatron_configurations import model_flags, random_flags, script_of
from oracles_run import runner
from tests.draws import FUZZ

from meshwright.domain.label import label
from meshwright.estimate.split import chunk_kinds, default_split, even_split
from meshwright.frameworks import File, framework
from meshwright.frameworks.base import DEFAULTS
from meshwright.frameworks.megatron.hybrid import is_hybrid
from meshwright.frameworks.settings import Given
from meshwright.perf import parameters as count
from meshwright.testing import legal_plans, offered

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
HYBRIDS = ("nemotron-3-nano-30b-a3b", "nemotron-h-8b", "nemotron-nano-9b-v2", "granite4-h-micro", "granite4-h-tiny")
"""Of blocks one by one, and two in a layer; with experts and without."""
SOURCE = os.environ.get("MESHWRIGHT_MEGATRON_SOURCE", "")
PYTHON = os.environ.get("MESHWRIGHT_MEGATRON_PYTHON", sys.executable)
LAYOUTS = int(os.environ.get("MESHWRIGHT_MEGATRON_LAYOUTS", "250"))
MEGATRON = framework("megatron")
needs_source = pytest.mark.skipif(not SOURCE, reason="MESHWRIGHT_MEGATRON_SOURCE names no checkout of Megatron-LM")
needs_core = pytest.mark.skipif(
    not SOURCE and importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed"
)


def judge(cases):
    parser = Path(__file__).with_name("megatron_parser.py")
    return runner(PYTHON, "-W", "ignore", str(parser), *([SOURCE] if SOURCE else [])).verdicts(cases)


def version():
    """The version of the checkout, as ``--to megatron@VERSION`` spells it."""
    info = (Path(SOURCE) / "megatron" / "core" / "package_info.py").read_text()
    minor = int(re.search(r"^MINOR = ([0-9]+)", info, re.MULTILINE)[1])
    return "main" if minor >= 20 else f"0.{minor}"


@needs_source
def test_the_parser_accepts_what_is_legal_and_refuses_what_is_not():
    there = MEGATRON.at(version())
    rng, noticed = random.Random(LAYOUTS), {limit.id: limit.noticed for limit in there.limits}
    recipes = ["bf16", "bf16", "bf16", "fp16", "fp8-delayed", "fp8-cs", "fp8-mx", "fp8-blockwise", "nvfp4"]
    optimizers = ["adamw", "adamw", "adamw", "adamw-bf16-moments", "adamw-8bit", "sgd", "muon"]
    cases, expected = [], []
    while len(cases) < LAYOUTS:
        case = case_of(
            rng.choice(MODELS), devices=rng.choice([16, 64, 128, 48]), precision_name=rng.choice(recipes),
            optimizer_name=rng.choice(optimizers), gradient_dtype=rng.choice([None, "bf16"]),
        )
        layout = random_layout(case, rng)
        messages = there.check(case, layout)
        if messages and "parse" not in {noticed[message.id] for message in messages}:
            continue  # the parser cannot know
        if "never" in {noticed[message.id] for message in messages}:
            continue  # no arguments stand for it
        script = there.writer(case, layout, version(), DEFAULTS)[0].text
        cases.append({"argv": arguments_of(script), "world": layout.world, "env": environment_of(script)})
        expected.append([message.id for message in messages])
    verdicts = judge(cases)
    wrong = Counter(
        (verdict["why"][:200], tuple(ids))
        for verdict, ids in zip(verdicts, expected, strict=True)
        if verdict["accepted"] == bool(ids)
    )
    if version() < "0.16":  # earlier versions check less: only what they refuse counts
        wrong = Counter({key: times for key, times in wrong.items() if key[0]})
    legal = sum(not ids for ids in expected)
    print(f"{version()}: {legal} legal, {len(expected) - legal} illegal")
    assert legal > LAYOUTS // 25
    assert not wrong


@needs_source
def test_the_parser_accepts_every_feature_of_the_release():
    name = f"megatron@{version()}"
    there, cases, labels = framework(name), [], []
    for feature in offered(there.features):
        for case, layout in legal_plans(name, 20, seed=1, feature=feature):
            script = there.write(case, layout)[0].text
            cases.append({"argv": arguments_of(script), "world": layout.world, "env": environment_of(script)})
            labels.append((feature, case.model.name, label(layout)))
    verdicts = judge(cases)
    assert len(verdicts) >= 200
    assert [(name, verdict["why"]) for name, verdict in zip(labels, verdicts, strict=True) if not verdict["accepted"]] == []


LATER = {"megatron.virtual-counts", "megatron.division", "megatron.middle", "megatron.precision-aware-alone"}
"""What the parser lets pass and the framework refuses when it builds the model: messages and checks of ours."""


@needs_source
def test_what_the_parser_accepts_is_accepted_and_what_it_refuses_is_seen():
    there, rng = MEGATRON.at(version()), random.Random(LAYOUTS)
    noticed = {limit.id: limit.noticed for limit in there.limits}
    drawn = []
    for _ in range(2 * LAYOUTS):
        case = case_of(rng.choice(("llama3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "gpt3-175b", "qwen2.5-7b", "deepseek-v2-lite")),
                       devices=rng.choice((16, 64, 128)))
        drawn.append((case, [*model_flags(case, version()), *random_flags(case, version(), rng)]))
    sharded = [{"--use-megatron-fsdp"} & set(words) for _, words in drawn]
    verdicts = judge([
        {"argv": words, "world": case.cluster.num_devices, "env": {} if fsdp else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
        for (case, words), fsdp in zip(drawn, sharded, strict=True)
    ])
    accepted, ours, unseen = 0, 0, Counter()
    for (case, words), fsdp, verdict in zip(drawn, sharded, verdicts, strict=True):
        text = script_of(words, case.cluster.num_devices)
        reading = there.read([File(path="train.sh", text=text.split("\n", 1)[1] if fsdp else text)], version=version(),
                             given=Given(model=case.model))
        broken = there.check(case, reading.layout) if reading.layout else reading.messages
        wrong = {each.id for each in broken if noticed.get(each.id, "parse") == "parse"}
        errors = {
            finding.message.id for check in there.checks for finding in check.findings(reading, case) if finding.severity == "error"
        }
        if verdict["accepted"]:
            accepted += 1
            ours += not (wrong | errors) - LATER
        elif not (broken or errors or _is_choice(verdict["why"])):
            unseen[verdict["why"][:200]] += 1
    print(f"{version()}: {ours} of {accepted} accepted; unseen {dict(unseen)}")
    assert accepted > LAYOUTS // 8
    assert ours >= 0.95 * accepted
    assert unseen.total() <= 0.02 * len(drawn)


def _is_choice(why: str) -> bool:
    """What every parser finds from the table of flags: unknown ones, and values that are no choice."""
    return "invalid choice" in why or "unrecognized arguments" in why


def parameters_of_stage(case, layout, stage):
    """What the planner counts on the first rank of a stage."""
    model, tp, last = case.model, layout.tensor_parallel, layout.pipeline_parallel - 1
    degrees = {"tp": tp, "ep": layout.expert_parallel, "etp": layout.expert_tensor_parallel,
               "cut": case.implementation.cuts_query_groups}
    rows = int(count.padded_vocabulary(model.vocabulary, tp=tp, multiple=case.implementation.pads_vocabulary_to))
    split = layout.stage_layers or default_split(case, layout.pipeline_parallel, layout.virtual_stages)
    layers = chunk_kinds(model, split, folded=False)[:, stage].sum(axis=0)
    if stage == last:
        layers -= [model.mtp_kinds.count(index) for index in range(len(model.kinds))]
    total = count.ParameterCounts()
    for kind, number in zip(model.kinds, layers, strict=True):
        total += count.layer_parameters(model, kind, **degrees).times(int(number))
    if stage == 0:
        total += count.embedding_parameters(model, tp=tp, vocabulary=rows)
    if stage == last:
        total += count.mtp_parameters(model, **degrees) + count.final_norm_parameters(model)
        total += count.head_parameters(model, tp=tp, vocabulary=rows, copied=np.asarray(last > 0))
        if model.num_mtp_layers and last > 0 and not model.tied_embeddings:
            total += count.ParameterCounts(sharded=rows * model.hidden // tp)  # the extra layers embed again
    return int(total.total)


def moved(case, stages, chunks):
    """An even split with a layer of the first chunk moved to the second, and one of the last to the one before."""
    flat = [count for chunk in even_split(case.model.num_layers, stages, chunks) for count in chunk]
    for source, target in ((0, 1), (-1, -2)):
        flat[source], flat[target] = flat[source] - 1, flat[target] + 1
    return tuple(tuple(flat[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))


@needs_core
def test_the_arguments_rebuild_the_parameters_of_every_stage():
    if SOURCE and version() not in {"0.16"}:
        pytest.skip("local layers are built with core 0.16")
    cases, expected, names = [], [], []
    models = (*MODELS, "qwen3-8b", "opt-13b", "glm4.5-air", "qwen2-57b-a14b", "llama3.2-1b", "deepseek-v2-lite", *HYBRIDS)
    for number, model in enumerate(models):
        for place, knobs in enumerate((
            {"pipeline_parallel": 4},
            {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2, "virtual_stages": 2, "expert_parallel": 4},
            {"tensor_parallel": 4, "sequence_parallel": True, "pipeline_parallel": 4, "expert_parallel": 2},
            {"tensor_parallel": 8, "sequence_parallel": True, "expert_parallel": 2},
            {"tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2, "expert_parallel": 2,
             "expert_tensor_parallel": 2},
            {"pipeline_parallel": 4, "virtual_stages": 2, "stage_layers": "moved"},
        )):
            if not FUZZ and (number + place) % 2:  # each model under half of the layouts, each layout with half of the models
                continue
            case = case_of(model)
            dense = {} if case.model.is_moe else {"expert_parallel": 1, "expert_tensor_parallel": 1}
            uneven = {"stage_layers": moved(case, 4, 2)} if "stage_layers" in knobs else {}
            layout = layout_of(case, **(knobs | dense | uneven))
            if knobs.get("expert_tensor_parallel") and MEGATRON.check(case, layout):
                continue  # experts with biases are not cut
            if case.model.attention.latent and layout.tensor_parallel > 1:
                continue  # local layers split the down projections, those of Transformer Engine copy them
            if (is_hybrid(case.model) or layout.tensor_parallel == 8) and MEGATRON.check(case, layout):
                continue  # no virtual stages, ranks that do not cut the heads or the groups of Mamba
            script = MEGATRON.write(case, layout)[0].text
            stages = range(layout.pipeline_parallel)
            ranks = [stage * layout.world // layout.pipeline_parallel for stage in stages]
            cases.append({"argv": arguments_of(script), "world": layout.world, "env": environment_of(script), "ranks": ranks})
            expected.append([parameters_of_stage(case, layout, stage) for stage in stages])
            names.append((model, tuple(knobs.items())))
    verdicts = judge(cases)
    found = {name: (verdict["why"], verdict["parameters"]) for name, verdict in zip(names, verdicts, strict=True)}
    assert found == {name: ("", stages) for name, stages in zip(names, expected, strict=True)}
