"""nanotron: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from functools import cache

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.nanotron.limits import LIMITS
from meshwright.frameworks.nanotron.mistakes import CHECKS, unknown_key
from meshwright.frameworks.nanotron.reading import interpret
from meshwright.frameworks.nanotron.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.resume import SHARDED, Meaning
from meshwright.frameworks.surface import Surface, load_surface

__all__ = ["NANOTRON"]

RELEASES = ("0.4",)
"""0.4 is commit 2411b02."""


@cache
def surface() -> Surface:
    """Every field of nanotron's configuration dataclasses."""
    return load_surface(__name__, "nanotron", RELEASES)


NANOTRON = Framework(
    name="nanotron",
    title="nanotron",
    implementation="nanotron",
    version=RELEASES[-1],
    releases=RELEASES,
    features=Features(
        name="nanotron",
        schedules=("1f1b", "gpipe"),
        fills_pipeline=True,  # pipeline_parallel/engine.py asserts it; none of 124 such runs of the playbook worked
        partial_sharding=False,
        shards_over_context=False,  # ZeroDistributedOptimizer takes dp_pg
        context_kinds=("all-gather", "ring"),
        expert_parallel=False,  # a degree above one has no place in its grid of ranks
        expert_tensor_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope",),
        optimizer_offload=False,
        overlaps=("grad", "tp"),
        tasks=("pretrain",),
    ),
    limits=tuple(LIMITS),
    writer=write,
    surface=surface,
    decide=decide,
    interpreter=interpret,
    checks=tuple(CHECKS),
    config_keys=("--config-file",),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    resume={
        **SHARDED,
        "pp": Meaning(resume="convert", reason="nanotron warns that optimizer states of another pipeline must be checked"),
    },
)
