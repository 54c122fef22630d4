"""verl with its FSDP engine: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.divisibility import whole_sequences
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.surface import Surface, load_surface
from meshwright.frameworks.verl import RELEASES
from meshwright.frameworks.verl.episode import episode
from meshwright.frameworks.verl.mistakes import checks_of, unknown_key
from meshwright.frameworks.verl.packing import cap_stays, packed_tokens
from meshwright.frameworks.verl.reading import interpret
from meshwright.frameworks.verl.sources import added_keys, detect, opener
from meshwright.frameworks.verl.writing import write
from meshwright.frameworks.verl_fsdp.deciding import SECTION, UNSPOKEN, decide, normal
from meshwright.frameworks.verl_fsdp.limits import limits_of
from meshwright.frameworks.verl_fsdp.reading import build

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.frameworks.base import Check
    from meshwright.frameworks.settings import Given, Reading

__all__ = ["VERL_FSDP"]

NAME = "verl-fsdp"
_FEATURES = Features(
    name=NAME,
    schedules=("1f1b",),
    zero_stages=(2, 3),
    offload_zero_stages=(2, 3),
    partial_sharding=True,
    tensor_parallel=False,
    pipeline_parallel=False,
    expert_parallel=False,
    expert_tensor_parallel=False,
    sequence_parallel=False,
    uneven_stages=False,
    context_kinds=("ulysses",),
    recompute=("none", "full"),
    recompute_first_layers=False,
    positions=("rope", "learned", "none"),
    overlaps=("grad", "param"),
)


@cache
def surface() -> Surface:
    """Every key of verl's YAML with ``model_engine: dp``, and those of its SFT trainer."""
    return load_surface(__name__, "verl (FSDP)", RELEASES)


def _interpret(source: Source, given: Given, release: str) -> Reading:
    return interpret(source, given, release, name=NAME, engine="dp", surface=surface(), section=SECTION, build=build)


def _checks(release: str) -> tuple[Check, ...]:
    return checks_of(NAME, SECTION, surface(), added_keys(__name__), release)


@cache
def _at(release: str) -> Framework:
    return replace(VERL_FSDP, version=release, limits=limits_of(release, _FEATURES), checks=_checks(release))


VERL_FSDP = Framework(
    name=NAME,
    title="verl (FSDP)",
    implementation="chatlearn-fsdp",
    version=RELEASES[-1],
    releases=RELEASES,
    variant=_at,
    features=_FEATURES,
    narrowed=partial(whole_sequences, _FEATURES),
    limits=limits_of(RELEASES[-1], _FEATURES),
    writer=partial(write, "fsdp", decide, added_keys(__name__)),
    surface=surface,
    decide=decide,
    opener=opener(__name__),
    detect=lambda source: detect(source, surface()),
    interpreter=_interpret,
    checks=_checks(RELEASES[-1]),
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=UNSPOKEN,
    stays=partial(cap_stays, SECTION),
    facts=Facts(packed_tokens=partial(packed_tokens, SECTION), episode=episode),
    alternatives=(
        frozenset({"actor_rollout_ref.actor.ulysses_sequence_parallel_size",
                   "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"}),
    ),
)
