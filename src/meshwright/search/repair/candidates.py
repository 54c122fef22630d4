"""Candidates as columns: every choice of so many knobs, and what one of them is as a layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.estimate.degrees import WORDS
from meshwright.estimate.split import even_split
from meshwright.search.repair.knobs import Ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Grid, Layout
    from meshwright.search.repair.knobs import Given, Knob

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Codes = NDArray[np.int16]
    """Which value each knob has, ``[knob, candidate]``; 0 is the one that the layout has."""


def combined(table: Sequence[Knob], edits: int) -> Iterator[Codes]:
    """Every choice of so many knobs with every other value of each, one array for each choice of knobs."""
    moving = [index for index, knob in enumerate(table) if len(knob.values) > 1]
    for chosen in combinations(moving, edits):
        sizes = [len(table[index].values) - 1 for index in chosen]
        codes = np.zeros((len(table), int(np.prod(sizes))), dtype=np.int16)
        if chosen:
            codes[list(chosen)] = np.indices(sizes).reshape(len(chosen), -1) + 1
        yield codes


@dataclass(frozen=True)
class Settled:
    """Candidates with everything that follows from their values; columns of the same length."""

    given: Given
    table: tuple[Knob, ...]
    codes: Codes
    numbers: dict[str, Ints]

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def take(self, index: Ints | Bools) -> Settled:
        """Chosen candidates."""
        return Settled(self.given, self.table, self.codes[:, index], {name: column[index] for name, column in self.numbers.items()})

    def code(self, word: str) -> Codes:
        """Which value a knob has."""
        return np.asarray(self.codes[place_of(self.table, word)])

    def value(self, word: str, index: int) -> Any:
        """The value of a knob of one candidate."""
        place = place_of(self.table, word)
        return self.table[place].values[self.codes[place, index]]

    def layout(self, index: int) -> Layout:
        """One candidate as a layout; the given one where nothing is changed."""
        layout = self.given.layout
        n = {name: int(column[index]) for name, column in self.numbers.items()}
        degrees: dict[str, Any] = {name: n[word] for name, word in WORDS.items()} | {"sequence_parallel": bool(n["sp"])}
        return replace(
            layout, **degrees, context_kind=self.value("context", index), recompute=self.value("recompute", index),
            schedule=named_schedule(self.value("schedule", index), n["vp"]),
            stage_layers=split_value(self.given.case, self.value("layers", index), n["pp"], n["vp"]),
            offload=self.value("offload", index),
        )

    def pipeline(self, index: int) -> Layout:
        """The given layout with what the stages of one candidate, and the settings of its costs, depend on."""
        n = self.numbers
        pp, vp = int(n["pp"][index]), int(n["vp"][index])
        return replace(
            self.given.layout, context_kind=self.value("context", index), pipeline_parallel=pp, virtual_stages=vp,
            recompute=self.value("recompute", index), schedule=named_schedule(self.value("schedule", index), vp),
            stage_layers=split_value(self.given.case, self.value("layers", index), pp, vp), offload=self.value("offload", index),
        )

    def moved(self, index: int) -> tuple[int, ...]:
        """The knobs that one candidate turns."""
        return tuple(np.flatnonzero(self.codes[:, index]).tolist())


def place_of(table: Sequence[Knob], word: str) -> int:
    """Where a knob stands."""
    return next(index for index, knob in enumerate(table) if knob.word == word)


def named_schedule(family: str, chunks: int) -> Any:
    """The schedule of a family that so many chunks run under."""
    return ("interleaved" if chunks > 1 else "1f1b") if family == "1f1b" else family


def split_value(case: Case, value: Grid | Ends | None, stages: int, chunks: int) -> Grid | None:
    """Layers per chunk and stage that a value means for a shape of pipeline; None: as the framework does by itself.

    Errors:  ``ValueError`` where the shape cannot have it.
    """
    if value is None:
        return None
    if not isinstance(value, Ends):
        if (len(value), len(value[0])) != (chunks, stages):
            raise ValueError("lists of another shape")
        return value
    places, layers = stages * chunks, case.model.num_layers
    if places < 2 or layers < places:
        raise ValueError("no ends")
    even = even_split(layers, stages, chunks)
    begin, end = even[0][0] - value.first, even[-1][-1] - value.last
    left = layers - begin - end
    if begin < 1 or end < 1 or left < places - 2 or (places == 2 and left):
        raise ValueError("no such ends")
    between = even_split(left, places - 2, 1)[0] if places > 2 else ()
    row = (begin, *between, end)
    return tuple(row[chunk * stages : (chunk + 1) * stages] for chunk in range(chunks))


def distinct(keys: Sequence[Ints | Codes]) -> tuple[Ints, Ints]:
    """Where each distinct row of some columns stands first, and which of those every row is.

    Holds:   whole numbers from 0 on, each below 2^31: what is packed is numbered anew where the next column would not go in.
    """
    number = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        values = int(key.max(initial=0)) + 1
        if (int(number.max(initial=0)) + 1) * values > np.iinfo(np.int64).max:
            number = np.unique(number, return_inverse=True)[1].reshape(-1)
        number = number * values + key
    _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
