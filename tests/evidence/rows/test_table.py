"""Hostile tables: every row is read or left out with its reason, and nothing else happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evidence.scored_rows import steady

from meshwright.errors import InputError
from meshwright.evidence.rows import table as table_module
from meshwright.evidence.rows.columns import RATIOS, SCHEMA, SWITCHES
from meshwright.evidence.rows.row import row_of
from meshwright.evidence.rows.table import (
    Skipped,
    count_reasons,
    has_results,
    open_table,
    read_table,
    shipped_table,
    step_times,
)

HEADER = "id,framework,model,gpu,n_gpus,seq,gbs,mbs,tp,pp,step_time_s,tokens_per_s_per_gpu,mem_gb,status,flag"
GOOD = "a-1,nanotron,m,h100,8,4096,256,1,2,1,1.5,,60.5,ok,"


def cells(**changed):
    values = dict(zip(HEADER.split(","), GOOD.split(","), strict=True)) | changed
    return ",".join(values.values())


@pytest.fixture
def table(tmp_path):
    def read(*lines, header=HEADER, raw=None):
        path = tmp_path / "runs.csv"
        path.write_bytes(raw if raw is not None else "\n".join((header, *lines, "")).encode())
        return read_table(path)

    return read


def test_the_shipped_corpus_is_read_whole():
    found = shipped_table()
    assert len(found.rows) + len(found.skipped) == 3868
    assert count_reasons(found.skipped) == {"flagged": 65}
    assert found.unknown_columns == ()


def test_a_good_row_is_typed_and_blank_where_it_says_nothing(table):
    found = table(GOOD, cells(id="a-2", tp="2.0", mbs=" 1 "))
    assert found.skipped == ()
    first, second = found.rows
    assert (first.line, second.line) == (2, 3)
    assert (first.virtual_stages, first.notes, first.shape.hidden, first.sequence_parallel) == (None, "", None, None)
    assert (first.task, first.measured.step_s, first.measured.memory_gib) == ("pretrain", 1.5, 60.5)
    assert (second.tensor_parallel, second.microbatch_sequences, second.word("tp")) == (2, 1, "2")


@settings(deadline=None)
@given(st.sampled_from(SCHEMA), st.integers(1, 4))
def test_every_column_is_one_field_and_comes_back_as_it_was_spelt(column, number):
    cell = "1" if column in SWITCHES else f"0.{number}25" if column in RATIOS else str(number)
    assert [name for name in SCHEMA if row_of({column: cell}).cell(name) != row_of({}).cell(name)] == [column]
    assert row_of({column: cell}).word(column) == cell


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"step_time_s": "fast"}, "step_time_s: 'fast' is not a number"),
        ({"step_time_s": "1.2s"}, "(no unit"),
        ({"mem_gb": "80GB"}, "(no unit"),
        ({"mem_gb": "nan"}, "mem_gb: 'nan' is not a number"),
        ({"mem_gb": "inf"}, "'inf' is not a number"),
        ({"mem_gb": "1e999"}, "is not a number"),
        ({"mem_gb": "-5"}, "is not above 0"),
        ({"gbs": "'1,024'"}, ""),
        ({"gbs": '"1,024"'}, "(no thousands separators)"),
        ({"step_time_s": '"1,5"'}, "(a decimal point is wanted)"),
        ({"gbs": "25.5"}, "is not a whole number"),
        ({"gbs": "0"}, "is below 1"),
        ({"gbs": "1e300"}, "is too large"),
        ({"n_gpus": "٨"}, "is not a number"),
        ({"seq": "4k"}, "(no unit"),
        ({"status": "okay"}, "status: 'okay' is none of ok, failed"),
        ({"id": ""}, "the id is blank"),
        ({"id": "x" * 500}, "longer than"),
        ({"flag": "doubt"}, "flagged: 'doubt'"),
        ({"tokens_per_s_per_gpu": "1000"}, "mixed units?"),
        ({"status": "ok\x1b[31m"}, r"ok\x1b[31m"),
        ({"framework": "a\x1b[31m"}, "a control character"),
        ({"model": "llama\u202e"}, "direction of writing"),
        ({"gpu": '"a\nb"'}, "a line break"),
    ],
)
def test_a_faulty_row_is_left_out_with_its_reason(table, changed, reason):
    found = table(cells(id="b-7"), cells(**changed))
    (skipped,) = found.skipped
    assert reason in skipped.reason
    assert skipped.line == 3
    assert len(skipped.reason) < 200
    assert skipped.reason.isprintable()
    assert [each.id for each in found.rows] == ["b-7"]


@pytest.mark.parametrize("column", ["tp", "pp", "mbs"])
def test_an_impossible_degree_is_read(table, column):
    assert table(cells(**{column: "0"})).skipped == ()
    assert table(cells(**{column: "-4"})).skipped == ()


def test_all_later_rows_of_an_id_are_left_out(table):
    found = table(GOOD, cells(gbs="128"), cells(gbs="64"))
    assert [each.global_batch_sequences for each in found.rows] == [256]
    assert count_reasons(found.skipped) == {"stands again": 2}


def test_speeds_that_agree_are_read_and_all_give_the_step(table):
    (row,) = table(cells(tokens_per_s_per_gpu=str(256 * 4096 / 8 / 1.5))).rows
    assert step_times(row) == {"step_time_s": 1.5, "tokens_per_s_per_gpu": pytest.approx(1.5)}
    assert has_results(row)


def test_a_row_without_results_is_read(table):
    (row,) = table(cells(status="", step_time_s="", mem_gb="")).rows
    assert not has_results(row)
    assert step_times(row) == {}


def test_columns_that_mean_nothing_are_named(table):
    assert table(GOOD + ",7", header=HEADER + ",colour").unknown_columns == ("colour",)


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf" + f"{HEADER}\r\n{GOOD}\r\n".encode(), f"{HEADER}\r{GOOD}\r".encode()])
def test_a_byte_order_mark_and_line_ends_of_any_system(table, raw):
    assert len(table(raw=raw).rows) == 1


def test_blank_lines_are_no_rows_but_blank_cells_are(table):
    found = table("", GOOD, "   ", "," * HEADER.count(","))
    assert len(found.rows) == 1
    assert count_reasons(found.skipped) == {"no id": 1}


def test_a_row_in_another_encoding_is_left_out_alone(table):
    found = table(raw=f"{HEADER}\n".encode() + cells(model="m\u00e9").encode("latin-1") + b"\n" + cells(id="b").encode())
    assert count_reasons(found.skipped) == {"not UTF-8 text": 1}
    assert len(found.rows) == 1


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("a-9,nanotron", "cells do not match the header"),
        (GOOD + ",1,2,3", "cells do not match the header"),
        (cells(id="a-9", model="x" * 200_000), "not a CSV record"),
        (cells(id="a-9", model='"a"b'), "not a CSV record"),
    ],
)
def test_a_record_that_does_not_match_is_left_out_alone(table, line, kind):
    found = table(GOOD, line, cells(id="b"))
    assert count_reasons(found.skipped) == {kind: 1}
    assert [each.id for each in found.rows] == ["a-1", "b"]


def test_an_open_quote_at_the_end_is_a_fault_of_that_row(table):
    found = table(GOOD, cells(id='"b'))
    assert len(found.rows) == 1
    assert len(found.skipped) == 1


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "no header line"),
        (b"\xff\xfei\x00d\x00", "zero bytes"),
        (b"\x00\x01\x02", "zero bytes"),
        (b"id,framework,model\na,b,c\n", "missing columns: gpu, n_gpus, seq, gbs, tp, pp"),
        (HEADER.replace("gbs", "global_bs").encode(), "missing columns: gbs"),
        (HEADER.replace(",", ";").encode(), "separated by commas"),
        ((HEADER + ",tp").encode(), "column 'tp' stands twice"),
        (b"i\xe9d," + HEADER.encode(), "not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_one_clear_line(table, raw, words):
    with pytest.raises(InputError) as raised:
        table(raw=raw)
    assert words in str(raised.value)


def test_a_file_that_is_not_there_or_is_a_directory(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="not a regular file"):
        read_table(tmp_path)


@steady
@given(st.binary(max_size=400))
def test_no_bytes_do_anything_but_rows_reasons_or_one_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "runs.csv"
    path.write_bytes(HEADER.encode() + b"\n" + content)
    try:
        found = read_table(path)
    except InputError:
        return
    assert all(each.reason for each in found.skipped)


@steady
@given(st.lists(st.text(alphabet='0123456789.-+eE,"kGnaif ', max_size=8), min_size=15, max_size=15))
def test_whatever_is_read_is_a_number_where_one_is_wanted(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("fuzz") / "runs.csv"
    line = ",".join('"' + each.replace('"', '""') + '"' for each in ["a-1", *values[1:13], "ok", ""])
    path.write_text(f"{HEADER}\n{line}\n")
    for each in read_table(path).rows:
        assert all(isinstance(each.cell(key), int | None) for key in ("n_gpus", "seq", "gbs", "tp", "pp", "mbs"))
        assert all(value is None or 0 < value < 1e13 for value in (each.measured.step_s, each.measured.memory_gib))


def test_a_file_read_row_by_row_is_the_table_and_can_be_read_again(tmp_path):
    lines = [
        GOOD, cells(id="a-2", step_time_s="1.7"), cells(id="a-3", flag="doubt"), cells(id="a-4", gbs="x"), GOOD, "", cells(id=""),
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((HEADER, *lines)))
    file, held = open_table(path), read_table(path)
    for _ in range(2):
        found = list(file)
        assert [each for each in found if isinstance(each, Skipped)] == list(held.skipped)
        assert [each[0] for each in found if not isinstance(each, Skipped)] == list(held.rows)
    assert [_line(each) for each in held] == [_line(each) for each in found] == [2, 3, 4, 5, 6, 8]
    assert (file.digest, file.unknown_columns, file.path) == (held.digest, held.unknown_columns, held.path)
    assert len(file) >= len(held) == 6


def _line(each):
    return each.line if isinstance(each, Skipped) else each[0].line


def test_what_runs_share_is_read_once_and_what_they_measured_is_their_own(tmp_path):
    path = tmp_path / "runs.csv"
    other = cells(id="a-3", mbs="4")
    path.write_text("\n".join((HEADER, GOOD, cells(id="a-2", step_time_s="1.75", mem_gb="", flag=""), other)))
    (one, shared), (two, again), (three, own) = open_table(path)
    assert shared is again
    assert own is not shared
    assert (one.measured.step_s, two.measured.step_s, three.measured.step_s) == (1.5, 1.75, 1.5)
    assert (one.measured.memory_gib, two.measured.memory_gib) == (60.5, None)
    assert (shared.row.id, shared.row.line, shared.row.measured.step_s) == ("", 0, None)
    assert [each.id for each in (one, two, three)] == ["a-1", "a-2", "a-3"]
    long = cells(id="b-1", model="m" * (table_module.REMEMBERED_LENGTH - 100))
    path.write_text("\n".join((HEADER, long, long.replace("b-1", "b-2"))))
    assert len({configuration for _, configuration in open_table(path)}) in (1, 2)


@pytest.mark.parametrize(
    ("name", "limit", "words"),
    [("records.MAX_ROWS", 2, "more than 2 rows"), ("records.MAX_BYTES", 100, "larger than 100 bytes"),
     ("records.MAX_COLUMNS", 14, "has 15 columns; 14 is the limit"), ("table.MAX_HELD", 2, "more than 2 rows to learn from")],
)
def test_ceilings_of_a_file(table, monkeypatch, name, limit, words):
    monkeypatch.setattr(f"meshwright.evidence.rows.{name}", limit)
    with pytest.raises(InputError, match=words):
        table(GOOD, cells(id="a-2"), cells(id="a-3"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_without_end_is_passed_over_and_those_behind_it_are_read(table, end):
    lines = (HEADER, GOOD, ",".join("7" * 400_000), cells(id="b"), "9" * 200_001, cells(id="c"))
    found = table(raw=end.join(lines).encode())
    assert [(each.id, each.line) for each in found.rows] == [("a-1", 2), ("b", 4), ("c", 6)]
    assert [each.reason for each in found.skipped] == ["not a CSV record: its line has more than 200,000 characters"] * 2


def test_a_header_of_a_million_columns_is_one_clear_line(table):
    with pytest.raises(InputError) as raised:
        table(raw=(",".join(map(str, range(1_000_000))) + "\n").encode() * 2)
    assert len(str(raised.value)) < 300
    assert "no header line (its line has more than 200,000 characters)" in str(raised.value)
