"""Numbers, lengths, pins and files, each on its own."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.api import numbers
from meshwright.api.fields import Faults
from meshwright.api.lengths import read_lengths
from meshwright.api.pins import KNOBS, consistent, pin
from meshwright.cli.output import progress
from meshwright.errors import InputError
from meshwright.search.space import PIN_KNOBS, parse_pins


@pytest.mark.parametrize(
    ("parse", "word", "expected"),
    [
        (numbers.count, "1_000_000", 1_000_000),
        (numbers.count, "1e3", 1000),
        (numbers.count, " 512 ", 512),
        (numbers.sequence, "8192", 8192),
        (numbers.sequence, "128k", 131072),
        (numbers.sequence, "1M", 1048576),
        (numbers.sequence, "0.5K", 512),
        (numbers.tokens, "15e12", 15e12),
        (numbers.tokens, "15T", 15e12),
        (numbers.tokens, "1.5b", 1.5e9),
        (numbers.tokens, "300k", 3e5),
        (numbers.positive, "2.5", 2.5),
        (numbers.positive, ".5", 0.5),
        (numbers.share, "90%", 0.9),
        (numbers.share, "1", 1.0),
        (numbers.reserve, "0", 0.0),
        (numbers.count_or_none, "0", 0),
    ],
)
def test_numbers_as_people_write_them(parse, word, expected):
    assert parse(word) == expected


@pytest.mark.parametrize(
    ("parse", "word"),
    [
        *((parse, word) for parse in (numbers.count, numbers.sequence, numbers.tokens, numbers.positive)
          for word in ("", "0", "-1", "nan", "inf", "1e999", "abc", "0x10", "1,000", "_", ".", "e5", "1" * 99)),
        (numbers.count, "1.5"), (numbers.count, "128k"), (numbers.count, "1e15"), (numbers.sequence, "1e-5"),
        (numbers.sequence, "0.0001k"), (numbers.sequence, "kk"), (numbers.share, "0"), (numbers.share, "101%"),
        (numbers.reserve, "1"), (numbers.reserve, "-0.1"), (numbers.count_or_none, "-1"),
    ],
)
def test_what_is_no_such_number(parse, word):
    with pytest.raises(InputError):
        parse(word)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_number_or_an_input_error(word):
    for parse in (numbers.count, numbers.sequence, numbers.tokens, numbers.positive):
        with suppress(InputError):
            assert parse(word) > 0


@pytest.mark.parametrize(
    "content",
    ["3\n5\n7\n", "3 5 7", "3,5,7\n", "id,tokens\na,3\nb,5\nc,7\n", '{"length": 3}\n{"length": 5}\n{"length": 7}\n',
     "[3, 5, 7]", "# lengths\n\n3\n5\n7", '"id"\t"num_tokens"\nx\t3\nx\t5\nx\t7\n'],
)
def test_lengths_are_read_from_text_csv_and_json_lines(tmp_path, content):
    (tmp_path / "lengths").write_text(content)
    assert read_lengths(str(tmp_path / "lengths")).tolist() == [3, 5, 7]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "holds no lengths"),
        ("3\n0\n-4\nx\n", ":2: '0' is not a length"),
        ("{broken", ":1: not one JSON value"),
        ('{"size": 3}', "none of the keys"),
        ("1.5", "'1.5' is not a length"),
        ("id,tokens\na\n", "'' is not a length"),
        ("[true]", "'True' is not a length"),
    ],
)
def test_what_is_no_length(tmp_path, content, line):
    (tmp_path / "lengths").write_text(content)
    with pytest.raises(InputError) as caught:
        read_lengths(str(tmp_path / "lengths"))
    assert line in str(caught.value)


def test_many_wrong_lengths_are_not_all_listed(tmp_path):
    (tmp_path / "lengths").write_text("x\n" * 100)
    with pytest.raises(InputError) as caught:
        read_lengths(str(tmp_path / "lengths"))
    assert len(caught.value.messages) == 5


def test_pins_are_the_knobs_of_the_search_and_it_reads_their_values():
    assert set(KNOBS) == set(PIN_KNOBS)
    words = ["tp=8", "cp=2", "pp=4", "vp=2", "ep=1", "etp=1", "dp=16", "mb=1", "zero=1", "shard=8",
             "recompute=selective:mlp", "schedule=interleaved", "sp=TRUE"]
    faults = Faults()
    pins = consistent([pin(word) for word in words], faults)
    assert not faults.messages
    read = parse_pins(pins)
    assert (read.tp, read.shard, read.sp, read.recompute, read.schedule) == (8, 8, True, "selective", "interleaved")


@pytest.mark.parametrize(
    "words",
    [["tp=8", "tp=4"], ["zero=0", "shard=2"], ["vp=1", "schedule=interleaved"], ["vp=2", "schedule=1f1b"],
     ["pp=1", "vp=2"], ["tp=1", "sp=on"], ["dp=4", "cp=1", "shard=3"]],
)
def test_pins_that_contradict_each_other(words):
    faults = Faults()
    consistent([pin(word) for word in words], faults)
    assert len(faults.messages) == 1


@pytest.mark.parametrize("words", [["tp=8", "tp=8"], ["zero=0"], ["vp=2"], ["dp=4", "shard=3"], ["sp=on"], ["pp=2", "vp=2"]])
def test_pins_that_do_not(words):
    faults = Faults()
    consistent([pin(word) for word in words], faults)
    assert not faults.messages


def test_progress_is_only_for_a_terminal(capsys, monkeypatch):
    with progress("layouts") as tick:
        assert tick is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("meshwright.cli.output.WAIT_S", 0.0)
    monkeypatch.setattr("meshwright.cli.output.EVERY_S", 0.0)
    with progress("layouts") as tick:
        assert tick is not None
        tick(1000, 2000)
    printed = capsys.readouterr()
    assert "1,000 of 2,000 layouts (50 %)" in printed.err
    assert printed.err.endswith("\r\033[K")
    assert not printed.out
