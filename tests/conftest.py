"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from importlib import import_module

import pytest
from hypothesis import settings
from tests.shared import folder_of

from draws import examples

pytest_plugins = ["drawn_cases"]
settings.register_profile("sample", examples(50))  # of properties that do not say how many
settings.load_profile("sample")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers of pytest are as many as cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and dry runs are forked from a process that has PyTorch imported (``warm.py``)."""
    from tests import warm

    warm.use(monkeypatch)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan is compared with one on fewer nodes, as where there is none: its linearity is not what is looked at."""
    monkeypatch.setattr(import_module("meshwright.search.linearity"), "baseline", lambda *_, **__: None)


@pytest.fixture
def unrivalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """``check`` searches no better layout than that of the files, as where it would take too long."""
    monkeypatch.setattr(import_module("meshwright.check.waste"), "_best", lambda _: (None, ()))


def pytest_sessionstart() -> None:
    """What a killed run left under this process's number is not this run's."""
    shutil.rmtree(folder_of(os.getpid()), ignore_errors=True)


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: no collection of garbage goes through it again, and few are needed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish() -> None:
    """What workers shared goes with the process that started them."""
    shutil.rmtree(folder_of(os.getpid()), ignore_errors=True)
