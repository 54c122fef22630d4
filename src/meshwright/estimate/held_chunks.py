"""What stages hold of each of their chunks, counted once for each pipeline: pieces of a grid ask about the same ones again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules import SCHEDULES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.perf.arrays import Array

    Counts = NDArray[np.int64]

KEPT_CELLS = 2**20
"""Numbers that are remembered of one schedule and number of rows, 8 MB: 1,500 pipelines of five rows and eight chunks."""


def held_chunks(schedule: str, pipelines: Counts) -> Array:
    """What every row of some pipelines holds of each chunk, at moments of which one is the fullest, whatever the chunks weigh.

    ``pipelines``: columns of micro-batches, stages and chunks, and then the stage of every row.

    Shapes:  ``[3 + row, pipeline]`` -> ``[moment, chunk, row, pipeline]``, as many chunks as the pipeline with most has; 0 of
             moments and chunks that a pipeline has not.
    Units:   micro-batches.
    Holds:   the schedule has chunks; at the fullest moment the same whatever was asked before.
    Source:  ``held_until_weight`` of the schedule.
    """
    known = _known(schedule, len(pipelines))
    keys = list(map(tuple, pipelines.T.tolist()))
    new = {key: number for number, key in enumerate(keys) if key not in known}
    if new:
        counted = _counted(schedule, pipelines[:, list(new.values())])
        if sum(each.size for each in (*known.values(), *counted)) > KEPT_CELLS:
            asked = {key: known[key] for key in keys if key in known}
            known.clear()
            known.update(asked)
        known.update(zip(new, counted, strict=True))
    own = [known[key] for key in keys]
    moments, chunks = max(map(len, own), default=1), int(pipelines[2].max(initial=1))
    found = np.zeros((len(own), moments, chunks, len(pipelines) - 3))
    for place, each in zip(found, own, strict=True):
        place[: len(each), : each.shape[1]] = each
    return found.transpose(1, 2, 3, 0)


@cache
def _known(schedule: str, rows: int) -> dict[tuple[int, ...], Array]:
    """What was counted before, by the columns; empty at first."""
    del schedule, rows
    return {}


def _counted(schedule: str, pipelines: Counts) -> list[Array]:
    """``[moment, chunk, row]`` of every pipeline, with its own chunks."""
    formula = SCHEDULES[schedule].held_until_weight
    assert formula is not None, "several chunks under a schedule of one"
    m, pipeline_parallel, chunks, *stage = pipelines
    held = formula(stage=np.stack(stage), num_stages=pipeline_parallel, num_microbatches=m, num_chunks=chunks)
    every = held.transpose(3, 0, 1, 2).astype(np.float64, order="C")
    return [each[:, :own].copy() for each, own in zip(every, chunks.tolist(), strict=True)]
