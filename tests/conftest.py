"""What all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from draws import examples

settings.register_profile("sample", examples(50))  # of properties that do not say how many
settings.load_profile("sample")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers of pytest are as many as cores


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and dry runs are forked from a process that has PyTorch imported (``warm.py``)."""
    from tests import warm

    warm.use(monkeypatch)
