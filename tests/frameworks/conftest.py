"""Oracles serve all tests of a process and end with them."""

from __future__ import annotations

from collections.abc import Iterator

import oracles_run
import pytest


@pytest.fixture(scope="session", autouse=True)
def oracles_end() -> Iterator[None]:
    yield
    oracles_run.end_all()


@pytest.fixture(autouse=True)
def _compared_with_nothing(alone: None) -> None:
    """What frameworks write, read and refuse of a plan has no linearity in it."""
