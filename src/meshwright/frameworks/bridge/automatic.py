"""Models that Megatron-Bridge builds from the files of their class (``AutoBridge``), for no field of its GPT provider says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import python
from meshwright.frameworks.hub import hub_name
from meshwright.frameworks.parts import takes_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.model import Model

RELEASES = ("0.3", "main")
"""0.3: tag v0.3.1; main: 067f987 of 2026-08-22."""


def is_automatic(model: Model, release: str) -> bool:
    """Whether a release builds the model through AutoBridge."""
    return takes_class("bridge", release, RELEASES, model)


def built(model: Model) -> Iterator[str]:
    """The lines of a program that set ``config.model``: its shape is the hub's, with as many layers as are planned."""
    yield f"    bridge = AutoBridge.from_hf_pretrained({python(hub_name(model))})"
    yield "    config.model = bridge.to_megatron_provider(load_weights=False)"
    yield f"    config.model.num_layers = {model.num_layers}"
