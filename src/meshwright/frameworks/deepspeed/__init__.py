"""DeepSpeed alone: what its JSON can express, what it refuses, how its files are written and read, release by release."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.deepspeed.dump import logged
from meshwright.frameworks.deepspeed.limits import EXPERT_PRESETS, limits_of
from meshwright.frameworks.deepspeed.mistakes import CHECKS, unknown_key
from meshwright.frameworks.deepspeed.reading import interpret, open_config
from meshwright.frameworks.deepspeed.writing import UNSPOKEN, decide, normal, write
from meshwright.frameworks.divisibility import whole_sequences
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.resume import CUT, Meaning
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.domain.case import Case

__all__ = ["DEEPSPEED", "surface"]

RELEASES = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
RESUME = {
    **CUT,
    "cp": Meaning(resume="convert", reason="state is cut over replicas and sequence ranks: save as, or convert to, a "
                                           "universal checkpoint"),
    "zero": Meaning(resume="convert", reason="each rank loads its own shard: convert to a universal checkpoint "
                                             "(ds_to_universal.py)"),
    "dp": Meaning(resume="convert", reason="each rank loads its own shard: convert to a universal checkpoint (ds_to_universal.py)"),
    "offload": Meaning(resume="same checkpoint", reason="the shards are the same, wherever they stand"),
}


@cache
def surface() -> Surface:
    """Every key that DeepSpeed reads, and the flags of training programs that say what its JSON leaves open."""
    return load_surface(__name__, "DeepSpeed", RELEASES)


def _features(release: str) -> Features:
    """What a release can express."""
    number = RELEASES.index(release)
    return Features(
        name="deepspeed",
        schedules=("1f1b",),
        zero_stages=(0, 1, 2, 3),
        offload_zero_stages=(1, 2, 3),
        partial_sharding=number < RELEASES.index("0.19"),  # MiCS; what is left, hpZ, splits weights only
        context_kinds=("ulysses",),
        context_parallel=number >= RELEASES.index("0.17"),
        pipeline_parallel=False,  # only as PipelineModule in code
        expert_parallel=number >= RELEASES.index("0.19"),
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope", "learned", "alibi", "none"),
        overlaps=("grad", "param"),
        tasks=("pretrain", "sft", "lora"),
    )


def _narrowed(features: Features, case: Case) -> Features:
    """What is left for a case: AutoEP finds the experts of some architectures alone, Ulysses cuts some sequences alone."""
    left = whole_sequences(features, case)
    return left if case.model.architecture in EXPERT_PRESETS else replace(left, expert_parallel=False)


@cache
def _at(release: str) -> Framework:
    """DeepSpeed at a release."""
    features = _features(release)
    return Framework(
        name="deepspeed",
        title="DeepSpeed",
        implementation="torch-eager",
        version=release,
        releases=RELEASES,
        variant=_at,
        features=features,
        narrowed=partial(_narrowed, features),
        limits=limits_of(release, features),
        writer=write,
        surface=surface,
        decide=decide,
        opener=open_config,
        interpreter=interpret,
        logged=lambda settings, name: logged(settings, name, surface()),
        checks=tuple(CHECKS),
        config_keys=("--deepspeed_config", "--deepspeed"),
        unknown_keys=unknown_key,
        normal=normal,
        unspoken=UNSPOKEN,
        alternatives=(
            frozenset({"train_micro_batch_size_per_gpu", "--per_device_train_batch_size"}),
            frozenset({"gradient_accumulation_steps", "--gradient_accumulation_steps"}),
            frozenset({"zero_optimization.stage", "--zero_stage"}),
            frozenset({"tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"}),
        ),
        resume=RESUME,
        facts=Facts(remedies=(
            Remedy(phase="gather", words="zero_optimization.stage3_max_live_parameters and stage3_prefetch_bucket_size say how "
                                         "much is gathered ahead"),
        )),
    )


DEEPSPEED = _at(RELEASES[-1])
