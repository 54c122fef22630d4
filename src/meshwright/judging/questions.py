"""What the guides make one ask of the grid: masks over the knobs of evaluated layouts, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from meshwright.domain.layout import Full, Mixed, Selective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Recompute
    from meshwright.search.grid import Rows
    from meshwright.search.grid_rows import Knobs

MICRO_BATCHES = (1, 2, 4, 8, 16)
"""Micro-batches that the guides speak of."""
GUIDED = {"guided-1.5": 1.5, "guided-3": 3.0, "guided-any": float("inf")}
"""Questions for the guided start: how far from 4 B parameters per device, as a factor."""
START_PARAMETERS = 4e9
LONG_TOKENS = 8192


class Columns(Struct, frozen=True, kw_only=True):
    """Knobs of evaluated layouts."""

    tp: Any
    cp: Any
    pp: Any
    dp: Any
    ep: Any
    etp: Any
    mb: Any
    vp: Any
    zero: Any
    m: Any
    recompute: Any
    """0 none, 1 selective, 2 full, 3 the first layers of each chunk."""


TREATMENTS = ("none", "selective", "full")
Question = Callable[[Columns], Any]


def columns_of_rows(rows: Rows | Knobs, batch: int) -> Columns:
    """Rows of the grid, or what is known of layouts before they are."""
    mesh: dict[str, Any] = rows.mesh
    return Columns(
        tp=mesh["tp"], cp=mesh["cp"], pp=mesh["pp"], dp=mesh["dp"], ep=mesh["ep"], etp=mesh["etp"], mb=rows.mb, vp=rows.vp,
        zero=rows.zero, m=batch // (mesh["dp"] * rows.mb), recompute=rows.treatment,
    )


def columns_of_layouts(layouts: Sequence[Layout]) -> Columns:
    """Layouts of any sort."""

    def column(name: str) -> Any:
        return np.array([getattr(layout, name) for layout in layouts], dtype=np.int64)

    treated = [_treatment(layout.recompute) for layout in layouts]
    return Columns(
        tp=column("tensor_parallel"), cp=column("context_parallel"), pp=column("pipeline_parallel"), dp=column("data_parallel"),
        ep=column("expert_parallel"), etp=column("expert_tensor_parallel"), mb=column("microbatch_sequences"),
        vp=column("virtual_stages"), zero=column("zero_stage"), m=column("num_microbatches"), recompute=np.array(treated),
    )


def _treatment(recompute: Recompute) -> int:
    match recompute:
        case Full(layers=None):
            return 2
        case Full() | Mixed():
            return 3
        case Selective():
            return 1
        case _:
            return 0


def questions(case: Case, parameters: int) -> Mapping[str, Question]:
    """What is asked of the grid, by name."""
    node, domain = case.cluster.devices_per_node, case.cluster.scale_up_devices
    eight = min(8, node)
    asked: dict[str, Question] = {"any": lambda c: c.mb > 0}
    for mb in MICRO_BATCHES:
        asked[f"mb{mb}"] = lambda c, mb=mb: c.mb == mb  # type: ignore[misc]
    for code, name in enumerate(TREATMENTS):
        asked[f"recompute-{name}"] = lambda c, code=code: c.recompute == code  # type: ignore[misc]
    asked |= {
        "mb>pp": lambda c: c.mb > c.pp, "mb<=pp": lambda c: c.mb <= c.pp,
        "cp1": lambda c: c.cp == 1, "cp>1": lambda c: c.cp > 1,
        "cp-within": lambda c: c.tp * c.cp <= domain, "cp-across": lambda c: (c.cp > 1) & (c.tp * c.cp > domain),
        "tp1": lambda c: c.tp == 1, "tp2-4": lambda c: (c.tp == 2) | (c.tp == 4),
        "tp2-8": lambda c: (c.tp == 2) | (c.tp == 4) | (c.tp == 8), "tp8": lambda c: c.tp == 8,
        "tp-node": lambda c: (c.tp > 1) & (2 * c.tp > node), "tp-below-node": lambda c: (c.tp == 1) | (2 * c.tp <= node),
        "tp-within": lambda c: c.tp <= domain, "tp-beyond": lambda c: c.tp > domain,
        "pp1": lambda c: c.pp == 1, "pp>1": lambda c: c.pp > 1, "pp<=16": lambda c: c.pp <= 16, "pp>16": lambda c: c.pp > 16,
        "pp<m": lambda c: (c.pp > 1) & (c.pp < c.m), "pp>=m": lambda c: (c.pp > 1) & (c.pp >= c.m),
        "vp1": lambda c: (c.pp > 1) & (c.vp == 1), "vp<=2": lambda c: (c.pp > 1) & (c.vp <= 2),
        "vp>1": lambda c: c.vp > 1, "vp>2": lambda c: c.vp > 2,
        "zero3": lambda c: c.zero == 3, "zero<3": lambda c: c.zero < 3,
        "data-parallel": lambda c: c.tp * c.cp * c.pp * c.ep * c.etp == 1,
        "zero3-alone": lambda c: (c.zero == 3) & (c.tp * c.cp * c.pp == 1),
        "model-parallel": lambda c: (c.tp > 1) & (c.pp > 1),
        "one-technique": lambda c: ((c.tp > 1) * 1 + (c.pp > 1) + (c.cp > 1) + (c.ep > 1)) <= 1,
        "tp8-pp": lambda c: (c.tp == eight) & (c.pp > 1), "tp8-zero3": lambda c: (c.tp == eight) & (c.zero == 3),
        "tp8-zero2-pp": lambda c: (c.tp == eight) & (c.zero == 2) & (c.pp > 1),
    }
    if case.model.is_moe:
        asked |= {
            "ep>1": lambda c: c.ep > 1, "ep1": lambda c: c.ep == 1, "etp1": lambda c: c.etp == 1, "etp>1": lambda c: c.etp > 1,
            "ep-within": lambda c: c.ep * c.etp <= domain, "ep-across": lambda c: c.ep * c.etp > domain,
        }
    for name, factor in GUIDED.items():
        asked[name] = lambda c, factor=factor: _guided(c, case, parameters, factor)  # type: ignore[misc]
    return asked


def _guided(columns: Columns, case: Case, parameters: int, factor: float) -> Any:
    """ChatLearn's start: near 4 B per device, micro-batch 1, TP in a node, CP from 8192 tokens, PP below the micro-batches."""
    parts = columns.ep * columns.etp if case.model.is_moe else columns.tp * columns.pp
    near = np.abs(np.log(parameters / parts / START_PARAMETERS)) <= np.log(factor)
    feeds = (columns.pp == 1) | (columns.pp < columns.m)
    start = (columns.mb == 1) & (columns.tp <= case.cluster.devices_per_node) & (columns.vp <= 2) & feeds
    long = case.batch.sequence_tokens >= LONG_TOKENS and factor < np.inf
    return near & start & ((columns.cp > 1) if long else (columns.cp > 0))
