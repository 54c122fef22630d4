"""Names under which the Hugging Face hub has a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.model import Model

PLACEHOLDER = "ORGANISATION/MODEL"
"""Stands where the catalogue knows no name; a README names it among the blanks."""


def hub_name(model: Model) -> str:
    """The first ``organisation/name`` among the model's spellings, or the placeholder."""
    from meshwright.catalog.model_sheet import model_names

    return next((spelling for spelling in model_names().spellings(model.name) if "/" in spelling), PLACEHOLDER)
