"""verl with its Megatron engine: what it can express, what it refuses, how its files are written and read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.surface import Surface, load_surface
from meshwright.frameworks.verl import RELEASES
from meshwright.frameworks.verl.episode import episode
from meshwright.frameworks.verl.mistakes import checks_of, unknown_key
from meshwright.frameworks.verl.packing import cap_stays, packed_tokens
from meshwright.frameworks.verl.reading import interpret
from meshwright.frameworks.verl.sources import added_keys, detect, opener
from meshwright.frameworks.verl.writing import write
from meshwright.frameworks.verl_megatron.deciding import SECTION, UNSPOKEN, decide, normal
from meshwright.frameworks.verl_megatron.limits import limits_of
from meshwright.frameworks.verl_megatron.reading import build

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.frameworks.base import Check
    from meshwright.frameworks.settings import Given, Reading

__all__ = ["VERL_MEGATRON"]

NAME = "verl-megatron"


@cache
def surface() -> Surface:
    """Every key of verl's YAML with ``model_engine: megatron``, those of its SFT trainer, and those that a plan adds."""
    return load_surface(__name__, "verl (Megatron)", RELEASES)


def _interpret(source: Source, given: Given, release: str) -> Reading:
    return interpret(source, given, release, name=NAME, engine="megatron", surface=surface(), section=SECTION, build=build)


def _checks(release: str) -> tuple[Check, ...]:
    return checks_of(NAME, SECTION, surface(), added_keys(__name__), release)


@cache
def _at(release: str) -> Framework:
    return replace(VERL_MEGATRON, version=release, limits=limits_of(NAME, release), checks=_checks(release))


VERL_MEGATRON = Framework(
    name=NAME,
    title="verl (Megatron)",
    implementation="megatron-te",
    version=RELEASES[-1],
    releases=RELEASES,
    variant=_at,
    features=Features(
        name=NAME, zero_stages=(0, 1), offload_zero_stages=(1,), partial_sharding=False,
        selective_modules=("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"),
        positions=("rope",), overlaps=("grad", "p2p"),
    ),
    limits=limits_of(NAME, RELEASES[-1]),
    writer=partial(write, "megatron", decide, added_keys(__name__)),
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
    alternatives=tuple(
        frozenset(
            f"{engine}.override_transformer_config.{name}"
            for name in ("pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage",
                         "num_layers_in_last_pipeline_stage", "account_for_embedding_in_pipeline_split",
                         "account_for_loss_in_pipeline_split")
        )
        for engine in ("engine", f"actor_rollout_ref.actor.{SECTION}")
    ),
)
