"""Cases that the rules of the guides are judged for, and the directory of the guides."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.catalog import calibration, cluster_for, load_model, optimizer, precision
from meshwright.catalog import implementation as implementation_named
from meshwright.domain.case import Case
from meshwright.domain.label import parse_layout
from meshwright.domain.training import Batch, Training
from meshwright.explain import explain
from meshwright.frameworks import framework

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.explain import Explanation
    from meshwright.judging.finding import Judgement


@dataclass(frozen=True)
class Given:
    """A case, a layout and what the framework can express."""

    case: Case
    layout: Layout
    features: Features


CASES = {
    "70b-64-nodes": ("llama3-70b", "h100-sxm", 512, 1024, 8192, "tp4 cp2 pp4 vp5 mb1 sp zero1", "megatron"),
    "8b-one-node": ("llama3-8b", "h100-sxm", 8, 128, 4096, "mb1 zero1 recompute=selective:layernorm", "megatron"),
    "8b-long": ("llama3-8b", "h100-sxm", 64, 64, 131072, "tp4 cp8 mb1 sp zero1", "megatron"),
    "30b-moe": ("qwen3-30b-a3b", "h100-sxm", 32, 512, 4096, "pp2 ep8 mb1 zero1 recompute=full", "megatron"),
    "13b-small-memory": ("llama2-13b", "a100-40g-sxm", 16, 512, 2048, "tp2 pp2 mb1 sp zero1 recompute=full", "megatron"),
    "7b-nanotron": ("llama2-7b", "h100-sxm", 16, 256, 4096, "tp2 pp2 mb2 zero1", "nanotron"),
    "7b-torchtitan": ("llama2-7b", "h100-sxm", 1024, 2048, 4096, "tp8 pp2 mb1 zero2", "torchtitan"),
    "70b-template": ("llama2-70b", "a100-80g-sxm", 1024, 2048, 4096, "tp8 pp16 mb1 sp zero1 overlap=grad", "megatron"),
    "8b-chatlearn": ("llama3-8b", "h100-sxm", 64, 256, 8192, "tp4 pp2 mb1 sp zero1 overlap=grad,p2p", "chatlearn"),
    "176b-alibi": ("bloom-176b", "a100-80g-sxm", 384, 2048, 2048, "tp4 pp12 mb2 sp zero1", "megatron"),
}


def case_of(model: str, device: str, devices: int, batch: int, sequence: int, implementation: str = "megatron-te") -> Case:
    cluster = cluster_for(device, num_devices=devices)
    return Case(
        model=load_model(model), cluster=cluster, batch=Batch(global_batch_sequences=batch, sequence_tokens=sequence),
        training=Training(task="pretrain", precision=precision("bf16"), optimizer=optimizer("adamw")),
        implementation=implementation_named(implementation), calibration=calibration("none", cluster.device),
    )


@cache
def given(name: str) -> Given:
    model, device, devices, batch, sequence, words, runs_on = CASES[name]
    chosen = framework(runs_on)
    case = case_of(model, device, devices, batch, sequence, chosen.implementation)
    layout = parse_layout(words, num_devices=devices, global_batch_sequences=batch, model=case.model)
    return Given(case=case, layout=layout, features=chosen.features)


@cache
def explained(name: str) -> Explanation:
    each = given(name)
    return explain(each.case, each.layout, each.features)


def judged(name: str, rule: str) -> Judgement:
    return next(judgement for judgement in explained(name).judgements if judgement.rule == rule)


def seeds() -> Path | None:
    """The five guides, where they are at hand."""
    wanted = os.environ.get("MESHWRIGHT_SEEDS")
    place = Path(wanted) if wanted else Path(__file__).resolve().parents[2].parent / "shared" / "seeds"
    return place if place.is_dir() else None
