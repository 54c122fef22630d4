"""The parity matrix: every layout that is accepted gives the losses and gradients of one plain process. A table shows how close."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from benchmarks.parity import QUICK, SLOW, run

if TYPE_CHECKING:
    from meshwright.engine.parity import Parity

pytest.importorskip("torch")


def matrix(texts: list[str], ranks: int) -> list[Parity]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # more ranks than cores: nothing is timed here
        return run(texts, ranks)


def check(results: list[Parity], texts: list[str]) -> None:
    assert [row.name for row in results] == list(dict.fromkeys(texts))
    assert not [row for row in results if not row.equal]
    assert all(row.parameters > 30 for row in results), "every parameter has a gradient that was compared"


@pytest.mark.parametrize("ranks", (2, 4))
def test_quick_matrix(ranks: int) -> None:
    check(matrix(QUICK[ranks], ranks), QUICK[ranks])


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", (2, 4))
def test_whole_matrix(ranks: int) -> None:
    check(matrix(SLOW[ranks], ranks), SLOW[ranks])


def test_a_difference_is_seen() -> None:
    """Numbers that are off, or none, are no parity."""
    from meshwright.engine.parity import Parity

    close = Parity(name="x", loss=1e-7, gradient=1e-6, parameter="p", parameters=1)
    assert close.equal
    for other in (Parity(name="x", loss=1e-5, gradient=1e-6, parameter="p", parameters=1),
                  Parity(name="x", loss=1e-7, gradient=1e-3, parameter="p", parameters=1),
                  Parity(name="x", loss=float("nan"), gradient=1e-6, parameter="p", parameters=1),
                  Parity(name="x", loss=1e-7, gradient=float("nan"), parameter="p", parameters=1)):
        assert not other.equal
