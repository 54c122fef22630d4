"""What the tests of this room share."""

from __future__ import annotations

import pytest
from tests import searches


@pytest.fixture(autouse=True)
def _searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches.remember(monkeypatch)
