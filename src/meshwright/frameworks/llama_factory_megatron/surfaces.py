"""Every key of LLaMA-Factory's Megatron-Bridge back end: its arguments, and Bridge's fields in ``extra_config``."""

from __future__ import annotations

from functools import cache

from msgspec import structs

from meshwright.frameworks.bridge import surface as bridge_surface
from meshwright.frameworks.llama_factory_hf.surfaces import surface as shared_surface
from meshwright.frameworks.llama_factory_megatron.sources import EXTRA
from meshwright.frameworks.surface import Surface, load_surface

RELEASES = ("main",)
TITLE = "LLaMA-Factory (Megatron-Bridge)"


@cache
def surface() -> Surface:
    """Arguments of both back ends, and the fields of Bridge."""
    own = load_surface(__package__, TITLE, RELEASES)
    shared = {name: (structs.replace(spans[-1], since=0, until=0),) for name, spans in shared_surface().keys.items()}
    fields = {
        EXTRA + name: (structs.replace(spans[-1], name=EXTRA + name, since=0, until=0),)
        for name, spans in bridge_surface().keys.items() if not name.startswith("-")
    }
    return Surface(title=TITLE, releases=RELEASES, keys={**shared, **fields, **own.keys})
