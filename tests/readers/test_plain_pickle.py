"""Plain values come back as they were; whatever would build, call, import or claim memory is refused in one line."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.errors import InputError
from meshwright.readers.plain_pickle import load_plain_pickle

SCALARS = st.none() | st.booleans() | st.integers(-2**100, 2**100) | st.floats(allow_nan=False) | st.text(max_size=300)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=6) | st.tuples(inner, inner) | st.dictionaries(
    st.text(max_size=5) | st.integers(-99, 99), inner, max_size=6), max_leaves=30)


@examples(80)
@given(VALUES, st.integers(2, 5))
def test_plain_values_come_back_as_they_were(value, protocol):
    assert load_plain_pickle(pickle.dumps(value, protocol), "x") == (value, True)


@examples(60)
@given(VALUES, st.data())
def test_a_pickle_that_breaks_off_gives_what_it_holds_or_one_line(value, data):
    whole = pickle.dumps({"a": value, "b": [value, 1]}, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        found, complete = load_plain_pickle(whole[:cut], "x")
    except InputError as error:
        assert len(error.messages) == 1
    else:
        assert not complete
        if isinstance(found, dict) and "b" in found:
            assert found["a"] == value


@examples(80)
@given(st.binary(max_size=200), st.data())
def test_scrambled_bytes_end_in_a_value_or_one_line(noise, data):
    content = bytearray(pickle.dumps({"a": [1, (2, 3), "text"], "b": {"c": 2.5}}, data.draw(st.integers(2, 5))) + noise)
    for _ in range(data.draw(st.integers(0, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for tried in (bytes(content), b"\x80\x04" + noise):
        try:
            load_plain_pickle(tried, "x")
        except InputError as error:
            assert len(error.messages) == 1
            assert "\n" not in str(error)


def test_a_list_of_one_keeps_its_item_where_the_file_breaks_off():
    whole = pickle.dumps({"segments": [], "traces": [[{"at": at, "kind": "x"} for at in range(5000)]]}, 4)
    found, complete = load_plain_pickle(whole[: len(whole) * 3 // 4], "x")
    assert not complete
    assert len(found["traces"][0]) > 3000


class Calls:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/called",)


@pytest.mark.parametrize(("content", "says"), [
    (pickle.dumps(Calls(), 2), "a class"), (pickle.dumps(Calls(), 4), "a class"),
    (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.", "a class"), (b"\x80\x02(S'id'\nios\nsystem\n.", "operation 0x53"),
    (b"\x80\x02(X\x02\x00\x00\x00idios\nsystem\n.", "a call"), (b"\x80\x02}Rq\x00.", "a call"),
    (b"\x80\x02N\x82\x01.", "an extension"), (b"\x80\x02X\x01\x00\x00\x00aQ.", "an outside object"),
    (b"\x80\x02]}b.", "an object's state"), (b"\x80\x05\x97.", "an outside buffer"),
    (pickle.dumps({1, 2}, 4), "operation"), (pickle.dumps({(1, 2): 3}, 4), "key"), (pickle.dumps(2**1000, 4), "number"),
    (b"\x80\x02]r\xff\xff\xff\x7f.", "far beyond"), (b"\x80\x02]q\xff.", "far beyond"),
    (b"\x80\x02j\x00\x00\x00\x40.", "not there"),
    (b"\x80\x02.", "not there"), (b"\x80\x020.", "not there"), (b"\x80\x02u.", "not there"), (b"\x80\x02N(NNu.", "no dictionary"),
    (b"\x80\x02N(Ne.", "no list"),
])
def test_what_is_not_plain_is_refused_in_one_line(content, says):
    with pytest.raises(InputError) as error:
        load_plain_pickle(content, "x")
    assert says in str(error.value)
    assert not os.path.exists("/tmp/called")  # noqa: PTH110


@pytest.mark.parametrize("content", [
    b"\x80\x04\x8d" + struct.pack("<Q", 10**9) + b"x", b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x",
    b"\x80\x02B" + struct.pack("<I", 10**9), b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"]",
    b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"abc",
])
def test_a_length_that_is_only_claimed_takes_no_memory(content):
    tracemalloc.start()
    _, complete = load_plain_pickle(content, "x")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not complete
    assert most < 10**6


def test_a_value_that_holds_itself_many_times_over_is_small():
    doubled = b"\x80\x04]\x94" + b"2(h\x00h\x00e" + b"."
    found, complete = load_plain_pickle(doubled, "x")
    assert complete
    assert found[0] is found


def test_deep_nesting_needs_no_stack():
    found, complete = load_plain_pickle(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", "x")
    assert complete
    assert isinstance(found, list)
