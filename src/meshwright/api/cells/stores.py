"""Trials of a sweep's store as rows of measured runs, for the cases that an atlas asks about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.measuring.subject import Subject
    from meshwright.evidence.rows.row import Row

_HEAD, _MAGIC, _AT = 100, b"SQLite format 3\0", slice(68, 72)
"""Bytes of the head of an SQLite file, how it begins, and where the program that made it has its number."""


def check_store(path: str) -> None:
    """Refuse what is no store of trials, before anything is done to it.

    Errors:  ``InputError``.
    """
    from meshwright.measure.storefile import APPLICATION
    from meshwright.readers.safe import open_regular

    with open_regular(path) as stream:
        head = stream.read(_HEAD)
    if not head.startswith(_MAGIC) or head[_AT] != APPLICATION.to_bytes(4, "big"):
        raise fault("atlas.store", "is no store of trials: sweep --store makes one; a table of runs is --csv", path=path)


def rows_of_store(path: str, subjects: Sequence[Subject]) -> tuple[list[Row], int]:
    """The trials of some cases as rows, and how many trials of the store are of other cases."""
    from meshwright.api.measuring.rows import rows_of
    from meshwright.evidence.rows.row import row_of
    from meshwright.measure.store import Store

    rows: list[Row] = []
    with Store(path) as store:
        known = {given.key: given for given in subjects}
        for given in known.values():
            rows += [row_of(cells) for cells in rows_of(given, store.attempts(given.key), Path(path))[0]]
        others = sum(each.subject not in known for each in store.attempts())
    return rows, others
