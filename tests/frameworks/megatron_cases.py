"""Cases and random layouts for the tests of the Megatron exporter."""

from __future__ import annotations

import os
import random
import re
import subprocess
from functools import cache

from meshwright.catalog import cluster_for, load_model
from meshwright.catalog.calibrations import calibration
from meshwright.catalog.implementations import implementation
from meshwright.catalog.recipes import optimizer, precision
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.domain.training import Batch, Training
from meshwright.estimate.split import even_split

MODELS = (
    "llama3-8b", "llama3-70b", "llama2-7b", "qwen2.5-7b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "kimi-k2",
    "gpt-oss-120b", "gpt3-175b", "nemotron4-340b", "mistral-7b",
)
"""One of each sort: GQA, MHA, biases, MoE with and without shared experts, MLA with MTP, windows and sinks."""
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")


@cache
def case_of(
    model: str, *, devices: int = 64, batch: int = 256, sequence: int = 2048, precision_name: str = "bf16",
    optimizer_name: str = "adamw", device: str = "h100-sxm", gradient_dtype: str | None = None,
    implementation_name: str = "megatron-te",
) -> Case:
    cluster = cluster_for(device, num_devices=devices)
    return Case(
        model=load_model(model),
        cluster=cluster,
        batch=Batch(global_batch_sequences=batch, sequence_tokens=sequence),
        training=Training(
            task="pretrain", precision=precision(precision_name, gradient_dtype), optimizer=optimizer(optimizer_name)
        ),
        implementation=implementation(implementation_name),
        calibration=calibration("none", cluster.device),
    )


def layout_of(case: Case, *, zero: int = 1, **knobs: object) -> Layout:
    """A layout that fills the cluster, with micro-batches that make the global batch; ``knobs`` win."""
    plain = Layout(**knobs)  # type: ignore[arg-type]
    dp = case.cluster.num_devices // (plain.tensor_parallel * plain.context_parallel * plain.pipeline_parallel)
    ranks = dp * plain.context_parallel
    filled: dict[str, object] = {
        "data_parallel": dp,
        "num_microbatches": case.batch.global_batch_sequences // (dp * plain.microbatch_sequences),
        "optimizer_shards": ranks if zero >= 1 else 1,
        "gradient_shards": ranks if zero >= 2 else 1,
        "parameter_shards": ranks if zero >= 3 else 1,
        "schedule": "interleaved" if plain.virtual_stages > 1 else "1f1b",
    }
    return Layout(**(filled | knobs))  # type: ignore[arg-type]


def arguments_of(script: str) -> list[str]:
    """The command line that a train.sh gives to Megatron-LM, as bash expands it."""
    done = subprocess.run(  # the script reads nothing but these variables
        ["bash", "-s"], input=script, env={"PATH": os.environ["PATH"], "PRINT_ARGS": "1"}, capture_output=True, text=True,
        check=True,
    )
    return done.stdout.splitlines()


def environment_of(script: str) -> dict[str, str]:
    """The variables that a train.sh exports with a value of its own."""
    return dict(re.findall(r"^export ([A-Z0-9_]+)=(\S+)   #", script, re.MULTILINE))


def random_layout(case: Case, rng: random.Random) -> Layout:
    """Any layout of the cluster: it may break rules of Megatron-LM, never those of arithmetic."""
    world, model = case.cluster.num_devices, case.model
    tp = rng.choice([1, 1, 2, 4, 8, 16])
    pp = rng.choice([1, 1, 2, 4, 8, 3])
    cp = rng.choice([1, 1, 1, 2, 4])
    if world % (tp * pp * cp):
        tp, pp, cp = 2, 4, 1
    dp = world // (tp * pp * cp)
    vp = rng.choice([1, 2, 4]) if pp > 1 and rng.random() < 0.5 else 1
    mb = rng.choice([1, 1, 2])
    microbatches = max(1, case.batch.global_batch_sequences // (dp * mb))
    stage = world // pp
    etp = rng.choice([1, 1, 1, tp]) if model.is_moe else 1
    ep = rng.choice([size for size in (1, 2, 4, 8, 16, 32) if stage % (size * etp) == 0]) if model.is_moe else 1
    ranks = dp * cp
    zero = rng.choice([0, 1, 1, 1, 2, 3] if pp == 1 else [0, 1, 1, 1, 1, 3])
    size = rng.choice([ranks, ranks, ranks // 2 if ranks % 2 == 0 and ranks > 2 else ranks])
    split = None
    if pp > 1 and rng.random() < 0.3:
        flat = [count for chunk in even_split(model.num_layers, pp, vp) for count in chunk]
        if len(flat) > 1 and flat[0] > 1:
            flat[0] -= 1
            flat[rng.randrange(1, len(flat))] += 1
        split = tuple(tuple(flat[chunk * pp : (chunk + 1) * pp]) for chunk in range(vp))
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and rng.random() < 0.8, context_parallel=cp,
        context_kind=rng.choice(["ring", "ring", "all-gather", "ulysses", "hybrid"]), pipeline_parallel=pp,
        virtual_stages=vp, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=size if zero else 1, gradient_shards=size if zero > 1 else 1,
        parameter_shards=size if zero > 2 else 1, microbatch_sequences=mb, num_microbatches=microbatches,
        recompute=_recompute(rng), schedule="interleaved" if vp > 1 else "1f1b", stage_layers=split,
        offload=("optimizer",) if rng.random() < 0.1 else (),
        overlap=Overlap(
            gradient_reduce=rng.random() < 0.9, parameter_gather=rng.random() < 0.8, tensor=rng.random() < 0.2,
            point_to_point=rng.random() < 0.9, expert=rng.random() < 0.2,
        ),
    )


def _recompute(rng: random.Random) -> Recompute:
    """None, some modules, all layers or the first few."""
    modules = tuple(sorted(rng.sample(MODULES, rng.choice([1, 1, 2]))))
    return rng.choice([NoRecompute(), NoRecompute(), Selective(), Selective(modules=modules), Full(), Full(layers=3)])
