"""What the names of timers mean: one small vocabulary for every framework's, and which timer contains which.

A step keeps the names that its log has; whoever wants to compare asks here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from meshwright.readers.shipped import load_shipped

PHASES = (
    "generation", "rewards", "log_probs", "old_log_probs", "reference_log_probs", "values", "advantages", "critic", "actor",
    "weights", "switching",
)
"""What a step of reinforcement learning goes through, in this order.

``log_probs``: both passes, where a log does not tell them apart; ``weights``: from the trainer to the engine; ``switching``: one
gives way to the other on the same devices.
"""
PARTS = (
    "data", "forward", "backward", "forward_backward", "receive", "send", "embedding_reduce", "gradient_reduce", "parameter_gather",
    "optimizer", "checkpoint", "evaluation", "tensor_parallel", "moe", *PHASES, "other",
)
"""``forward_backward``: both, where a log does not tell them apart; ``other``: a timer that nobody knows."""


Names = tuple[tuple[str, re.Pattern[str]], ...]
Parents = tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]


@cache
def _table() -> tuple[Names, Parents, re.Pattern[str]]:
    document: Any = load_shipped(Path(__file__).with_name("parts.yaml"))
    parts = tuple((part, re.compile("|".join(names))) for part, names in document["parts"].items())
    within = tuple((re.compile(name), tuple(parents)) for name, parents in document["within"].items())
    return parts, within, re.compile("|".join(document["outside"]))


@lru_cache(maxsize=4096)
def part_of(timer: str) -> str:
    """The part that a timer's name stands for.

    >>> part_of("backward-params-all-reduce"), part_of("fwd"), part_of("something-new")
    ('gradient_reduce', 'forward', 'other')
    """
    name = timer.strip().lower()
    return next((part for part, names in _table()[0] if names.fullmatch(name)), "other")


@lru_cache(maxsize=4096)
def outside(timer: str) -> bool:
    """Whether such a timer is no part of a step."""
    return _table()[2].fullmatch(timer.strip().lower()) is not None


def split(timers: Mapping[str, float]) -> dict[str, float]:
    """Timers of a step as parts that do not overlap: of a timer that contains others what they leave; seconds.

    >>> split({"forward-compute": 3.0, "batch-generator": 1.0, "optimizer": 2.0, "optimizer-inner-step": 1.5})
    {'forward': 2.0, 'data': 1.0, 'optimizer': 2.0}
    """
    own = dict(timers)
    for name, value in timers.items():
        parent = _parent(name, timers)
        if parent is not None:
            own[parent] = max(0.0, own[parent] - value)
    found: dict[str, float] = {}
    for name, value in own.items():
        part = part_of(name)
        found[part] = found.get(part, 0.0) + value
    return found


def _parent(timer: str, timers: Mapping[str, float]) -> str | None:
    """Of the timers of a step the one that contains this one."""
    name = timer.strip().lower()
    parents = next((parents for pattern, parents in _table()[1] if pattern.fullmatch(name)), ())
    return next((parent for parent in parents if parent in timers), None)
