"""torchtitan: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import CUDA_NEW, Facts, Remedy
from meshwright.frameworks.resume import SHARDED
from meshwright.frameworks.torchtitan.dump import logged
from meshwright.frameworks.torchtitan.layout_keys import UNSPOKEN, decide, normal
from meshwright.frameworks.torchtitan.limits import LIMITS
from meshwright.frameworks.torchtitan.mistakes import CHECKS, unknown_key
from meshwright.frameworks.torchtitan.models import RELEASES
from meshwright.frameworks.torchtitan.reading import detect, interpret
from meshwright.frameworks.torchtitan.script import open_files
from meshwright.frameworks.torchtitan.stages import SPLIT_KEYS
from meshwright.frameworks.torchtitan.surfaces import surface
from meshwright.frameworks.torchtitan.writing import write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.documents.source import Source

__all__ = ["TORCHTITAN"]

_NEW = Features(
    name="torchtitan",
    compiles=True,
    schedules=("1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"),
    zero_stages=(0, 2, 3),  # fully_shard without or with resharding after forward
    parameter_shards_with_pipeline=True,
    context_kinds=("all-gather",),
    expert_tensor_parallel=False,  # removed in 0.3
    recompute_first_layers=False,
    selective_modules=("op",),
    selective_default=("op",),
    positions=("rope",),
    interleaved_needs_multiple=False,
    fills_pipeline=True,
    overlaps=("grad", "param", "tp"),
    tasks=("pretrain", "sft"),
)
_OLD = replace(
    _NEW, context_kinds=("all-gather", "ring"), expert_tensor_parallel=True, sequence_parallel_with_tensor=True, tasks=("pretrain",)
)


def _spelling(version: str) -> str | None:
    """``0.2.2``, ``v0.3.0``, ``main`` or a later commit's name as one of the releases."""
    word = version.lower().removeprefix("v")
    return next((release for release in RELEASES if word == release or word.startswith(f"{release}.")), None)


def _adds_keys(source: Source) -> str:
    """The module whose configuration is merged into torchtitan's."""
    return str(source.value("job.custom_config_module") or source.value("experimental.custom_args_module") or "")


def _framework(release: str) -> Framework:
    """torchtitan at one of its releases."""
    return Framework(
        name="torchtitan",
        title="torchtitan",
        implementation="torchtitan",
        version=release,
        releases=RELEASES,
        spellings=_spelling,
        variant=_variant,
        features=_OLD if release == "0.2" else _NEW,
        limits=tuple(LIMITS[release]),
        writer=write,
        surface=surface,
        decide=decide,
        opener=open_files,
        detect=detect,
        interpreter=interpret,
        logged=lambda settings, name: logged(settings, name, surface()),
        checks=CHECKS[release],
        config_keys=("job.config_file",),
        adds_keys=_adds_keys,
        unknown_keys=partial(unknown_key, release=release),
        normal=normal,
        unspoken=UNSPOKEN,
        alternatives=(frozenset(SPLIT_KEYS),),
        resume=SHARDED,
        facts=Facts(
            allocator=CUDA_NEW,
            remedies=(
                Remedy(phase="loss", key="parallelism.disable_loss_parallel", harmful=True,
                       words="parallelism.disable_loss_parallel=false splits the logits over tp ranks"),
                Remedy(phase="gather", words="parallelism.fsdp_reshard_after_forward says whether gathered layers are kept between "
                                             "forward and backward"),
            ),
        ),
    )


def _variant(release: str) -> Framework:
    """The framework of a release."""
    return _RELEASED[release]


_RELEASED: Mapping[str, Framework] = {release: _framework(release) for release in RELEASES}
TORCHTITAN = _RELEASED["0.3"]
