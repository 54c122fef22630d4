"""What ``balance`` is told in lists: bounds of stages, numbers of virtual stages, ways of recomputing."""

from __future__ import annotations

from meshwright.api import numbers
from meshwright.errors import did_you_mean, fault

MAX_CHUNKS, MOST_STAGES = 64, 1024
MAX_MEMORY_MB = 1e12
AUTO: tuple[int, ...] = ()
"""As many virtual stages as pay."""
KINDS = ("selective", "communication", "both", "full")
_SHORT = {"select": "selective", "slct": "selective", "comm": "communication"}


def stages(word: str) -> int:
    """A number of pipeline stages."""
    value = numbers.count(word)
    if value > MOST_STAGES:
        raise fault("balance.many-stages", "{value} stages are more than {limit}", value=value, limit=MOST_STAGES)
    return value


def bounds(word: str) -> tuple[float, ...]:
    """``53000``, or one bound for each stage: ``53000,53000,60000``."""
    values = tuple(numbers.several(numbers.positive, word.split(",", MOST_STAGES + 1)[: MOST_STAGES + 1]))
    for value in values:
        if value > MAX_MEMORY_MB:
            raise fault("balance.large-bound", "{value:g} MB is more than any device has", value=value)
    return values


def chunk_counts(word: str) -> tuple[int, ...]:
    """``2``, ``1,2,3`` or ``auto`` (nothing said)."""
    if word.strip().lower() == "auto":
        return AUTO
    values = tuple(dict.fromkeys(numbers.several(numbers.count, word.split(",", MAX_CHUNKS))))
    if max(values) > MAX_CHUNKS:
        raise fault("balance.many-chunks", "{value} virtual stages are more than {limit}", value=max(values), limit=MAX_CHUNKS)
    return values


def kinds(word: str) -> tuple[str, ...]:
    """Ways of recomputing: ``full,selective``; SAPP's short words are understood."""
    found = []
    for each in word.lower().replace("+", ",").split(","):
        name = _SHORT.get(each.strip(), each.strip())
        if name == "none":
            continue
        if name not in KINDS:
            raise fault("balance.kind", "{name!r} is none of {known}{hint}", name=name, known=KINDS,
                        hint=did_you_mean(name, KINDS))
        found.append(name)
    return tuple(name for name in KINDS if name in found)
