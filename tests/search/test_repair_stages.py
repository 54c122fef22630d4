"""Layers moved off the fullest stage or recomputed on the stages that need it, with needs that follow from counts alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Some

import numpy as np
import pytest

from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Selective
from meshwright.search.repair import stages
from meshwright.search.repair.engine import ROOMY, TIE, _Kept
from meshwright.search.repair.prices import Extra, part_of


@pytest.mark.parametrize(
    ("split", "full", "empty", "moved"),
    [
        (((4, 2, 2),), 0, 2, ((3, 2, 3),)),
        (((1, 2, 2),), 0, 2, None),
        (((4, 2),), 1, 1, None),
        (((2, 2),), 0, 1, ((1, 3),)),
        (((3, 1), (2, 5)), 0, 1, ((2, 2), (2, 5))),
        (((1, 1), (1, 5)), 0, 1, None),
        (((1, 9), (2, 4)), 1, 0, ((2, 8), (2, 4))),
    ],
)
def test_one_layer_goes_from_the_largest_chunk_to_the_smallest(split, full, empty, moved):
    assert stages._moved(split, full, empty) == moved


class Room:
    """Every layer needs 1, one that is recomputed 0.25, and the first stage 3 more."""

    def __init__(self, bound_bytes):
        self.bound_bytes = bound_bytes

    def needs(self, case, layout):
        layers = np.array(layout.stage_layers, dtype=float).sum(axis=0)
        again = np.zeros_like(layers)
        if isinstance(layout.recompute, Full):
            again = layers if layout.recompute.layers is None else np.array(layout.recompute.layers, dtype=float).sum(axis=0)
        if isinstance(layout.recompute, Mixed):
            again = np.array(dict(layout.recompute.parts)[Full()], dtype=float).sum(axis=0)
        own = layers - 0.75 * again
        own[0] += 3.0
        return own


@pytest.fixture(autouse=True)
def split(monkeypatch):
    monkeypatch.setattr(stages, "split_of", lambda case, layout: layout.stage_layers)


def layout(*chunks, recompute=None, **more):
    return Layout(
        pipeline_parallel=len(chunks[0]),
        virtual_stages=len(chunks),
        stage_layers=chunks,
        num_microbatches=8,
        recompute=recompute or NoRecompute(),
        **more,
    )


def test_layers_are_moved_until_the_fullest_stage_is_no_less_full():
    assert stages._emptied(None, layout((4, 4, 4)), Room(0)) == [((3, 5, 4),), ((2, 5, 5),)]
    assert stages._emptied(None, layout((1, 5, 5)), Room(0)) == []
    assert stages._emptied(None, layout((30, 1, 1)), Room(0))[:2] == [((29, 2, 1),), ((28, 2, 2),)]
    assert len(stages._emptied(None, layout((60, 1, 1)), Room(0))) == stages.MOST_MOVES


def test_splits_are_of_pipelines_whose_framework_can_say_them(monkeypatch):
    monkeypatch.setattr(stages, "_balanced", lambda *_: ((2, 6, 4),))
    room = Room(8.0)
    room.holds = lambda case, layout: bool((room.needs(case, layout) <= room.bound_bytes).all())
    able = Some(uneven_stages=True)
    assert stages.splits(None, able, layout((4, 4, 4)), room) == (((2, 6, 4),), ((3, 5, 4),), ((2, 5, 5),))
    room.bound_bytes = 4.9
    assert stages.splits(None, able, layout((4, 4, 4)), room) == (((3, 5, 4),), ((2, 5, 5),))
    assert stages.splits(None, able, layout((1, 5, 5)), room) == ()
    assert stages.splits(None, able, layout((12,)), room) == ()
    assert stages.splits(None, Some(uneven_stages=False), layout((4, 4, 4)), room) == ()


FEATURES = Some(recompute_mixed=False, recompute_per_stage=True, recompute=("none", "full"))


@pytest.mark.parametrize(
    ("bound", "counts"),
    [
        (7.0, None),
        (6.9, (1, 0, 0)),
        (6.25, (1, 0, 0)),
        (6.2, (2, 0, 0)),
        (4.0, (4, 0, 0)),
        (3.9, (4, 1, 1)),
        (1.0, (4, 4, 4)),
        (0.5, (4, 4, 4)),
    ],
)
def test_as_few_layers_are_recomputed_as_do_on_the_stages_that_need_it(bound, counts):
    found = stages.lists(None, FEATURES, layout((4, 4, 4)), Room(bound))
    if counts is None:
        assert found == ()
        return
    (one,) = found
    if counts == (4, 4, 4):
        assert one == Full()
    else:
        assert one == Full(layers=(counts,))


def test_who_cannot_say_counts_by_stage_gets_none():
    asked = layout((4, 4, 4))
    for features in (Some(**{**vars(FEATURES), "recompute_per_stage": False}), Some(**{**vars(FEATURES), "recompute": ("none",)})):
        assert stages.lists(None, features, asked, Room(4.0)) == ()
    assert stages.lists(None, FEATURES, layout((12,)), Room(4.0)) == ()
    assert stages.lists(None, FEATURES, replace(asked, recompute=Full()), Room(1.0)) == ()
    some = replace(asked, recompute=Selective())
    assert stages.lists(None, FEATURES, some, Room(4.0)) == ()
    assert len(stages.lists(None, Some(**{**vars(FEATURES), "recompute_mixed": True}), some, Room(4.0))) == 1


def test_layers_that_are_recomputed_are_spread_over_the_chunks():
    one = stages._recomputed(layout((3, 2), (2, 2)), ((3, 2), (2, 2)), np.array([3, 1]))
    assert one == Full(layers=((2, 1), (1, 0)))
    mixed = stages._recomputed(layout((3, 2), (2, 2), recompute=Selective()), ((3, 2), (2, 2)), np.array([3, 1]))
    assert dict(mixed.parts) == {Full(): ((2, 1), (1, 0)), Selective(): ((1, 1), (1, 2))}


def test_parts_of_a_pipeline_and_what_comes_on_top_of_them():
    assert [part_of(stage, 4) for stage in range(4)] == ["first", "between", "between", "last"]
    assert (part_of(0, 1), part_of(0, 2), part_of(1, 2)) == ("all", "first", "last")
    first, last = np.array([True, False, False]), np.array([False, False, True])
    for part, on in (("first", (5, 0, 0)), ("last", (0, 0, 5)), ("between", (0, 5, 0)), ("all", (5, 5, 5))):
        assert Extra(extra_bytes=5.0, part=part).on(first, last, np.full(3, 3.0)).tolist() == list(on)
    both = np.array([True])
    for part in ("first", "last", "between", "all"):
        assert Extra(extra_bytes=5.0, part=part).on(both, both, np.array([1.0])).tolist() == [5.0]
    pair = np.array([True, False]), np.array([False, True])
    assert Extra(extra_bytes=5.0, part="between").on(*pair, np.full(2, 2.0)).tolist() == [5.0, 5.0]
    assert Extra(extra_bytes=5.0, part="first").on(*pair, np.full(2, 2.0)).tolist() == [5.0, 0.0]


def test_what_fewer_edits_do_as_well_is_dominated():
    from meshwright.search.repair.engine import _Search  # type: ignore[attr-defined]

    one, two, three = ((0, 1),), ((0, 1), (1, 1)), ((2, 1),)
    search = _Search.__new__(_Search)
    search.target = Some(bound_bytes=100.0)

    def dominated(kept, own):
        search.kept = [_Kept(frozenset(edits), cost, needed) for edits, cost, needed in kept]
        return search._dominated(_Kept(frozenset(own[0]), *own[1:]))

    assert dominated([(one, 10.0, 90.0)], (two, 10.0, 10.0)), "some of these alone"
    assert not dominated([(one, 10.0 * (1 + 2 * TIE), 90.0)], (two, 10.0, 10.0))
    assert dominated([(one, 10.0 * (1 + TIE), 90.0)], (two, 10.0, 10.0))
    assert not dominated([(two, 1.0, 1.0)], (two, 10.0, 10.0))
    assert dominated([(three, 10.0, 50.0)], (two, 10.0, 50.0)), "fewer, and no more memory"
    assert dominated([(three, 10.0, 100.0 * ROOMY)], (two, 10.0, 1.0)), "or little of it"
    assert not dominated([(three, 10.0, 101.0 * ROOMY)], (two, 10.0, 1.0))
    assert not dominated([(three, 10.0, 1.0)], (one, 10.0, 50.0))
    assert not dominated([], (one, 10.0, 50.0))
