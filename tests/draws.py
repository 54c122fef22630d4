"""How much random tests draw: a sample, the same every time; ``MESHWRIGHT_FUZZ=N`` draws N times what tests name.

The draws differ with N. Of long tables of cases a sample stands in the default run, and the rest behind ``-m matrix``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("MESHWRIGHT_FUZZ", "0"))
"""Factor on the number of draws; 0: the same few every time."""
SAMPLE = 4
"""The sample is one of so many, and never fewer than ``LEAST`` of those that there are."""
LEAST = 2


def draws(number: int) -> int:
    """So many, or more of them, or a sample of them."""
    return number * FUZZ if FUZZ else min(number, max(LEAST, number // SAMPLE))


def seed(number: int) -> int:
    """The seed of a sample, or another one."""
    return number + 1000 * FUZZ


def examples(number: int) -> settings:
    """Settings of a property: so many examples, no deadline (the machine is shared)."""
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(
        max_examples=draws(number), deadline=None, derandomize=FUZZ == 0, database=None, suppress_health_check=quiet
    )


def one_of(every: int, cases: Iterable[Any], *, first: int = 0) -> list[Any]:
    """Cases of a table: one of so many as they are, the others marked to run with ``-m matrix`` alone."""
    return [
        case if number % every == first else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.matrix)
        for number, case in enumerate(cases)
    ]


def together(name: str, cases: Iterable[Any], *, size: int = 50, called: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """In place of ``parametrize`` where cases are many and take next to nothing: ``size`` of them a test, which says all that fail.

    A test of its own costs 2 ms, whatever it asks.
    """
    every = list(cases)
    parts = [every[begin : begin + size] for begin in range(0, len(every), size)]

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def several(**asked: Any) -> None:
            failed: dict[str, Exception] = {}
            for case in asked.pop(name):
                try:
                    test(**{name: case}, **asked)
                except Exception as error:
                    failed[called(case)] = error
            if failed:
                said = "\n".join(f"{case}: {type(error).__name__}: {error}" for case, error in failed.items())
                raise AssertionError(said) from next(iter(failed.values()))

        return pytest.mark.parametrize(name, parts, ids=[f"{called(part[0])} and {len(part) - 1} more" for part in parts])(several)

    return decorate
