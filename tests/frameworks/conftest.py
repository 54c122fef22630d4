"""Oracles serve all tests of a process and end with them."""

from __future__ import annotations

from collections.abc import Iterator

import oracles_run
import pytest


@pytest.fixture(scope="session", autouse=True)
def oracles_end() -> Iterator[None]:
    yield
    oracles_run.end_all()
