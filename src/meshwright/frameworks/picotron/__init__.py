"""picotron: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from functools import cache

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.picotron.limits import LIMITS
from meshwright.frameworks.picotron.mistakes import CHECKS, unknown_key
from meshwright.frameworks.picotron.reading import interpret
from meshwright.frameworks.picotron.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.resume import CUT
from meshwright.frameworks.surface import Surface, load_surface

__all__ = ["PICOTRON"]

RELEASES = ("59714b1",)
"""Commits: there are no releases. 59714b1 is of 2025-08-26."""


@cache
def surface() -> Surface:
    """Every key that some line of picotron reads, and those of its template that none does."""
    return load_surface(__name__, "picotron", RELEASES)


PICOTRON = Framework(
    name="picotron",
    title="picotron",
    implementation="torch-eager",
    version=RELEASES[-1],
    releases=RELEASES,
    features=Features(
        name="picotron",
        schedules=("1f1b", "gpipe"),
        zero_stages=(0,),
        partial_sharding=False,
        expert_parallel=False,
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none",),
        recompute_first_layers=False,
        positions=("rope",),
        optimizer_offload=False,
        overlaps=("grad",),
        mixture_of_experts=False,
        tasks=("pretrain",),
    ),
    limits=tuple(LIMITS),
    writer=write,
    surface=surface,
    decide=decide,
    interpreter=interpret,
    checks=tuple(CHECKS),
    config_keys=("--config",),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    resume=CUT,
    facts=Facts(stages_inside_replicas=True),
)
