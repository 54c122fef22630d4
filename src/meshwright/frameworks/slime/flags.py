"""slime's command line: Megatron-LM's flags, and its own beside and above them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.megatron.flags import surface as megatron_surface
from meshwright.frameworks.surface import Surface, load_surface

if TYPE_CHECKING:
    from meshwright.domain.case import Case

NAME = TITLE = "slime"
RELEASES = ("624b824a",)
"""The commit (2026-08-21); slime has no numbered releases that its images name."""
CORE = "0.16"
"""The Megatron-LM that its image builds (1dcf0daf, 0.16.0rc0, with a patch); docs/sources.md#slime."""
DYNAMIC, CAP, MICRO = "--use-dynamic-batch-size", "--max-tokens-per-gpu", "--micro-batch-size"
BATCH, STEPS = "--global-batch-size", "--num-steps-per-rollout"
PROMPTS, RESPONSES = "--rollout-batch-size", "--n-samples-per-prompt"
NODES, PER_NODE = "--actor-num-nodes", "--actor-num-gpus-per-node"
PROGRAM, ASYNC = "train.py", "train_async.py"
OPEN = ("--sglang-", "--router-")
"""Flags of SGLang's server and router begin so; of them only a few are in the table."""


@cache
def surface() -> Surface:
    """Every flag of Megatron-LM and of slime, with slime's defaults."""
    own = load_surface(__package__ or "", TITLE, RELEASES)
    below = {name: (structs.replace(key, since=0, until=0),) for name, key in megatron_surface().at(CORE).items()}
    return replace(own, keys={**below, **own.keys})


def is_tuning(case: Case) -> bool:
    """Whether prompts and answers are learnt; everything else that trains all weights is reinforcement learning here."""
    return case.training.task == "sft"


def own_id(id: str) -> str:
    """An identifier of Megatron-LM as one of ours; others as they are.

    >>> own_id("megatron.heads"), own_id("setting.degree")
    ('slime.heads', 'setting.degree')
    """
    return f"{NAME}.{id.removeprefix('megatron.')}" if id.startswith("megatron.") else id
