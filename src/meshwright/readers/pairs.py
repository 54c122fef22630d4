"""Keys with values and figures with units, as logs print them: ``key: value | key=value2/value3``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from meshwright.readers.loose import MOST
from meshwright.units import GIB, KIB, MIB, TIB

_APART = re.compile(r"[^a-z0-9/%]+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]{0,24}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,3})?")
_COUNTS = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_SIZES = {"": 1.0, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"\s*([KMGT]?)i?B(?:ytes)?\b", re.IGNORECASE)
_COUNT = re.compile(r"\s?([KMBGT])(?![a-zA-Z])")


@lru_cache(maxsize=4096)
def key(text: str) -> str:
    """A key as it is looked up: small letters, and one blank for whatever stands between words.

    >>> key("elapsed_time_per_iteration_ms"), key(" elapsed time per iteration (ms)")
    ('elapsed time per iteration ms', 'elapsed time per iteration ms')
    """
    return _APART.sub(" ", text.lower()).strip()


def pairs(text: str) -> dict[str, str]:
    """The pairs of a line whose fields are parted by bars; the first of a key counts.

    >>> pairs("consumed samples: 40 | elapsed (ms): 13.1/13.2 | [LM]TFLOPs=20.3 |")
    {'consumed samples': '40', 'elapsed ms': '13.1/13.2', 'lm tflops': '20.3'}
    """
    found: dict[str, str] = {}
    for field in text.split("|"):
        at = min((place for place in (field.find(":"), field.find("=")) if place > 0), default=-1)
        if at > 0 and (name := key(field[:at])):
            found.setdefault(name, field[at + 1:].strip())
    return found


def number(text: str | None) -> float | None:
    """The number that a text begins with; None without one, and for one that is larger than any figure of a run.

    >>> number("13100.0/13240.9"), number("10,050 tokens"), number("nan"), number("1e308"), number(None)
    (13100.0, 10050.0, None, None, None)
    """
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        found = _NUMBER.match(text.lstrip())
        if found is None:
            return None
        value = float(found[0].replace(",", ""))
    return value if -MOST <= value <= MOST else None


def count(text: str | None) -> float | None:
    """A number with a suffix that stands for a power of a thousand.

    >>> count("11.5K"), count("85.8G"), count("64")
    (11500.0, 85800000000.0, 64.0)
    """
    value = number(text)
    if value is None or text is None:
        return None
    suffix = _COUNT.match(text.lstrip(), _end(text))
    return value * _COUNTS[suffix[1]] if suffix else value


def size(text: str | None) -> float | None:
    """A size in bytes; allocators count in powers of 1024, whether they write GiB or GB.

    >>> size("66.91GiB(37.51%)") == 66.91 * 2**30, size("98.25 MB") == 98.25 * 2**20
    (True, True)
    """
    value = number(text)
    if value is None or text is None:
        return None
    unit = _SIZE.match(text.lstrip(), _end(text))
    return value * _SIZES[unit[1].upper()] if unit else None


def _end(text: str) -> int:
    found = _NUMBER.match(text.lstrip())
    return found.end() if found else 0


def first(fields: Mapping[str, str], *names: str) -> str | None:
    """What the first of the keys says that is there."""
    return next((fields[name] for name in names if name in fields), None)
