"""A sample of the seeded faults (``python -m benchmarks.faults``, docs/faults.md): one fault, and one run without."""

from __future__ import annotations

import pytest
from benchmarks.faults.campaign import run
from benchmarks.faults.draw import KINDS, LAYOUTS, LEAST, MOST, Case, cases
from benchmarks.faults.judge import right

pytest.importorskip("torch")
CASE = Case(number=0, kind="starved-loader", layout="dp2 zero1", ranks=2, intensity=0.4, rank=0, dimension="dp", variant=0)
OF_THE_MACHINE = ("communication.", "ranks.", "steps.")
"""What a machine that others use, too, may show without a fault."""


def test_a_fault_comes_first(forked: None) -> None:
    assert right(run(CASE, steps=4))


def test_a_clean_run_blames_nothing_of_its_own(forked: None) -> None:
    told = run(Case(**{**{name: getattr(CASE, name) for name in CASE.__slots__}, "kind": "clean"}), steps=4)
    assert not told.ended
    assert [each.id for each in told.findings if each.severity != "advice" and not each.id.startswith(OF_THE_MACHINE)] == []


def test_draws_are_the_same_for_a_seed_and_run_every_kind() -> None:
    """Kinds in turn, each on a layout that has what it is about."""
    drawn = list(cases(60, 20, 2026))
    assert drawn == list(cases(60, 20, 2026))
    assert [each.kind for each in drawn].count("clean") == 20
    for each in drawn:
        assert each.layout in LAYOUTS[each.ranks]
        assert LEAST <= each.intensity <= MOST
        assert 0 <= each.rank < each.ranks
        assert each.kind == "clean" or (each.dimension in KINDS[each.kind] and each.dimension in each.layout)
