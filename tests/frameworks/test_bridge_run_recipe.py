"""Megatron-Bridge itself on launches of the kept verdicts, from a checkout (``bridge_cases``): it still says what is kept."""

import bridge_cases
import pytest
from benchmarks.verdicts import case_of, files_of, layout_of, tables

EACH = 4
"""Plans, and refused launches, that are asked again."""


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(bool(bridge_cases.absent()), reason=bridge_cases.absent() or "present")
def test_bridge_says_what_is_kept():
    table = next(each for each in tables() if each.name == f"bridge@{bridge_cases.release()}")
    rows = (*table.plans[:EACH], *table.refused[:EACH])
    cases = [case_of(table.name, row) for row in rows]
    written = [(files_of(table.name, row), case, layout_of(table.name, row, case)) for row, case in zip(rows, cases, strict=True)]
    said = bridge_cases.verdicts(written)
    assert [(each["accepted"], each["why"][:200]) for each in said] == [(row.accepted, row.why) for row in rows]
