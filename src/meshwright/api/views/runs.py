"""JSON of ``runs``: the document of the contract."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import plain

if TYPE_CHECKING:


    from meshwright.evidence.rows.attempts import Attempts
    from meshwright.evidence.rows.near import Near
    from meshwright.evidence.rows.published_run import Published


Document = dict[str, Any]
_DEGREE = re.compile(r"\b(tp|cp|pp|vp|ep|etp|dp|mb|zero)([0-9]+)\b")
_KEYS = {
    "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages",
    "ep": "expert_parallel", "etp": "expert_tensor_parallel", "dp": "data_parallel", "mb": "microbatch_sequences",
}
"""Word of the label -> key of the contract."""


def run_view(near: Near) -> Document:
    """The nearest run of a cell as the JSON of ``catalog runs`` and of ``closest_run``."""
    return attempts_view(near.cell) | {"distance": near.distance, "differs": [plain(each) for each in near.differs]}


def closest_view(near: Near | None) -> Document | None:
    """``closest_run`` of ``plan`` and ``estimate``; null where nothing published is near."""
    return None if near is None else run_view(near)


def attempts_view(cell: Attempts) -> Document:
    """A cell by its fastest run, and how many were tried."""
    view = published_view(cell.best)
    view["tried"], view["ran"], view["failed"] = cell.ran + cell.failed, cell.ran, cell.failed
    return view


def published_view(run: Published) -> Document:
    """A run by its fields, and its layout by the contract's keys as far as the source says it."""
    view: Document = asdict(run)
    degrees = {word: int(degree) for word, degree in _DEGREE.findall(run.label)}
    layout: Document = {key: degrees.get(word, 1) for word, key in _KEYS.items()} if run.label else {}
    if layout:
        layout |= {"zero_stage": degrees.get("zero"), "num_microbatches": run.num_microbatches, "recompute": run.recompute or None}
    return view | {"layout": layout or None}
