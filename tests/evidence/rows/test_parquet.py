"""Runs as Parquet say what they say as CSV; what is no Parquet, or cannot be read, is one line."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.evidence.rows import parquet
from meshwright.evidence.rows.columns import COUNTS, DEGREES, RATES, SCHEMA
from meshwright.evidence.rows.table import read_table, shipped_path

WHY = "the extra arrow is not installed: pip install 'meshwright[arrow]'"
WORD = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8)
WHOLE = st.one_of(st.just(""), st.integers(-1, 10**9).map(str))
RATE = st.one_of(st.just(""), st.floats(1e-6, 1e12).map(repr))


def test_the_corpus_is_the_same_as_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason=WHY)
    with shipped_path().open(encoding="utf-8") as file:
        rows = [{name: row.get(name) or "" for name in SCHEMA} for row in csv.DictReader(file)][:400]
    with (tmp_path / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, SCHEMA)
        table.writeheader()
        table.writerows(rows)
    with (tmp_path / "runs.parquet").open("wb") as stream:
        parquet.write(rows, stream)
    one, other = read_table(tmp_path / "runs.csv"), read_table(tmp_path / "runs.parquet")
    assert len(one.rows) > 300
    assert [replace(each, line=0) for each in one.rows] == [replace(each, line=0) for each in other.rows]
    assert [(each.id, each.kind) for each in one.skipped] == [(each.id, each.kind) for each in other.skipped]


@given(st.lists(st.tuples(WORD, WHOLE, WHOLE, RATE), min_size=1, max_size=5))
def test_cells_come_back(tmp_path_factory, drawn):
    pytest.importorskip("pyarrow", reason=WHY)
    path = tmp_path_factory.mktemp("p") / "x.parquet"
    names = ("notes", DEGREES[0], COUNTS[0], RATES[1])
    rows = [dict.fromkeys(SCHEMA, "") | dict(zip(names, each, strict=True)) for each in drawn]
    with path.open("wb") as stream:
        parquet.write(rows, stream)
    found = [dict(zip(SCHEMA, each, strict=True)) for each in parquet.cells(str(path))]
    for row, back in zip(rows, found, strict=True):
        assert [back[name] for name in names[:3]] == [row[name] for name in names[:3]]
        assert (back[names[3]] == row[names[3]] == "") or float(back[names[3]]) == float(row[names[3]])


def test_what_is_no_parquet_is_one_line(tmp_path):
    pytest.importorskip("pyarrow", reason=WHY)
    whole = io.BytesIO()
    parquet.write([dict.fromkeys(SCHEMA, "")], whole)
    for content in (b"PAR1", whole.getvalue()[:-8], whole.getvalue()[:4] + b"\xff" * 400 + whole.getvalue()[404:]):
        (tmp_path / "bad.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.parquet: cannot be read as Parquet"):
            read_table(tmp_path / "bad.parquet")


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "find_spec", lambda name: None)
    (tmp_path / "runs.csv").write_bytes(b"PAR1 whatever its name")
    with pytest.raises(InputError, match=r"runs\.csv: a \.parquet needs pyarrow.*pip install 'meshwright\[arrow\]'"):
        read_table(tmp_path / "runs.csv")
