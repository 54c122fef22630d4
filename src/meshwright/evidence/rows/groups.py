"""Which rows belong together: sources, re-measurements of one configuration, cells, and the folds that hold them out.

Everything depends on what a row says, nothing on its place in the file or on its id, except the source group.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, get_args

from meshwright.catalog.device_sheet import device_names
from meshwright.evidence.rows.conventions import precision_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from meshwright.evidence.rows.row import Row

Scheme = Literal["grouped", "leave-one-model-out", "leave-one-cluster-size-out", "leave-one-source-out", "in-sample"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
FOLDS = 10
ALL_IN = -1
"""Fold of a row that is in no held-out part: every row under ``in-sample``."""

SETTINGS = ("mbs", "tp", "sp", "cp", "pp", "vpp", "ep", "etp", "dp", "zero", "recompute", "extra_settings")
"""What may differ between rows of one cell; rows that differ in nothing are one."""
CELL = ("framework", "framework_version", "model", "task", "gpu", "n_gpus", "precision", "gbs", "seq")
ONE_WHERE_BLANK = ("tp", "cp", "pp", "vpp", "ep", "etp", "mbs")


def source_group(id_: str) -> str:
    """The id up to its last dash or digits.

    >>> [source_group(each) for each in ("playbook-0001", "nv0001", "vtrain-m-0016", "mine-warm")]
    ['playbook', 'nv', 'vtrain-m', 'mine']
    """
    stem = re.sub(r"\d+$", "", id_, flags=re.ASCII)
    if stem == id_:
        stem = id_.rpartition("-")[0] or id_
    return stem.rstrip("-") or "rows"


def group_key(row: Row) -> tuple[str, ...]:
    """One configuration, whoever measured it and with which release, ZeRO stage or schedule chunks.

    Model, device, device count, batch, sequence, degrees, micro-batch, precision, recompute. Coarser than the settings on
    purpose: rows that differ in ZeRO or virtual stages alone stay together, too.
    """
    return (
        row.model.lower(), device_key(row.device), *(row.word(key) for key in ("n_gpus", "gbs", "seq")),
        *(_degree(row, key) for key in ("tp", "cp", "pp", "ep", "etp", "mbs")),
        precision_name(row.precision), row.recompute.lower() or "none",
    )


def cell_key(row: Row) -> tuple[str, ...]:
    """Rows that answer one question: which settings are best? The source group comes on top (``metrics.cells_of``)."""
    return tuple(row.word(key) for key in CELL)


def settings_key(row: Row) -> tuple[str, ...]:
    """The settings of a row inside its cell."""
    return tuple(_degree(row, key) if key in ONE_WHERE_BLANK else row.word(key) for key in SETTINGS)


def device_key(name: str) -> str:
    """The catalogue's name behind a source's spelling, or the spelling."""
    return device_names().find(name) or device_names().find(name.partition("(")[0]) or name.strip().lower()


def folds(rows: Sequence[Row], scheme: Scheme) -> tuple[int, ...]:
    """The fold of every row: a row is predicted by a fit of all rows of other folds.

    ``grouped``: 10 folds, dealt by a hash of the group key, each source spread evenly over the folds. The others: one fold
    for each model, number of devices or source. ``in-sample``: none.
    """
    if scheme == "in-sample":
        return (ALL_IN,) * len(rows)
    if scheme == "grouped":
        return _dealt(rows)
    by: dict[str, Callable[[Row], Hashable]] = {
        "leave-one-model-out": lambda row: row.model.lower(),
        "leave-one-cluster-size-out": lambda row: row.num_devices or 0,
        "leave-one-source-out": lambda row: source_group(row.id),
    }
    keys = [by[scheme](row) for row in rows]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}  # type: ignore[type-var]
    return tuple(numbers[key] for key in keys)


def _dealt(rows: Sequence[Row]) -> tuple[int, ...]:
    """Groups from the largest on and in the order of their hash, each to the fold with fewest rows of its sources, then of all."""
    keys = [group_key(row) for row in rows]
    sizes: dict[tuple[str, ...], int] = defaultdict(int)
    sources: dict[tuple[str, ...], frozenset[str]] = {}
    for key, row in zip(keys, rows, strict=True):
        sizes[key] += 1
        sources[key] = sources.get(key, frozenset()) | {source_group(row.id)}
    total = [0] * FOLDS
    of_source: dict[frozenset[str], list[int]] = defaultdict(lambda: [0] * FOLDS)
    fold_of: dict[tuple[str, ...], int] = {}
    for key in sorted(sizes, key=lambda each: (-sizes[each], _hash(each))):
        counts = of_source[sources[key]]
        fold = min(range(FOLDS), key=lambda each: (counts[each], total[each], each))
        fold_of[key] = fold
        counts[fold] += sizes[key]
        total[fold] += sizes[key]
    return tuple(fold_of[key] for key in keys)


def _hash(parts: Iterable[str]) -> bytes:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).digest()


def _degree(row: Row, key: str) -> str:
    """A degree; blank is 1."""
    return row.word(key) or "1"
