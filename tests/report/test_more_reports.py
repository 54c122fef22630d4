"""Every report, view and picture that round figures make is as it was."""

from __future__ import annotations

import pytest
from more_reports import pictures, reports
from report_samples import GOLDEN

NAMES = sorted(path.name for path in (GOLDEN / "more").iterdir())


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What they are now."""
    return reports()


@pytest.mark.parametrize("name", NAMES)
def test_every_report_is_as_it_was(found: dict[str, str], name: str) -> None:
    wanted = (GOLDEN / "more" / name).read_text(encoding="utf-8")
    assert found[name] == wanted, "wanted? PYTHONPATH=src python tests/report/more_reports.py --update-golden"


def test_every_report_has_its_golden_file_and_every_picture_is_another_one(found: dict[str, str]) -> None:
    assert sorted(found) == NAMES
    assert len(set(pictures().values())) == len(pictures())
