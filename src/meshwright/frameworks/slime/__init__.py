"""slime: reinforcement learning with Megatron-LM, whose flags it takes beside its own and those of SGLang."""

from __future__ import annotations

from dataclasses import replace

from meshwright.frameworks.base import Framework
from meshwright.frameworks.facts import Facts, Remedy
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.slime.deciding import decide, normal
from meshwright.frameworks.slime.episode import episode
from meshwright.frameworks.slime.flags import CORE, NAME, RELEASES, TITLE, surface
from meshwright.frameworks.slime.limits import all_limits
from meshwright.frameworks.slime.mistakes import CHECKS, unknown_key
from meshwright.frameworks.slime.packing import cap_stays, packed_tokens
from meshwright.frameworks.slime.reading import interpret
from meshwright.frameworks.slime.sources import open_files, other_program
from meshwright.frameworks.slime.writing import write

__all__ = ["SLIME"]

_BELOW = MEGATRON.at(CORE)
_FEATURES = replace(
    _BELOW.features, name=NAME, zero_stages=(0, 1), offload_zero_stages=(1,), context_kinds=("ring",),
    overlaps=tuple(word for word in _BELOW.features.overlaps if word != "tp"), offloads=(), plain_optimizers=(),
    tasks=("pretrain", "sft"),
)
SLIME = Framework(
    name=NAME,
    title=TITLE,
    implementation=MEGATRON.implementation,
    version=RELEASES[-1],
    releases=RELEASES,
    features=_FEATURES,
    limits=all_limits(),
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=interpret,
    checks=CHECKS,
    adds_keys=other_program,
    unknown_keys=unknown_key,
    normal=normal,
    unspoken=MEGATRON.unspoken,
    stays=cap_stays,
    alternatives=MEGATRON.alternatives,
    facts=Facts(
        episode=episode,
        stages_inside_key=MEGATRON.facts.stages_inside_key, fork_of=MEGATRON.name,
        signs=r"--rollout-batch-size|--actor-num-gpus-per-node|--num-rollout|--rollout-num-gpus",
        remedies=(Remedy(
            phase="loss", key="--log-probs-chunk-size",
            words="--log-probs-chunk-size 1024 computes log-probabilities of some tokens at a time"),),
        packed_tokens=packed_tokens,
    ),
)
