"""What published rows are read as, row by row: model, layout, batch, recipe, machine, figures; or why they are none.

The golden file has a digest for every drawn row. After a wanted change:
``PYTHONPATH=src:. python tests/evidence/rows/test_rows_answers.py --update-golden``, and read which rows are others (``--show``).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from meshwright.domain.label import label
from meshwright.evidence.rows.published import published
from meshwright.evidence.rows.reading import Refused, read_row
from meshwright.evidence.rows.row import Row
from meshwright.evidence.rows.table import shipped_table

GOLDEN = Path(__file__).parent / "golden" / "rows.txt"
ONE_OF = 17


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def said(row: Row) -> str:
    """A row in one line, with every figure to nine digits."""
    found = read_row(row)
    if isinstance(found, Refused):
        return f"{found.kind}: {found.reason}"
    case, training = found.case, found.case.training
    model = replace(case.model, source="", name="")
    parts = (
        label(found.layout),
        found.layout.overlap,
        model,
        case.batch,
        training,
        case.implementation.name,
        case.cluster.name,
        case.cluster.num_devices,
        case.cluster.devices_per_node,
        case.flops_convention,
        case.memory_ratio,
        found.step_s,
        found.memory_bytes,
        found.failed,
        found.reading,
        published(row),
    )
    return " | ".join(map(str, parts))


@cache
def lines() -> dict[str, str]:
    """Identifier of a row -> what it says."""
    return {row.id: said(row) for row in shipped_table().rows if int(digest(row.id), 16) % ONE_OF == 0}


def test_every_drawn_row_is_read_as_it_was() -> None:
    wanted = dict(line.split() for line in GOLDEN.read_text(encoding="utf-8").splitlines())
    assert len(wanted) > 100
    found = lines()
    assert [id for id in wanted if id not in found] == []
    changed = [f"{id}: {found[id]}" for id in wanted if digest(found[id]) != wanted[id]]
    assert not changed, f"{len(changed)} rows, of which the first: {changed[0]}"


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.write_text("".join(f"{id} {digest(line)}\n" for id, line in lines().items()), encoding="utf-8")
if __name__ == "__main__" and "--show" in sys.argv:
    print(*(f"{id}: {line}" for id, line in lines().items()), sep="\n")
