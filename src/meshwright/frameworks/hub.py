"""Names under which the Hugging Face hub has a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import markdown_code

if TYPE_CHECKING:
    from meshwright.domain.model import Model

PLACEHOLDER = "ORGANISATION/MODEL"
"""Stands where the catalogue knows no name; a README names it among the blanks."""


def hub_name(model: Model) -> str:
    """The first ``organisation/name`` among the model's spellings, or the placeholder; of fewer layers it is the whole model's."""
    from meshwright.catalog.model_sheet import model_names

    return next((spelling for spelling in model_names().spellings(_whole(model)) if "/" in spelling), PLACEHOLDER)


def hub_words(model: Model) -> str:
    """The name as Markdown, and how many layers of it are meant where these are not all."""
    cut = "" if _whole(model) == model.name else f" with {model.num_layers} layers (`num_hidden_layers`)"
    return f"{markdown_code(hub_name(model))}{cut}"


def _whole(model: Model) -> str:
    """The name of the model that was shrunk (``catalog.shrink``), or its own."""
    from meshwright.catalog.model_sheet import model_names

    name = model.name.removesuffix(f"-{model.num_layers}l")
    return name if model_names().spellings(name) else model.name
