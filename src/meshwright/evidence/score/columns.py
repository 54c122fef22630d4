"""Scored rows as columns: some twenty numbers a row, so that a million of them are held, and everything is counted at once."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.rows.groups import cell_key, group_key, settings_key, source_group
from meshwright.evidence.rows.table import EXAMPLES
from meshwright.evidence.score.sets import sets
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.rows.row import Row
    from meshwright.evidence.rows.table import Skipped
    from meshwright.evidence.score.scored import Scored

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    CellKey = tuple[str, ...]

BLANK, OK, FAILED = 0, 1, 2
STATUS = {"": BLANK, "ok": OK, "failed": FAILED}
MIN_MEASURED = 5
"""Measured rows that make a cell."""
MOST_NAMES = 1000
"""Sources, frameworks or devices that are told apart; the rows of further ones count together."""
FURTHER = "(further ones)"
LISTED = 10_000
"""Rows left out that are named one by one."""
NUMBERS = (
    "predicted_step_s", "measured_step_s", "predicted_memory_bytes", "measured_memory_bytes", "fit_probability", "low_step_s",
    "high_step_s", "low_memory_bytes", "high_memory_bytes", "ideal_s",
)
"""NaN is what there is not."""
CODES = ("source", "framework", "device", "status", "legal", "moe", "cell", "settings", "group", "repeated", "sets")


class Keys(Value, frozen=True, kw_only=True):
    """What a configuration belongs to, as numbers that only it has."""

    cell_key: CellKey
    cell: int
    settings: int
    group: int
    """The beginning of the group's SHA-256, which orders groups."""
    repeated: int
    """Group and settings: what re-measurements share."""

    @staticmethod
    def of(row: Row) -> Keys:
        """The keys of a row."""
        cell, settings, group = cell_key(row), settings_key(row), group_key(row)
        digest = hashlib.sha256("\x1f".join(group).encode("utf-8", "replace")).digest()
        return Keys(
            cell_key=cell, cell=hash(cell), settings=hash(settings), group=int.from_bytes(digest[:8], "big") - 2**63,
            repeated=hash((group, settings[:-1])),
        )


class Names:
    """Names as numbers, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a name; of further ones than ``MOST_NAMES`` together that of ``FURTHER``."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._numbers) >= MOST_NAMES:
            name = FURTHER
        return self._numbers.setdefault(name, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        """By number."""
        return iter(self._numbers)


class Columns:
    """Scored rows, appended one by one, then looked at as arrays."""

    def __init__(self, rows: Iterable[Scored] = ()) -> None:
        self._numbers = {name: array("d") for name in NUMBERS}
        self._codes = {name: array("q") for name in CODES}
        self._times: dict[tuple[int, int], int] = {}
        self.cells: dict[int, CellKey] = {}
        """Keys of the cells with enough measured rows."""
        self.names = {name: Names() for name in ("source", "framework", "device")}
        for each in rows:
            self.append(each, Keys.of(each.row))

    def __len__(self) -> int:
        return len(self._codes["status"])

    def append(self, each: Scored, keys: Keys) -> None:
        """One more row, with what its configuration belongs to."""
        step, memory = each.step_interval_s or (None, None), each.memory_interval_bytes or (None, None)
        source = self.names["source"].number(source_group(each.id))
        numbers = (
            each.predicted_step_s, each.measured_step_s, each.predicted_memory_bytes, each.measured_memory_bytes,
            each.fit_probability, *step, *memory, each.ideal_s,
        )
        codes = (
            source, self.names["framework"].number(each.row.framework), self.names["device"].number(each.device or each.row.device),
            STATUS[each.status], each.legal, each.is_moe, keys.cell, keys.settings, keys.group, keys.repeated,
            sum(1 << place for place, one in enumerate(sets()) if one.where.holds(each)),
        )
        for column, number in zip(self._numbers.values(), numbers, strict=True):
            column.append(float("nan") if number is None else number)
        for store, code in zip(self._codes.values(), codes, strict=True):
            store.append(code)
        if each.status == "ok" and each.measured_step_s is not None:
            times = self._times.get((source, keys.cell), 0) + 1
            self._times[source, keys.cell] = times
            if times == MIN_MEASURED:
                self.cells[keys.cell] = keys.cell_key

    def number(self, name: str) -> Floats:
        """A column of ``NUMBERS``."""
        return np.frombuffer(self._numbers[name], dtype=np.float64) if len(self) else np.empty(0)

    def code(self, name: str) -> Ints:
        """A column of ``CODES``."""
        return np.frombuffer(self._codes[name], dtype=np.int64) if len(self) else np.empty(0, dtype=np.int64)

    @property
    def all(self) -> View:
        """All rows."""
        return View(self, np.arange(len(self)))


class View:
    """Some rows of some columns, in their order."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        self.columns, self.rows = columns, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> NDArray[np.float64]:
        """A column; codes are whole numbers."""
        if name in NUMBERS:
            return self.columns.number(name)[self.rows]
        if name in CODES:
            return self.columns.code(name)[self.rows]  # type: ignore[return-value]
        raise AttributeError(name)

    def where(self, which: Bools | Ints) -> View:
        """Those of a mask, or of places."""
        return View(self.columns, self.rows[which])

    @property
    def ok(self) -> Bools:
        """Rows that ended well."""
        return np.asarray(self.status == OK)

    @property
    def fits(self) -> Bools:
        """Legal, and more likely than not to run."""
        from meshwright.evidence.score.scored import HALF

        return np.asarray((self.legal == 1) & (self.fit_probability >= HALF))

    @property
    def timed(self) -> View:
        """Rows that count in the metrics of the step time."""
        return self.where(self.ok & ~np.isnan(self.predicted_step_s) & ~np.isnan(self.measured_step_s))

    @property
    def sized(self) -> View:
        """Rows that count in the metrics of memory."""
        return self.where(self.ok & ~np.isnan(self.predicted_memory_bytes) & ~np.isnan(self.measured_memory_bytes))

    def by(self, name: str) -> Iterator[tuple[int, View]]:
        """Rows of each number of a code, from the least on; inside in their order."""
        numbers = self.columns.code(name)[self.rows]
        order = np.argsort(numbers, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else ():
            yield int(numbers[part[0]]), self.where(part)


def view_of(rows: View | Sequence[Scored]) -> View:
    """Rows to be counted, whichever way they are held."""
    return rows if isinstance(rows, View) else Columns(rows).all


class LeftOut:
    """Rows that count in no metric: how many of each kind and source, and the first of them."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self._names = Names()
        self._first: defaultdict[str, list[Skipped]] = defaultdict(list)
        self._listed: list[Skipped] = []

    def append(self, each: Skipped) -> None:
        """One more."""
        self.kinds[each.kind] += 1
        name = source_group(each.id)
        self.sources[name if self._names.number(name) < MOST_NAMES else FURTHER] += 1
        if len(self._first[each.kind]) < EXAMPLES:
            self._first[each.kind].append(each)
        if len(self._listed) < LISTED:
            self._listed.append(each)

    def __len__(self) -> int:
        return self.kinds.total()

    def __iter__(self) -> Iterator[Skipped]:
        """The first ``LISTED``, in the order of the file."""
        return iter(self._listed)

    def first(self, kind: str) -> list[Skipped]:
        """The first few of a kind."""
        return self._first[kind]
