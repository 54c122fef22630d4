"""SAPP's ``-manual`` file (YAML): strategies made by hand, in MindFormers' words, to be compared with an answer.

Source of its keys: mindspore-ai/toolkits e0486ee, ``pipeline_balance/cfgs/manual_demo.yaml``.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import InputError, fault
from meshwright.readers.fields import Fields
from meshwright.readers.safe import require_mapping
from meshwright.readers.safe_yaml import load_yaml
from meshwright.readers.sapp.amounts import known_keys, label
from meshwright.readers.sapp.lists import MAX_ROWS, RECOMPUTE_KEYS, layer_rows, offset_rows, treated_rows
from meshwright.readers.sapp.treatments import ORDER
from meshwright.text import shown
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.balance import Body, Counts

_KEYS = ("offset", *RECOMPUTE_KEYS, "interleave_num", "show", "file_name")


class ManualStrategy(Value, frozen=True, kw_only=True):
    """One block: where layers stand and how they are recomputed."""

    name: str
    chunks: int
    treated: tuple[tuple[tuple[int, ...], ...], ...]
    """Layers by treatment (SAPP's order: none, selective, communication, both, full), chunk and stage."""

    def counts(self, bodies: Sequence[Body], treatments: Sequence[str]) -> Counts:
        """Layers ``[body, treatment, chunk, stage]`` of a problem: bodies in their order, recomputed layers first in a chunk.

        Errors:  a treatment that the problem does not have, or another number of layers.
        """
        placed, present = sum(sum(map(sum, grid)) for grid in self.treated), sum(body.layers for body in bodies)
        if placed != present:
            raise fault("sapp.layer_sum", "{strategy} places {total} layers, the model has {layers}",
                        strategy=label(self.name), total=placed, layers=present)
        left = [body.layers for body in bodies]
        grid = self.treated[0]
        table = np.zeros((len(bodies), len(treatments), self.chunks, len(grid[0])), dtype=np.int64)
        for chunk, stage, place in product(range(self.chunks), range(len(grid[0])), reversed(range(len(ORDER)))):
            for body, taken in _taken(left, self.treated[place][chunk][stage]):
                name = ORDER[place]
                if name not in treatments or not math.isfinite(bodies[body].backward_times[treatments.index(name)]):
                    raise fault("sapp.unknown_treatment", "{strategy} has {name} layers on stage {stage}; the layer file has no "
                                "memory for them", strategy=label(self.name), name=name, stage=stage)
                table[body, treatments.index(name), chunk, stage] += taken
        return table


def _taken(left: list[int], wanted: int) -> Iterator[tuple[int, int]]:
    """The next layers of a model, by body; ``left`` loses them."""
    for body, rest in enumerate(left):
        taken = min(wanted, rest)
        if taken:
            left[body] -= taken
            wanted -= taken
            yield body, taken


def read_manual_file(path: Path | str, *, layers: int, stages: int, chunks: int = 1) -> tuple[ManualStrategy, ...]:
    """The strategies of a file for a model of ``layers`` on ``stages``; ``chunks`` where a block has no ``interleave_num``."""
    return manual_from(load_yaml(path), where=str(path), layers=layers, stages=stages, chunks=chunks)


def manual_from(document: object, *, where: str, layers: int, stages: int, chunks: int = 1) -> tuple[ManualStrategy, ...]:
    """The strategies of a document."""
    top = Fields(require_mapping(document, where), where)
    if not top.data:
        raise fault("sapp.no_strategy", "holds no strategy", path=where)
    if len(top.data) > MAX_ROWS:
        raise fault("sapp.many", "{count} strategies; {limit} is the limit", path=where, count=len(top.data), limit=MAX_ROWS)
    found = []
    for name, block in top.data.items():
        top.check_name(label(name), name)
        if isinstance(block, dict):
            found.append(_strategy(name, Fields(block, f"{where}: {label(name)}", top.faults), layers, stages, chunks))
        else:
            top.fault(label(name), "config.mapping", "{value} stands there, keys with values are expected", value=shown(block))
    if top.faults:
        raise InputError(top.faults)
    return tuple(strategy for strategy in found if strategy is not None)


def _strategy(name: str, fields: Fields, layers: int, stages: int, chunks: int) -> ManualStrategy | None:
    known_keys(fields, _KEYS)
    chunks = fields.size("interleave_num", default=chunks, maximum=MAX_ROWS)
    offsets = offset_rows(fields, rows=chunks, stages=stages, of="chunk")
    table = layer_rows(fields, layers, offsets, of="chunk") if offsets else None
    if table is None:
        return None
    total = sum(map(sum, table))
    if total != layers:
        fields.fault("offset", "sapp.layer_sum", "places {total} layers, the model has {layers}", total=total, layers=layers)
        return None
    treated = treated_rows(fields, table, of="chunk")
    if treated is None:
        return None
    return ManualStrategy(
        name=name, chunks=chunks,
        treated=tuple(tuple(tuple(cell[place] for cell in row) for row in treated) for place in range(len(ORDER))),
    )
