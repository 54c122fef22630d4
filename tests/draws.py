"""How much random tests draw: a sample, the same every time; ``MESHWRIGHT_FUZZ=N`` draws N times as much, others for each N."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("MESHWRIGHT_FUZZ", "0"))
"""Factor on the number of draws; 0: the same few every time."""


def draws(number: int) -> int:
    """So many of a sample, or more of them."""
    return number * max(1, FUZZ)


def seed(number: int) -> int:
    """The seed of a sample, or another one."""
    return number + 1000 * FUZZ


def examples(number: int) -> settings:
    """Settings of a property: so many examples, no deadline (the machine is shared)."""
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(
        max_examples=draws(number), deadline=None, derandomize=FUZZ == 0, database=None, suppress_health_check=quiet
    )
