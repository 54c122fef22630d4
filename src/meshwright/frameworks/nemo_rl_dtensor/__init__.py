"""NeMo-RL with its DTensor back end (``policy.dtensor_cfg``): FSDP2 over NeMo Automodel's second worker."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.divisibility import whole_sequences
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.nemo_rl import RELEASES
from meshwright.frameworks.nemo_rl.episode import episode
from meshwright.frameworks.nemo_rl.guide import TITLES
from meshwright.frameworks.nemo_rl.keys import DTENSOR
from meshwright.frameworks.nemo_rl.mistakes import checks_of, unknown_key
from meshwright.frameworks.nemo_rl.packing import packed_tokens, stays
from meshwright.frameworks.nemo_rl.reading import interpret
from meshwright.frameworks.nemo_rl.sources import open_files
from meshwright.frameworks.nemo_rl.writing import write
from meshwright.frameworks.nemo_rl_dtensor.deciding import EXPERTS, KEYS, KIND, NEEDED, UNSPOKEN, decide, normal
from meshwright.frameworks.nemo_rl_dtensor.limits import limits_of
from meshwright.frameworks.nemo_rl_dtensor.reading import build
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.frameworks.settings import Given, Reading

__all__ = ["NEMO_RL_DTENSOR"]

NAME, TITLE, RELEASE = "nemo-rl-dtensor", TITLES[DTENSOR], RELEASES[-1]
_OWN = {f"{DTENSOR}._v2": True, EXPERTS: 1}
_DEGREES = {row.key: row.what for row in KEYS if isinstance(row.what, str)}
_FEATURES = Features(
    name=NAME,
    schedules=("1f1b",),
    zero_stages=(3,),
    offload_zero_stages=(3,),
    pipeline_parallel=False,
    expert_parallel=False,
    expert_tensor_parallel=False,
    uneven_stages=False,
    context_kinds=(KIND,),
    recompute=("none", "full"),
    recompute_first_layers=False,
    positions=("rope", "learned", "none"),
    overlaps=("grad", "param"),
)


@cache
def surface() -> Surface:
    """Every key of NeMo-RL's recipes but those of the other back end."""
    return load_surface(__name__, TITLE, RELEASES)


def _interpret(source: Source, given: Given, release: str) -> Reading:
    return interpret(source, given, release, name=NAME, section=DTENSOR, surface=surface(), needed=NEEDED, build=build)


NEMO_RL_DTENSOR = Framework(
    name=NAME,
    title=TITLE,
    implementation="chatlearn-fsdp",
    version=RELEASE,
    releases=RELEASES,
    features=_FEATURES,
    narrowed=partial(whole_sequences, _FEATURES),
    limits=limits_of(RELEASE, _FEATURES),
    writer=partial(write, DTENSOR, decide, _OWN),
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=_interpret,
    checks=checks_of(NAME, DTENSOR, RELEASE, NEEDED),
    unknown_keys=partial(unknown_key, DTENSOR, surface),
    config_keys=("--config",),
    normal=normal,
    unspoken=UNSPOKEN,
    stays=partial(stays, _DEGREES),
    facts=Facts(packed_tokens=packed_tokens, episode=episode),
)
