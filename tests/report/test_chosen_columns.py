"""Which columns of a table there is room for: counted from its cells, as rich measures the table with those columns."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from meshwright.report.blocks import Cell, Columns, Run, Table
from meshwright.report.console import console
from meshwright.report.terminal import LOOKS, _least_widths, _rich_table, least_width

WORDS = st.text(alphabet="ab 1,%-字", max_size=12)


@st.composite
def tables(draw) -> Table:
    width = draw(st.integers(1, 6))
    places = st.integers(0, width - 1)
    head = tuple(draw(st.lists(st.text(alphabet="xy \n", min_size=1, max_size=8), min_size=width, max_size=width)))
    cells = st.builds(lambda text, label: Cell(words=(Run(text=text),), label=label and bool(text)), WORDS, st.booleans())
    rows = draw(st.lists(st.tuples(*[cells] * width), max_size=4))
    return Table(
        head=head, rows=tuple(rows), look=draw(st.sampled_from(sorted(LOOKS))), whole=draw(st.frozensets(places)),
        least=tuple(draw(st.dictionaries(places, st.integers(0, 20))).items()),
        choices=(Columns(shown=tuple(draw(st.lists(places, min_size=1, unique=True)))),),
    )


@given(tables())
def test_a_table_needs_what_rich_says_that_it_needs(table):
    shown = table.choices[0].shown
    target = console(io.StringIO(), 80)
    room = target.options.update(max_width=2000)
    least = _least_widths(target, room, table)
    assert least_width(table, [least[place] for place in shown]) == target.measure(_rich_table(table, shown), options=room).minimum
