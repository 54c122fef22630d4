"""The one name of a layout for a case, wherever it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.label import label
from meshwright.estimate.overlap import overlap_for
from meshwright.estimate.split import default_split

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Overlap


def name_of(case: Case, layout: Layout, overlap: Overlap | None = None) -> str:
    """The label of a layout; what the implementation of the case does by itself goes unsaid: its split of layers and its overlap,
    or the ``overlap`` that is given.
    """
    own = default_split(case, layout.pipeline_parallel, layout.virtual_stages)
    return label(layout, overlap=overlap or overlap_for(case), stage_layers=own, experts=case.model.is_moe)
