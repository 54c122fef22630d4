"""Events come out of a file the same however it is laid out and cut, as far as it goes, and never more than a piece is held."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.traces.made import LAYOUTS, Text, host, kernel, launch, written

from meshwright.errors import InputError
from meshwright.readers.source import Source
from meshwright.readers.traces import pieces
from meshwright.readers.traces.event import Event
from meshwright.readers.traces.json_walk import LEAST_BYTES, items, past_value
from meshwright.readers.traces.pieces import Pieces

TEXTS = st.text(alphabet=st.sampled_from(list('a}{]["\\,: \n\té')), max_size=12)
EVENTS = st.lists(st.one_of(
    st.builds(lambda name, start: host(start, 3, name, note=name, more=[{"ph": name}, {"a": {}}]), TEXTS, st.integers(0, 99)),
    st.builds(kernel, st.integers(0, 99), st.floats(0, 9), correlation=st.integers(0, 9)),
    st.builds(launch, st.integers(0, 99), st.integers(0, 9)),
), max_size=12)


def _read(content, size=1 << 20):
    found = Pieces(Text(content), Event, size)
    events = [(each.name, each.ts, each.dur) for some in found for each in some]
    return events, found


@examples(60)
@given(EVENTS, st.sampled_from(LAYOUTS), st.integers(1, 400))
def test_any_layout_in_pieces_of_any_size_gives_the_same_events(events, layout, size):
    found, read = _read(written(events, layout, distributedInfo={"rank": 3}), size)
    assert found == [(each["name"], float(each["ts"]), float(each["dur"])) for each in events]
    assert read.complete
    assert not read.decoder.wrong.skipped
    assert layout == "bare" or read.beside["distributedInfo"] == {"rank": 3}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_cut_off_at_any_byte_gives_what_stands_before_or_says_that_nothing_does(layout):
    events = [kernel(1, 2), host(3, 4, 'a }, {"ph": "b\\\\" ]'), launch(5, 6), kernel(7.25, 8, "memcpy")]
    content = written(events, layout, distributedInfo={"rank": 3}).rstrip()
    whole = [(each["name"], float(each["ts"]), float(each["dur"])) for each in events]
    for end in range(len(content)):
        try:
            found, read = _read(content[:end], 64)
        except InputError as error:
            assert "begins in it" in str(error)
            assert b"traceEvents" not in content[:max(0, end - 15)]
            continue
        assert not read.complete
        assert found == whole[:len(found)]
        assert len(found) >= content[:end].count(b'"ts"') - 1


def test_no_more_is_held_than_a_piece_and_an_event(monkeypatch):
    held = []

    class Watched(pieces._Feed):
        def more(self):
            result = super().more()
            held.append(len(self.text))
            return result

    monkeypatch.setattr(pieces, "_Feed", Watched)
    events = [host(each, 1, f"event {each}", note="x" * (each % 50)) for each in range(4000)]
    for layout in LAYOUTS:
        held.clear()
        found, _ = _read(written(events, layout), 4096)
        assert len(found) == 4000
        assert max(held) < 2 * 4096 + 400, layout


@pytest.mark.parametrize(("damage", "left"), [
    ((b'"gemm"', b'"ge\x01mm"'), 3), ((b'"gemm"', b'"ge\xffmm"'), 3), ((b'"gemm"', b'"C:\\Users\\x"'), 3),
    ((b'"device":0', b'"device":NaN'), 3), ((b'"name":"gemm"', b'"name":null'), 3), ((b'"ts":1', b'"ts":[1]'), 2),
    ((b'"args":{', b'"args":{"correlation":"7","was":{'), 3),
])
def test_what_profilers_get_wrong_is_mended_or_left_out(damage, left):
    content = written([kernel(1, 2), launch(3, 4), launch(5, 6)])
    content = content.replace(*damage, 1)
    if damage[1].endswith(b'"was":{'):
        content = content.replace(b'"correlation":0}', b'"correlation":0}}', 1)
    found, read = _read(content)
    assert len(found) == left
    assert read.complete
    assert read.decoder.wrong.skipped == 3 - left


def test_a_damaged_event_costs_itself_alone():
    content = written([kernel(1, 2), launch(3, 4), launch(5, 6)]).replace(b'"cudaLaunchKernel"', b"cudaLaunchKernel", 1)
    found, read = _read(content)
    assert [each[1] for each in found] == [1.0, 5.0]
    assert read.decoder.wrong.skipped == 1


@pytest.mark.parametrize("content", [
    b"", b"   ", b"{", b"{}", b'{"a": 1}', b'"traceEvents"', b"\x00\x01", b'{"traceEvents": 5}', b"{" * 5000,
])
def test_what_has_no_events_is_refused_in_a_line(content):
    with pytest.raises(InputError, match="no list of events"):
        _read(content)


def test_brackets_within_brackets_do_no_harm():
    found, read = _read(b"[" + b"[" * 100_000)
    assert (found, read.complete) == ([], False)


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 100, 4999), (0.9999, 5000, 5000)])
def test_a_truncated_archive_gives_what_it_holds(tmp_path, share, least, most):
    content = gzip.compress(written([host(each, 1, f"event {each * 7919 % 1000}") for each in range(5000)]))
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content[:int(len(content) * share)])
    source = Source(path)
    read = Pieces(source, Event)
    assert least <= sum(len(each) for each in read) <= most
    assert source.broken
    assert not read.complete


@examples(60)
@given(st.lists(st.one_of(TEXTS, st.integers(), st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=3)), max_size=6))
def test_ends_of_values_are_found(values):
    import json

    text = json.dumps(values).encode()
    assert past_value(text, 0) == len(text)
    assert all(past_value(text[:end], 0) == -1 for end in range(len(text)))
    places, rest, ended = items(text, 1)
    assert ended
    assert rest == len(text)
    assert [json.loads(text[start:end]) for start, end in places] == [
        each for each in values if isinstance(each, dict) and len(json.dumps(each)) >= LEAST_BYTES]
