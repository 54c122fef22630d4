"""Numbers as people write them: ``1_000_000``, ``15e12``, ``128k``, ``1M``, ``90%``.

Suffixes of a sequence length are binary, because "a 128k context" is 131,072 tokens and "1M" is 1,048,576; suffixes of
an amount of training tokens are decimal, because "15T tokens" are 15e12.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, TypeVar

from meshwright.errors import InputError, fault
from meshwright.readers.names import require_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.errors import Message

Value = TypeVar("Value")
MAX_COUNT = 10**12
MOST = {
    "layers": 10_000, "hidden": 10**6, "experts": 10**5, "vocabulary": 10**7,
    "nodes": 10**6, "devices": 10**7, "to_devices": 10**7, "devices_per_node": 10**4, "spare_nodes": 256,
    "global_batch": 10**8, "sequence": 2**30, "max_tokens": 2**30, "packs": 10**8, "tokens": 10**18,
    "prompts": 10**8, "responses": 10**6, "prompt_tokens": 2**30, "response_tokens": 2**30, "longest_response": 2**30,
    "updates": 10**6, "epochs": 10**4, "engine_tp": 10**4, "engine_running": 10**6,
    "data_parallel": 10**6, "align": 2**20, "seed": 2**32,
    "deadline_days": 10**5, "price_per_device_hour": 10**6, "power_w": 10**6,
    "top": 1000, "limit": 10**5, "change": 1000, "faster": 1000,
    "microbatches": 10**6, "sequence_splits": 1024, "hop": 10**12, "time_limit": 86_400,
    "ranks": 1024, "rank": 131_071, "threads": 1024, "layouts": 1000, "rounds": 1000, "steps": 100_000, "warmup": 100_000,
    "step_seconds": 3600, "minutes": 10_080, "memory": 2**60,
    "jobs": 256, "trials": 10**6, "at_once": 10_000, "device_hours": 10**9, "start_seconds": 10**6, "quiet_seconds": 10**6,
    "trial_seconds": 10**6, "truncate": 10_000,
}
"""Option -> the largest number it takes: more than anyone has, and less than what hurts. Lists of ``balance`` have their own."""
_NUMBER = re.compile(r"[+-]?([0-9][0-9_]*(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30}
_DECIMAL = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
MAX_LENGTH = 40


def text(word: str) -> str:
    """A name or a path, without the blanks around it."""
    return require_name(word.strip(), "")


def kept(text: str) -> str:
    """Text of a log, or a path, as it is."""
    return text


def words(line: str) -> str:
    """Words, which tabs and line breaks may part."""
    require_name("".join(line.split()), "")
    return line.strip()


def several(parse: Callable[[str], Value], words: Iterable[str]) -> list[Value]:
    """The value of each word.

    Errors:  ``InputError`` with what is wrong with every one of them.
    """
    values: list[Value] = []
    faults: list[Message] = []
    for word in words:
        try:
            values.append(parse(word))
        except InputError as error:
            faults += error.messages
    if faults:
        raise InputError(faults)
    return values


def within(name: str, value: Value, word: str) -> Value:
    """The value of an option, where it is no number above the option's ceiling.

    Errors:  ``InputError`` that names the ceiling.
    """
    most = MOST.get(name)
    if most is not None and isinstance(value, (int, float)) and value > most:
        raise fault("number.high", "{word} is more than {limit:,}", word=word.strip(), limit=most)
    return value


def real(word: str, written: str | None = None) -> float:
    """A finite number; ``written``: what it is a part of, which a fault shows."""
    tight = word.strip()
    if len(tight) > MAX_LENGTH or not _NUMBER.fullmatch(tight):
        raise fault("number.form", "{word!r} is not a number", word=written or word)
    value = float(tight.replace("_", ""))
    if not isfinite(value):
        raise fault("number.size", "{word} is too large", word=tight)
    return value


def count(word: str) -> int:
    """A whole number from 1."""
    return _whole(real(word), word)


def count_or_none(word: str) -> int:
    """A whole number from 0."""
    return 0 if real(word) == 0 else count(word)


def sequence(word: str) -> int:
    """Tokens of a sequence; k, M and G are powers of 1024."""
    stem, factor = _suffix(word, _BINARY)
    return _whole(real(stem, word) * factor, word)


def tokens(word: str) -> float:
    """Tokens of a whole training run; k, M, B and T are powers of 1000."""
    stem, factor = _suffix(word, _DECIMAL)
    value = real(stem, word) * factor
    if value < 1:
        raise fault("number.low", "{word} must be at least 1", word=word)
    return value


def positive(word: str) -> float:
    """A number above zero."""
    value = real(word)
    if value <= 0:
        raise fault("number.positive", "{word} must be above zero", word=word)
    return value


def share(word: str) -> float:
    """A ratio above 0 and up to 1, or percent."""
    value = _ratio(word)
    if not 0 < value <= 1:
        raise fault("number.share", "{word} must be above 0 and at most 1 (100 %)", word=word)
    return value


def reserve(word: str) -> float:
    """A ratio from 0 and below 1, or percent."""
    value = _ratio(word)
    if not 0 <= value < 1:
        raise fault("number.reserve", "{word} must be at least 0 and below 1 (100 %)", word=word)
    return value


def _ratio(word: str) -> float:
    """A number, or a number of percent."""
    tight = word.strip()
    return real(tight[:-1], word) / 100 if tight.endswith("%") else real(tight)


def _suffix(word: str, factors: dict[str, int] | dict[str, float]) -> tuple[str, float]:
    """The number in front of a suffix, and what the suffix stands for."""
    tight = word.strip()
    factor = factors.get(tight[-1:].lower())
    return (tight[:-1], factor) if factor else (tight, 1)


def _whole(value: float, word: str) -> int:
    """A count from a number that has no fraction."""
    if value != int(value):
        raise fault("number.whole", "{word} is not a whole number", word=word)
    if value < 1:
        raise fault("number.low", "{word} must be at least 1", word=word)
    if value > MAX_COUNT:
        raise fault("number.high", "{word} is more than {limit:,}", word=word, limit=MAX_COUNT)
    return int(value)


BARE = 1e6
"""Bytes below which nobody means bytes."""
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "g": 2**30, "m": 2**20}


def size(word: str) -> float:
    """Bytes: ``61.2GiB``, ``48874M`` (binary, as logs have it), ``65e9``; a number without unit below ``BARE`` is a slip."""
    found = re.fullmatch(r"\s*([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", word)
    factor = _BYTES.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise fault("number.bytes", "{word!r} is no size in bytes; write it as in 61.2GiB or 65e9", word=word)
    if not found[2] and positive(found[1]) < BARE:
        raise fault("number.unit", "{word!r} would be bytes; write its unit, as in {word}GiB", word=word.strip())
    return within("memory", positive(found[1]) * factor, word)
