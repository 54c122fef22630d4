"""Ranks and dry runs are forked, but for the tests that ask for ``fresh`` interpreters."""

from __future__ import annotations

import pytest


@pytest.fixture
def fresh() -> None:
    """Interpreters of their own, as a user's are."""


@pytest.fixture(autouse=True)
def quick_starts(request: pytest.FixtureRequest) -> None:
    if "fresh" not in request.fixturenames:
        request.getfixturevalue("forked")
