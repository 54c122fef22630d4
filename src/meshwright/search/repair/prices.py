"""What candidates cost: step time, and what their tightest stage needs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.estimate.degrees import Degrees
from meshwright.estimate.evaluate import composition_of, evaluate_columns, settings_of
from meshwright.estimate.split import stack, take_columns
from meshwright.search.repair.candidates import distinct
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.layout import Treatment
    from meshwright.estimate.costs import Settings
    from meshwright.estimate.split import Composition
    from meshwright.search.repair.candidates import Bools, Ints, Settled

    Floats = NDArray[np.float64]

CHUNK = 8192
"""Candidates that are evaluated at a time: their temporaries stay in cache."""


class Extra(Value, frozen=True, kw_only=True):
    """What stages need beyond the prediction: on those with one part, or on all."""

    extra_bytes: float = 0.0
    part: str = "all"
    """``first``, ``last``, ``between`` or ``all``."""

    def on(self, embedding: Bools, head: Bools, stages: Floats) -> Floats:
        """What comes on top of each stage; of every one where a pipeline has no such part.

        Units:   bytes.
        """
        own = {"first": embedding, "last": head, "between": ~embedding & ~head}.get(self.part, np.ones_like(embedding))
        return self.extra_bytes * np.asarray(own | (stages <= (2.0 if self.part == "between" else 1.0)), dtype=np.float64)


def part_of(stage: int, stages: int) -> str:
    """The part of a stage in its pipeline."""
    return "all" if stages == 1 else "first" if stage == 0 else "last" if stage == stages - 1 else "between"


def evaluated(settled: Settled, extra: Extra) -> tuple[Floats, Floats, Floats]:
    """Step time, its mean over the times that runs take, and what the tightest stage needs with what comes on top.

    Shapes:  n candidates -> three columns of n.
    Units:   s, s, bytes.
    Source:  ``estimate.evaluate.evaluate_columns``.
    """
    step_s, mean_s, needed = (np.zeros(len(settled)) for _ in range(3))
    words = ("schedule", "context", "offload", "recompute", "layers")
    first, shape_of = distinct([*(settled.code(word) for word in words), settled.numbers["vp"], settled.numbers["pp"]])
    layouts = [settled.pipeline(int(index)) for index in first]
    settings = [settings_of(layout) for layout in layouts]
    groups: defaultdict[Settings, list[int]] = defaultdict(list)
    for shape, each in enumerate(settings):
        groups[structs.replace(each, treatments=())].append(shape)
    for common, members in groups.items():
        # One table of layers serves every way of recomputing them.
        treatments = tuple(dict.fromkeys(treatment for shape in members for treatment in settings[shape].treatments))
        table = stack(
            [_spread(composition_of(settled.given.case, layouts[shape], every_stage=False), settings[shape].treatments, treatments)
             for shape in members],
            len(settled.given.case.model.kinds),
        )
        where = np.full(len(layouts), -1, dtype=np.int64)
        where[members] = np.arange(len(members))
        rows = np.flatnonzero(where[shape_of] >= 0)
        for begin in range(0, len(rows), CHUNK):
            part = rows[begin : begin + CHUNK]
            composition = take_columns(table, where[shape_of[part]])
            own = structs.replace(common, treatments=treatments)
            step_s[part], mean_s[part], needed[part] = _costs(settled, part, own, composition, extra)
    return step_s, mean_s, needed


def _spread(composition: Composition, own: Sequence[Treatment], treatments: Sequence[Treatment]) -> Composition:
    """A composition whose counts run over more treatments."""

    def spread(counts: Sequence[Floats | None]) -> tuple[Floats | None, ...]:
        known = dict(zip(own, counts, strict=True))
        return tuple(known.get(treatment) for treatment in treatments)

    uneven = composition.uneven and structs.replace(composition.uneven, layers=spread(composition.uneven.layers))
    return structs.replace(composition, counts=spread(composition.counts), uneven=uneven)


def _costs(
    settled: Settled, part: Ints, settings: Settings, composition: Composition, extra: Extra
) -> tuple[Floats, Floats, Floats]:
    """Some candidates of the same settings."""
    degrees = Degrees.of({word: column[part] for word, column in settled.numbers.items()})
    found = evaluate_columns(settled.given.case, settings, degrees, composition)
    on_top = extra.on(composition.embedding > 0.0, composition.head > 0.0, degrees.pipeline_parallel)
    needed = np.where(composition.multiplicity > 0.0, found.memory.reserved_bytes + on_top, 0.0).max(axis=0)
    return np.asarray(found.time.step_s), np.asarray(found.time.mean_s), np.asarray(needed)
