"""Real files of runs, and what a correct reader makes of each: ``python -m benchmarks.samples [--write]``.

The files are not in this repository; ``MESHWRIGHT_SAMPLES`` names their directory. Each module has one family's ``EXPECTED``: what
the list that comes with the files says, and how it is asked of what was read. Tests ask the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from meshwright.readers.formats import Observed, observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One figure of one file."""

    file: str
    """Below the directory of samples; a directory for what needs several files."""
    what: str
    want: float | str | None
    got: Callable[[Observed], float | str | None]
    tolerance_ratio: float = 1e-6


def directory() -> Path | None:
    """Where the files are; None where nobody said."""
    named = os.environ.get("MESHWRIGHT_SAMPLES", "")
    return Path(named) if named and Path(named).is_dir() else None


def everything() -> tuple[Expected, ...]:
    """What is expected of all families."""
    modules = sorted(each.name for each in iter_modules(__path__) if not each.name.startswith("_"))
    return tuple(each for name in modules for each in import_module(f"{__name__}.{name}").EXPECTED)


def right(expected: Expected, got: float | str | None) -> bool:
    """Whether what was read is what was to be read."""
    if isinstance(expected.want, str) or expected.want is None or isinstance(got, str) or got is None:
        return got == expected.want
    return abs(got - expected.want) <= expected.tolerance_ratio * abs(expected.want)


def ask(expected: Expected, samples: Path) -> float | str | None:
    """What is read of the file."""
    return expected.got(_observed(samples / expected.file))


@lru_cache(maxsize=1)
def _observed(path: Path) -> Observed:
    """The last file is read once, however much is asked of it."""
    return observe((path,))
