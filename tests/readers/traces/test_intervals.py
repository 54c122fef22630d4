"""Unions of intervals against a count on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.readers.traces.intervals import together, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25)


def _grid(spans):
    return {cell for start, length in spans for cell in range(start, start + length)}


def _union(spans):
    starts, lengths = np.array([(float(start), float(length)) for start, length in spans]).reshape(-1, 2).T
    return union(starts, starts + lengths)


@examples(60)
@given(SPANS, SPANS, st.integers(0, 80), st.integers(0, 80))
def test_unions_cover_what_a_grid_counts(first, second, start, end):
    cover, both = _union(first), together((_union(first), _union(second)))
    assert cover.total == len(_grid(first))
    assert both.total == len(_grid(first) | _grid(second))
    assert float(both.within(start, end)) == sum(start <= cell < end for cell in _grid(first) | _grid(second))
    assert (cover.starts[1:] > cover.ends[:-1]).all()


def test_gaps_lie_between_pieces():
    start, end = _union([(0, 2), (5, 1), (2, 1)]).gaps()
    assert (start.tolist(), end.tolist()) == ([3.0], [5.0])


@pytest.mark.parametrize("spans", [[], [(3, 0)]])
def test_what_has_no_length_covers_nothing(spans):
    assert _union(spans).total == 0
    assert float(_union(spans).within(0, 10)) == 0
