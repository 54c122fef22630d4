"""Every key of LLaMA-Factory's files: its own arguments, and those of the engines under their prefixes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from msgspec import structs

from meshwright.frameworks.accelerate import surface as accelerate_surface
from meshwright.frameworks.deepspeed import surface as deepspeed_surface
from meshwright.frameworks.deepspeed.json_config import BATCH_KEYS
from meshwright.frameworks.llama_factory_hf.sources import ACCELERATE, DEEPSPEED
from meshwright.frameworks.surface import Key, Surface, load_surface

RELEASES = ("0.9.4", "0.9.5", "main", "fsdp2")
"""``fsdp2`` is what accelerate starts, with its own YAML in place of DeepSpeed's JSON."""
DEFAULT = "0.9.5"
TITLE = "LLaMA-Factory"


@cache
def surface() -> Surface:
    """Arguments of LLaMA-Factory, and the keys of DeepSpeed's JSON and of accelerate's YAML beside it."""
    own, last = load_surface(__package__, TITLE, RELEASES), len(RELEASES) - 1
    engines = {
        prefix + name: (_key(spans[-1], prefix + name, last, filled_in=name in BATCH_KEYS),)
        for prefix, engine in ((DEEPSPEED, deepspeed_surface()), (ACCELERATE, accelerate_surface()))
        for name, spans in engine.keys.items() if not name.startswith("-")
    }
    return replace(own, keys={**engines, **own.keys})


def _key(key: Key, name: str, last: int, *, filled_in: bool) -> Key:
    """An engine's key under its name here; ``filled_in``: the Trainer takes ``auto`` for its number."""
    return structs.replace(key, name=name, since=0, until=last, kind="any" if filled_in else key.kind)
