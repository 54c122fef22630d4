"""Every report, view and picture that round figures make is as it was."""

from __future__ import annotations

import pytest
from more_reports import pictures, reports
from report_samples import GOLDEN

REPORTS = reports()


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_report_is_as_it_was(name: str) -> None:
    wanted = (GOLDEN / "more" / name).read_text(encoding="utf-8")
    assert REPORTS[name] == wanted, "wanted? PYTHONPATH=src python tests/report/more_reports.py --update-golden"


def test_every_golden_file_is_one_of_a_report() -> None:
    assert {path.name for path in (GOLDEN / "more").iterdir()} == set(REPORTS)
    assert len(set(pictures().values())) == len(pictures())
