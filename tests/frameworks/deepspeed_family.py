"""What the tests of DeepSpeed, Megatron-DeepSpeed and accelerate share: files from facts, readings, findings, cases of oracles."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.draws import draws, seed

from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.catalog.recipes import precision
from meshwright.documents.launch import parse_launch
from meshwright.domain.layout import Layout
from meshwright.domain.training import Lora, Optimizer
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans, offered

SLURM = "#!/bin/bash\n"


def json_file(values, path="ds_config.json"):
    return File(path=path, text=json.dumps(values))


def yaml_file(values, path="accelerate_config.yaml"):
    return File(path=path, text=json.dumps(values))  # JSON is YAML


def script(flags, launcher="torchrun --nnodes 1 --nproc-per-node 8", program="train.py", path="train.sh", before=""):
    words = " ".join(key if value is True else f"{key} {value}" for key, value in flags.items())
    return File(path=path, text=f"{SLURM}{before}\n{launcher} {program} {words}\n")


def read(name, *files, devices=None, **given):
    return framework(name).read(files, given=Given(num_devices=devices, **given))


def findings(name, *files, devices=None, case=None):
    """Identifier -> finding of every check of the framework that fires."""
    there = framework(name)
    reading = there.read(files, given=Given(num_devices=devices))
    return {found.message.id: found for check in there.at(reading.version).checks for found in check.findings(reading, case)}


def case_of(
    name, model="llama3-8b", *, devices=16, batch=64, sequence=2048, device="h100-sxm", recipe="bf16", optimizer=None,
    task="pretrain",
    architecture=None,
):
    made = make_case(
        model, cluster_for(device, num_devices=devices), global_batch_sequences=batch, sequence_tokens=sequence, framework=name,
        calibration="none", precision="fp16" if device == "v100-32g" else "bf16",
    )
    training = replace(made.training, precision=precision(recipe), task=task, lora=Lora() if task == "lora" else None)
    if optimizer:
        training = replace(training, optimizer=Optimizer(name=optimizer, state_bytes=8))
    if architecture is not None:
        made = replace(made, model=replace(load_model(model), architecture=architecture))
    return replace(made, training=training)


def layout_of(case, *, zero=0, **knobs):
    """A layout that fills the cluster and makes the batch; ``knobs`` win."""
    plain = Layout(**knobs)
    dp = case.cluster.num_devices // (plain.tensor_parallel * plain.context_parallel * plain.pipeline_parallel)
    ranks = dp * plain.context_parallel
    filled = {
        "data_parallel": dp, "num_microbatches": max(1, case.batch.global_batch_sequences // (dp * plain.microbatch_sequences)),
        "optimizer_shards": ranks if zero >= 1 else 1, "gradient_shards": ranks if zero >= 2 else 1,
        "parameter_shards": ranks if zero >= 3 else 1, "context_kind": "ulysses" if plain.context_parallel > 1 else "ring",
    }
    return Layout(**(filled | knobs))


def broken(name, case, layout):
    """Identifiers of the limits that a layout breaks."""
    return {message.id for message in framework(name).check(case, layout)}


def plans_for_oracles(name, count=60, each=6, without=()):
    """Random legal plans, and ``each`` for every feature that the framework offers."""
    found = list(legal_plans(name, draws(count), seed=seed(0)))
    for feature in offered(framework(name).features):
        if feature not in without:
            found += legal_plans(name, draws(each), feature=feature, seed=seed(1))
    return found


def judged(files, layout):
    """A case for the oracle of a JSON or YAML."""
    return {"files": {file.path: file.text for file in files if not file.path.endswith((".sh", ".md"))}, "world": layout.world,
            "argv": [], "env": {}, "checks": {"data_parallel": layout.data_parallel}}


def judged_flags(files, layout):
    """A case for the oracle of Megatron-DeepSpeed's flags, as bash would give them."""
    shell = parse_launch(next(file.text for file in files if file.path == "train.sh"), path="train.sh").shell
    return {"files": {}, "world": layout.world, "argv": [word.text if word.known else "1" for word in shell.launch.arguments],
            "env": {name: word.text for name, word in shell.environment.items() if word and word.known}, "checks": {}}
