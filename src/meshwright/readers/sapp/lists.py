"""Lists by stage in SAPP's YAML: one list, or one for each round (dry runs) or chunk (strategies)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.readers.sapp.amounts import whole
from meshwright.readers.sapp.treatments import ORDER, separated
from meshwright.text import shown

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields

MAX_ROWS = 100
RECOMPUTE_KEYS = ("recompute", "select_recompute", "select_comm_recompute")
Rows = list[list[int]]


def offset_rows(fields: Fields, *, rows: int, stages: int, of: str) -> Rows | None:
    """Offsets by row and stage; a row may be 0. ``of`` says what rows are, ``round`` or ``chunk``."""
    return _rows(fields, "offset", fields.data.get("offset", 0), rows, stages, of)


def recompute_rows(fields: Fields, key: str, layers: Rows, *, of: str) -> Rows | None:
    """One of MindFormers' lists by row and stage: absent or false is none, true is all ``layers``."""
    value = fields.data.get(key)
    value = 0 if value is None or value is False else value
    table = _rows(fields, key, value, len(layers), len(layers[0]), of, everything=layers)
    if table and min(min(row) for row in table) < 0:
        fields.fault(key, "sapp.negative_count", "a number of layers is negative")
        return None
    return table


def _rows(fields: Fields, key: str, value: object, rows: int, stages: int, of: str, everything: Rows | None = None) -> Rows | None:
    if rows == 1 and not (isinstance(value, list) and any(isinstance(item, list) for item in value)):
        listed: list[object] = [value]
    elif isinstance(value, list):
        listed = value
    else:
        listed = [value] * rows
    if len(listed) != rows:
        fields.fault(key, "sapp.rows", "has {count} lists for {rows} {of}s", count=len(listed), rows=rows, of=of)
        return None
    result: Rows = []
    for place, item in enumerate(listed):
        row = _row(item, stages, everything[place] if everything else None)
        if isinstance(row, str):
            fields.fault(key, "sapp.row", "{problem}{where}", problem=row, where=f" ({of} {place + 1})" if rows > 1 else "")
            return None
        result.append(row)
    return result


def _row(item: object, stages: int, everything: list[int] | None) -> list[int] | str:
    """A row of whole numbers by stage, or what is wrong with it."""
    if everything is not None and isinstance(item, bool):
        return list(everything) if item else [0] * stages
    if item == 0 and whole(item):
        return [0] * stages
    if not isinstance(item, list):
        return f"{shown(item)} is not a list of {stages} whole numbers"
    if len(item) != stages:
        return f"has {len(item)} entries for {stages} stages"
    odd = next((entry for entry in item if not whole(entry)), None)
    return f"{shown(odd)} is not a whole number" if odd is not None or None in item else list(item)


def layer_rows(fields: Fields, total: int, offsets: Rows, *, of: str, chunks: int | None = None) -> Rows | None:
    """Layers by row and stage: the even share of ``total`` plus offsets; none is negative, none more than there are.

    ``chunks`` of a stage, as many as rows if rows are chunks.
    """
    naive = total // (len(offsets[0]) * (chunks or len(offsets)))
    layers = [[naive + offset for offset in row] for row in offsets]
    for place, row in enumerate(layers):
        odd = next((stage for stage, count in enumerate(row) if not 0 <= count <= total), None)
        if odd is not None:
            fields.fault("offset", "sapp.odd_layers", "leaves stage {stage} of {of} {place} with {count} layers of {total}",
                         stage=odd, of=of, place=place + 1, count=row[odd], total=total)
            return None
    return layers


def treated_rows(fields: Fields, layers: Rows, *, of: str) -> list[list[tuple[int, ...]]] | None:
    """Layers by row, stage and treatment (``ORDER``) from MindFormers' cumulative lists; more than there are is a fault."""
    tables = [recompute_rows(fields, key, layers, of=of) for key in RECOMPUTE_KEYS]
    full, select, comm = tables
    if full is None or select is None or comm is None:
        return None
    result = []
    for row, total in enumerate(layers):
        counts = [separated(total[s], full=full[row][s], select=select[row][s], comm=comm[row][s]) for s in range(len(total))]
        short = next((s for s, by_treatment in enumerate(counts) if by_treatment[ORDER.index("none")] < 0), None)
        if short is not None:
            claimed = total[short] - counts[short][0]
            fields.fault("recompute_config" if of == "round" else RECOMPUTE_KEYS[0], "sapp.too_many",
                         "recomputes {claimed} layers on stage {stage} of {of} {row}, which has {layers}",
                         claimed=claimed, stage=short, of=of, row=row + 1, layers=total[short])
            return None
        result.append(counts)
    return result
