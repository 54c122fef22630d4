"""Whether one layout is legal: the rules of the grid, asked about a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.plan.evaluate import schedule_of
from meshwright.search.rules import Knobs, refusals

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.rules import Ints


def knobs_of_layout(layout: Layout) -> Knobs:
    """A layout as the rules see it."""

    def number(value: int) -> Ints:
        return np.asarray(value, dtype=np.int64)

    match layout.recompute:
        case NoRecompute():
            treatment = "none"
        case Selective():
            treatment = "selective"
        case Full():
            treatment = "full"
    return Knobs(
        tp=number(layout.tensor_parallel), cp=number(layout.context_parallel), pp=number(layout.pipeline_parallel),
        dp=number(layout.data_parallel), ep=number(layout.expert_parallel), etp=number(layout.expert_tensor_parallel),
        mb=number(layout.microbatch_sequences), m=number(layout.num_microbatches), vp=number(layout.virtual_stages),
        schedule=schedule_of(layout), treatment=treatment, zero=number(layout.zero_stage), shards=number(layout.optimizer_shards),
        sp=number(int(layout.sequence_parallel)), context=layout.context_kind,
    )  # fmt: skip


def layout_refusals(case: Case, features: Features, layout: Layout) -> tuple[str, ...]:
    """Every rule that refuses a layout; empty where it is legal."""
    return refusals(case, features, knobs_of_layout(layout))
