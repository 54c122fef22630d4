"""Small CSVs of runs in the schema of the corpus."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from meshwright.evidence.rows.columns import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from meshwright.evidence.rows.row import Row

TINY = {
    "status": "ok", "task": "pretrain", "framework": "nanotron", "framework_version": "0.4", "model": "tiny", "n_layers": "4",
    "hidden": "1024", "n_heads": "8", "n_kv_heads": "8", "ffn_hidden": "4096", "vocab": "32000", "gated_mlp": "1",
    "attention": "mha", "gpu": "h100-80g-sxm", "n_gpus": "8", "gpus_per_node": "8", "precision": "bf16", "seq": "2048",
    "gbs": "64", "mbs": "1", "tp": "1", "pp": "1", "step_time_s": "0.5",
}


def cells(row: Row) -> dict[str, str]:
    """Every column of a row as a table spells it."""
    return {column: row.word(column) for column in SCHEMA}


def write_runs(path: Path, *rows: Mapping[str, str]) -> Path:
    """A file of rows, each a small model with some cells changed; ids count from ``a-1``."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, SCHEMA, restval="")
        writer.writeheader()
        writer.writerows(TINY | {"id": f"a-{index}"} | dict(row) for index, row in enumerate(rows, start=1))
    return path
