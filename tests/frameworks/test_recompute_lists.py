"""MindSpore's recompute lists against the layers that they reach, set one by one as the frameworks set them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.domain.layout import Full, Grid, Selective, mixed
from meshwright.frameworks.ascend.recompute_lists import (
    KINDS,
    LISTS,
    crossing,
    excess,
    kinds_of_lists,
    lists_of_kinds,
    lists_of_parts,
    offsets,
    parts_of,
    parts_of_lists,
    unsayable,
)

Reached = Counter[tuple[int, int, tuple[str, ...]]]
WORDS = ("comm", "mlp_act")


@st.composite
def grids(draw: st.DrawFn, split: Grid, most: int | None = None) -> Grid:
    """Counts by chunk and stage, no more than layers."""
    return tuple(tuple(draw(st.integers(0, layers if most is None else most)) for layers in row) for row in split)


@st.composite
def splits(draw: st.DrawFn) -> Grid:
    """Layers of one to three chunks and one to four stages."""
    stages = draw(st.integers(1, 4))
    return tuple(tuple(draw(st.integers(1, 6)) for _ in range(stages)) for _ in range(draw(st.integers(1, 3))))


def set_by_mindformers(split: Grid, full: Grid, words: dict[str, Grid]) -> Reached:
    """Every layer on its own: in full if it is among the first so many of its chunk, else each thing that counts it."""
    found: Reached = Counter()
    for chunk, row in enumerate(split):
        for stage, layers in enumerate(row):
            for layer in range(layers):
                own = tuple(word for word in sorted(words) if layer < words[word][chunk][stage])
                modules = ("full",) if layer < full[chunk][stage] else own
                found.update([(chunk, stage, modules)] if modules else [])
    return found


def set_by_core_ms(split: Grid, full: Grid, words: dict[str, Grid]) -> Reached:
    """A list of layers: the full ones, those with both, those with the longer list's alone, and those that keep everything."""
    found: Reached = Counter()
    for chunk, row in enumerate(split):
        for stage, layers in enumerate(row):
            comm, select = (words[word][chunk][stage] for word in WORDS)
            longer = ("comm",) if comm > select else ("mlp_act",)
            listed = [("full",)] * full[chunk][stage] + [WORDS] * min(comm, select) + [longer] * abs(comm - select)
            assert len(listed) <= layers
            found.update((chunk, stage, modules) for modules in listed)
    return found


def reached(parts) -> Reached:
    return Counter({
        (chunk, stage, getattr(treatment, "modules", ("full",))): count
        for treatment, counts in parts for chunk, row in enumerate(counts) for stage, count in enumerate(row) if count
    })


@examples(80)
@given(st.data())
def test_lists_from_the_first_layer_reach_what_mindformers_sets(data):
    split = data.draw(splits())
    full, words = data.draw(grids(split)), {word: data.draw(grids(split)) for word in WORDS}
    assert reached(parts_of_lists(full, words, behind_full=False)) == set_by_mindformers(split, full, words)


@examples(80)
@given(st.data())
def test_lists_behind_the_full_layers_reach_what_core_ms_sets(data):
    split = data.draw(splits())
    full = data.draw(grids(split))
    left = tuple(tuple(map(int.__sub__, *rows)) for rows in zip(split, full, strict=True))
    words = {word: data.draw(grids(left)) for word in WORDS}
    parts = parts_of_lists(full, words, behind_full=True)
    assert reached(parts) == set_by_core_ms(split, full, words)
    assert excess(parts, split) is None and unsayable(parts, split) is None
    assert parts_of(mixed(parts, split), split) == parts


@examples(80)
@given(st.data(), st.booleans())
def test_what_lists_say_is_read_back(data, behind_full):
    split = data.draw(splits())
    kinds = {kind: data.draw(grids(split, most=2)) for kind in KINDS}
    lists = lists_of_kinds(kinds, split, behind_full=behind_full)
    assert tuple(lists) == LISTS
    again = kinds_of_lists(lists, split, behind_full=behind_full)
    assert (again == kinds) == (crossing(kinds, split) is None)


def test_the_first_chunk_that_lists_cannot_say_is_named():
    split = ((4, 4), (4, 4))
    kinds = {"select": ((1, 0), (0, 1)), "comm": ((0, 1), (0, 2))}
    assert crossing(kinds, split) == (1, 1)
    assert crossing({"select": kinds["select"], "both": kinds["comm"]}, split) is None
    three = ((Selective(modules=("a", "b")), ((1, 0), (0, 0))), (Selective(modules=("b", "c")), ((1, 0), (0, 0))))
    assert unsayable(three, split) == (0, 0)


def test_more_layers_than_a_chunk_has_are_named():
    split = ((4, 4),)
    assert excess(((Full(), ((2, 3),)), (Selective(), ((2, 2),))), split) == (0, 1, 5)
    assert excess(((Full(), ((-1, 3),)),), split) == (0, 0, -1)
    assert excess(((Full(), ((4, 4),)),), split) is None


def test_lists_of_the_guides_convention():
    """SAPP prints select = SLCT + BOTH + FULL, comm = COMM + BOTH + FULL; MindSpeed-Core-MS counts them behind the full ones."""
    kinds = {"full": ((2, 1),), "both": ((1, 0),), "comm": ((0, 2),)}
    assert lists_of_kinds(kinds, ((6, 6),), behind_full=False) == {
        "recompute": ((2, 1),), "select_recompute": ((3, 1),), "select_comm_recompute": ((3, 3),),
    }
    assert lists_of_kinds(kinds, ((6, 6),), behind_full=True) == {
        "recompute": ((2, 1),), "select_recompute": ((1, 0),), "select_comm_recompute": ((1, 2),),
    }
    full, lists = lists_of_parts(((Full(), ((2, 1),)),), ("comm",), ((6, 6),), behind_full=True)
    assert full == ((2, 1),) and lists == {"comm": ((0, 0),)}


def test_offsets_are_what_exceeds_the_average():
    assert offsets(((3, 4, 4, 5),)) == ((-1, 0, 0, 1),)
    assert offsets(((2, 3), (3, 3))) == ((0, 1), (1, 1))
