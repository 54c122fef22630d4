"""A plugin of pytest: which test executes which line of the package, and how long each takes, into the file ``SEEN_DATA``.

What is executed while fixtures are set up is put down to the whole file: other tests use them, too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP = "setup"
DATA = Path(os.environ["SEEN_DATA"])
seeing = coverage.Coverage(data_file=str(DATA), source=[os.environ["SEEN_SOURCE"]], config_file=False, messages=False)
seeing.start()
took_s: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seeing.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        seeing.switch_context(SETUP)


def pytest_collection_finish() -> None:
    seeing.switch_context(SETUP)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    took_s[report.nodeid] = took_s.get(report.nodeid, 0.0) + report.duration


def pytest_unconfigure() -> None:
    seeing.stop()
    seeing.save()
    DATA.with_suffix(".json").write_text(json.dumps(took_s), encoding="utf-8")
