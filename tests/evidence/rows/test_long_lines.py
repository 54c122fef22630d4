"""How long a line of a table may be."""

import csv
import io

import pytest

from meshwright.evidence.rows import records
from meshwright.evidence.rows.records import _Lines


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_of_the_greatest_length_is_read_and_a_longer_one_is_refused_whole(end, monkeypatch):
    monkeypatch.setattr(records, "MAX_LINE", 8)
    assert list(_Lines(io.StringIO(f"12345678{end}"))) == [f"12345678{end}"]
    lines = _Lines(io.StringIO(f"123456789012345678901234567890{end}"))
    with pytest.raises(csv.Error, match="more than 8 characters"):
        next(lines)
    assert list(lines) == []
