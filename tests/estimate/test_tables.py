"""Records in one block of memory: what is gathered is what indexing each array gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from meshwright.estimate.tables import Table


class Inner(Struct, frozen=True):
    column: object
    rows: object


class Outer(Struct, frozen=True):
    number: object
    inner: Inner
    several: tuple[object, ...]
    word: str = "as it is"
    nothing: object = None


@given(columns=st.integers(1, 7), data=st.data())
def test_gathered_columns_are_those_of_every_array(columns, data):
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    record = Outer(
        number=draw.random(), inner=Inner(draw.random(columns), draw.random((2, 3, columns))),
        several=(draw.random((2, columns)), np.float64(draw.random())),
    )
    index = np.array(data.draw(st.lists(st.integers(0, columns - 1), max_size=9)), dtype=np.int64)
    taken = Table(record, columns).take(index)
    assert (taken.word, taken.nothing) == ("as it is", None)
    for found, given_ in (
        (taken.number, record.number), (taken.inner.column, record.inner.column), (taken.inner.rows, record.inner.rows),
        (taken.several[0], record.several[0]), (taken.several[1], record.several[1]),
    ):
        whole = np.broadcast_to(given_, (*np.shape(given_)[:-1], columns))
        assert np.array_equal(found, whole[..., index])


def test_joined_tables_are_one_after_the_other():
    parts = [np.arange(4.0), 10.0 + np.arange(2.0)]
    joined = Table.joined([Table(Inner(part, 2.0 * part), len(part)) for part in parts])
    assert joined.take(np.array([3, 4])).rows.tolist() == [6.0, 20.0]
    assert joined.record.column.tolist() == [*parts[0], *parts[1]]
