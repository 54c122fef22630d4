"""Strings sought in logs of any length are found where a plain search finds them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.readers import lines as module
from meshwright.readers.lines import Search, anchored, cleaned
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.megatron import DIALECT
from meshwright.readers.needles import Needles
from meshwright.readers.source import Source

SOUGHT = (b"iteration ", b"out of memory", b"NCCL WARN", b"saved checkpoint", b"Xid")
WORDS = [
    "iteration 5", "Out Of Memory", "nccl warn", "iteratio", "saved  checkpoint", "saved checkpoint", "\n", "\n", "\r", " ", "x",
    "\x00", "Xid", "xid",
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.binary(max_size=200))
def test_needles_are_where_a_plain_search_finds_them(words, sample):
    text = "".join(words).encode()
    places, which = Needles(SOUGHT, sample).places(text, len(text), len(text))
    wanted = {
        (at, index) for index, needle in enumerate(SOUGHT) for at in range(len(text))
        if (text if len(needle) < 7 else text.lower())[at:].startswith(needle if len(needle) < 7 else needle.lower())
    }
    assert set(zip(places.tolist(), which.tolist(), strict=True)) == wanted
    assert np.all(np.diff(places) >= 0)


def test_small_chunks_give_the_same_lines(tmp_path, monkeypatch):
    rng = random.Random(5)
    text = "".join(rng.choices(WORDS, k=3000))
    path = tmp_path / "a.log"
    path.write_text(text, newline="")
    search = Search(Needles(SOUGHT))
    whole = [(hit.line, hit.found) for hit in search.hits(Source(path))]
    assert search.lines == text.count("\n") + (not text.endswith("\n"))
    monkeypatch.setattr(module, "CHUNK", 512)
    monkeypatch.setattr(module, "_AHEAD", 256)
    again = Search(Needles(SOUGHT))
    assert [(hit.line, hit.found) for hit in again.hits(Source(path))] == whole
    assert again.lines == search.lines
    by_hand = [number for number, line in enumerate(text.split("\n"), 1) if b"nccl warn" in line.lower().encode()]
    assert sorted({line.number for line, found in whole if 2 in found}) == by_hand


def test_lines_that_follow_are_no_hits_of_their_own(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("head\niteration 1\niteration 2\ntail\niteration 3\n")
    assert [[line.number for line in group] for group in anchored(Source(path), [b"iteration "], following=1)] == [[2, 3], [5]]


@pytest.mark.parametrize(("raw", "text"), [
    (b"[32m20251202[0m] [1m[trainer", "20251202] [trainer"), (b"- [mindformers/core]", "- [mindformers/core]"),
    (b"\x1b[31mstep\x1b[0m", "step"), (b"took [1ms]", "took [1ms]"),
])
def test_paint_is_taken_off_and_words_are_not(raw, text):
    assert cleaned(raw).text == text


def test_a_log_with_more_steps_than_are_kept_is_read_in_even_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.readers.logs.dialect.MOST_LINES", 5000)
    monkeypatch.setattr("meshwright.readers.needles.PIECE", 1 << 16)
    monkeypatch.setattr(module, "PIECE", 1 << 16)
    monkeypatch.setattr(module, "CHUNK", 1 << 17)
    monkeypatch.setattr(module, "_AHEAD", 1 << 14)
    monkeypatch.setattr("meshwright.readers.source.SAMPLE", 1 << 16)
    monkeypatch.setattr("meshwright.readers.source.PLACE", 1 << 14)
    path = tmp_path / "a.log"
    step = " iteration {}/ 99999 | consumed samples: 10 | elapsed time per iteration (ms): 10.0 | global batch size: 4 |\n"
    ends = "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-01T00:00:00 ***\n"
    path.write_text("".join(step.format(number) for number in range(1, 20_001)) + ends)
    assert isinstance(DIALECT, Dialect)
    (log,) = DIALECT.read(Source(path))
    assert 3000 < len(log.steps) < 8000
    assert log.steps[-1].number == 20_000, "the end is read in any case"
    assert any("one part in" in note for note in log.notes)
    assert (log.ending.status, log.ending.place.line) == ("cancelled", 20_001)


def test_a_log_that_complains_on_every_line_is_not_read_to_the_last_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.readers.signs.MOST_LINES", 100)
    monkeypatch.setattr("meshwright.readers.needles.PIECE", 1 << 14)
    monkeypatch.setattr(module, "PIECE", 1 << 14)
    monkeypatch.setattr(module, "CHUNK", 1 << 15)
    monkeypatch.setattr(module, "_AHEAD", 1 << 10)
    path = tmp_path / "a.log"
    ends = "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    path.write_text(" iteration 5/ 9 | elapsed time per iteration (ms): 10.0 |\n" + "RuntimeError: again\n" * 20_000 + ends)
    (log,) = DIALECT.read(Source(path))
    counted = {sign.id: sign.times for sign in log.signs}
    assert 100 < counted["program.raised"] < 10_000
    assert counted["job.time_limit"] == 1
    assert any("complaints are counted" in note for note in log.notes)
