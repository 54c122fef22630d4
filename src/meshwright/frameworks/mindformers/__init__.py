"""MindFormers: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import MINDSPORE, Facts
from meshwright.frameworks.mindformers import graph_reading, graph_writing, limits, mistakes, pynative_reading, pynative_writing
from meshwright.frameworks.resume import CUT, SHARDED
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source

__all__ = ["MINDFORMERS"]

NAME, TITLE = "mindformers", "MindFormers"
RELEASES = ("experimental", "graph", "2.1")
"""``experimental``: the PyNative core of the branch br_feature_mcore (2025); ``graph``: graph mode; ``2.1``: PyNative of 2.1.0."""
PYNATIVE = Features(
    name=NAME,
    schedules=("1f1b", "interleaved", "gpipe"),
    zero_stages=(0, 2, 3),
    parameter_shards_with_pipeline=True,
    context_kinds=("ring", "ulysses", "hybrid"),
    expert_tensor_parallel=False,
    selective_modules=("core_attn", "layernorm", "mlp"),
    positions=("rope", "learned", "none"),
    optimizer_offload=False,
    recompute_per_stage=True,
    overlaps=("grad", "param", "tp", "p2p"),
    sequence_parallel_with_tensor=True,
)
GRAPH = replace(
    PYNATIVE,
    attentions=("flash", "math"),
    zero_stages=(0, 1, 2, 3),
    recompute_mixed=True,
    selective_modules=("mlp_act", "comm"),
    selective_default=("comm", "mlp_act"),
    optimizer_offload=True,
    overlaps=("grad", "param", "p2p"),
    sequence_parallel_with_tensor=False,
)


@cache
def surface() -> Surface:
    """Every key of the configuration classes of 2.1.0, of the graph mode's template, and of the experimental core."""
    return load_surface(__name__, TITLE, RELEASES)


def detect(source: Source) -> str | None:
    """The release that a YAML is written for, by its sections."""
    keys = source.settings
    if any(key.startswith(("parallelism.", "recompute.", "lr_scheduler.")) or key == "training.local_batch_size" for key in keys):
        return "2.1"
    if any(key.startswith("parallel_config.") and key.endswith("_model_parallel_size") for key in keys):
        return "experimental"
    if any(key.startswith(("parallel_config.", "runner_config.", "recompute_config.", "parallel.", "trainer.")) for key in keys):
        return "graph"
    return None


def variant(release: str) -> Framework:
    """MindFormers at a release."""
    if release == "graph":
        return replace(
            MINDFORMERS, version=release, implementation="mindspore-graph", features=GRAPH, limits=limits.graph(GRAPH),
            writer=graph_writing.write, decide=graph_writing.decide, interpreter=graph_reading.interpret,
            checks=mistakes.GRAPH_CHECKS,
            unknown_keys=mistakes.unknown_graph, normal=graph_writing.normal, unspoken=graph_writing.UNSPOKEN, resume=CUT,
            followers=frozenset({"parallel.dataset_strategy"}),
        )
    if release == "experimental":
        from meshwright.frameworks.mindformers.experimental import experimental

        return experimental(MINDFORMERS)
    return MINDFORMERS


MINDFORMERS = Framework(
    name=NAME,
    title=TITLE,
    implementation="mindspeed",
    version="2.1",
    releases=RELEASES,
    variant=variant,
    features=PYNATIVE,
    limits=limits.pynative(PYNATIVE),
    writer=pynative_writing.write,
    surface=surface,
    decide=pynative_writing.decide,
    detect=detect,
    interpreter=pynative_reading.interpret,
    checks=mistakes.PYNATIVE_CHECKS,
    unknown_keys=mistakes.unknown_pynative,
    config_keys=("--config",),
    normal=pynative_writing.normal,
    unspoken=pynative_writing.UNSPOKEN,
    resume=SHARDED,
    facts=Facts(ascend_allocator=MINDSPORE),
)
