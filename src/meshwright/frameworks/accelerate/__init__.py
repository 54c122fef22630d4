"""HF accelerate with FSDP2: what it can express, what it refuses, how its files are written and read, release by release."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from msgspec import structs

from meshwright.domain.features import Features
from meshwright.frameworks.accelerate.limits import limits_of
from meshwright.frameworks.accelerate.mistakes import CHECKS, unknown_key
from meshwright.frameworks.accelerate.reading import detect, interpret
from meshwright.frameworks.accelerate.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.base import Framework
from meshwright.frameworks.divisibility import whole_sequences
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.resume import SHARDED
from meshwright.frameworks.surface import Surface, load_surface

__all__ = ["ACCELERATE", "surface"]

RELEASES = ("fsdp1", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14")
"""``fsdp1`` is what any of them makes of a file without ``fsdp_version: 2``."""


@cache
def surface() -> Surface:
    """The keys of the YAML, the flags of the Trainer that belong to a layout, and the keys of DeepSpeed's JSON beside it."""
    from meshwright.frameworks.deepspeed import surface as json_surface

    own = load_surface(__name__, "HF accelerate", RELEASES)
    last = len(RELEASES) - 1
    keys = {
        name: (structs.replace(spans[-1], since=0, until=last),)
        for name, spans in json_surface().keys.items() if not name.startswith("-")
    }
    return replace(own, keys={**keys, **own.keys})


def _features(release: str) -> Features:
    """What a release can express; parallelism_config came with 1.10."""
    meshes = release not in {"fsdp1", "1.9"}
    return Features(
        name="accelerate",
        compiles=True,
        schedules=("1f1b",),
        zero_stages=(0, 2, 3),
        offload_zero_stages=(2, 3),
        partial_sharding=release != "1.9",
        context_kinds=("all-gather", "ring"),
        context_parallel=meshes,
        pipeline_parallel=False,
        expert_parallel=False,
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope", "learned", "alibi", "none"),
        overlaps=("grad", "param"),
        offloads=("checkpoints", "slice_tokens"),  # both the training program's
        tasks=("pretrain", "sft", "lora"),
    )


@cache
def _at(release: str) -> Framework:
    """accelerate at a release."""
    features = _features(release)
    return Framework(
        name="accelerate",
        title="HF accelerate",
        aliases=("fsdp2", "hf-accelerate"),
        implementation="torch-eager",
        version=release,
        releases=RELEASES,
        variant=_at,
        features=features,
        narrowed=partial(whole_sequences, features),
        limits=limits_of(release, features),
        writer=write,
        surface=surface,
        decide=decide,
        detect=detect,
        interpreter=interpret,
        checks=tuple(CHECKS),
        config_keys=("config-file", "--config_file"),
        unknown_keys=unknown_key,
        normal=normal,
        unspoken=UNSPOKEN,
        alternatives=tuple(
            frozenset({f"fsdp_config.fsdp_{name}", f"fsdp_config.{name}"})
            for name in ("version", "reshard_after_forward", "sharding_strategy", "offload_params", "activation_checkpointing")
        ),
        resume=SHARDED,
        facts=Facts(remedies=(
            Remedy(phase="gather", words="fsdp_reshard_after_forward, or zero_optimization.stage3_max_live_parameters, says how "
                                         "much stays gathered"),
        )),
    )


ACCELERATE = _at(RELEASES[-1])
