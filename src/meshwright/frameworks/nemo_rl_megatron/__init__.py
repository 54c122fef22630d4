"""NeMo-RL with its Megatron back end (``policy.megatron_cfg``): Megatron-Bridge's models under keys of its own."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.nemo_rl import RELEASES
from meshwright.frameworks.nemo_rl.episode import episode
from meshwright.frameworks.nemo_rl.guide import TITLES
from meshwright.frameworks.nemo_rl.keys import MEGATRON
from meshwright.frameworks.nemo_rl.mistakes import checks_of, unknown_key
from meshwright.frameworks.nemo_rl.packing import packed_tokens, stays
from meshwright.frameworks.nemo_rl.reading import interpret
from meshwright.frameworks.nemo_rl.sources import open_files
from meshwright.frameworks.nemo_rl.writing import MEGATRON_OPTIMIZER, write
from meshwright.frameworks.nemo_rl_megatron.deciding import DDP, ENDS, KEYS, MODULES, NEEDED, OPTIMIZER, UNSPOKEN, decide, normal
from meshwright.frameworks.nemo_rl_megatron.limits import limits_of
from meshwright.frameworks.nemo_rl_megatron.reading import build
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.documents.source import Source
    from meshwright.frameworks.settings import Given, Reading

__all__ = ["NEMO_RL_MEGATRON"]

NAME, TITLE, RELEASE = "nemo-rl-megatron", TITLES[MEGATRON], RELEASES[-1]
_OWN = {
    "policy.optimizer": None, f"{MEGATRON}.pipeline_dtype": "bfloat16", f"{MEGATRON}.scheduler.lr_warmup_init": 0.0,
    f"{DDP}.grad_reduce_in_fp32": True, **dict.fromkeys((*ENDS, MODULES)),
    **{f"{OPTIMIZER}.{name}": value for name, value in MEGATRON_OPTIMIZER.items()},
}
"""What prices assume, and what NeMo-RL's recipes have for the other back end."""
_DEGREES = {row.key: row.what for row in KEYS if isinstance(row.what, str)}


@cache
def surface() -> Surface:
    """Every key of NeMo-RL's recipes but those of the other back end."""
    return load_surface(__name__, TITLE, RELEASES)


def _interpret(source: Source, given: Given, release: str) -> Reading:
    return interpret(source, given, release, name=NAME, section=MEGATRON, surface=surface(), needed=NEEDED, build=build)


NEMO_RL_MEGATRON = Framework(
    name=NAME,
    title=TITLE,
    implementation="megatron-te",
    version=RELEASE,
    releases=RELEASES,
    features=Features(
        name=NAME, schedules=("1f1b",), zero_stages=(0, 1), offload_zero_stages=(1,), partial_sharding=False,
        recompute_first_layers=False,
        selective_modules=("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"),
        positions=("rope",), overlaps=("grad", "param", "p2p"), dispatchers=("alltoall", "flex"),
    ),
    limits=limits_of(NAME, RELEASE),
    writer=partial(write, MEGATRON, decide, _OWN),
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=_interpret,
    checks=checks_of(NAME, MEGATRON, RELEASE, NEEDED),
    unknown_keys=partial(unknown_key, MEGATRON, surface),
    config_keys=("--config",),
    normal=normal,
    unspoken=UNSPOKEN,
    stays=partial(stays, _DEGREES),
    facts=Facts(packed_tokens=packed_tokens, episode=episode),
    alternatives=(frozenset(ENDS),),
)
