"""LLaMA-Factory with Megatron-Bridge (``USE_MEGATRON_BRIDGE=1``): Bridge's fields under the names of its arguments."""

from __future__ import annotations

from dataclasses import replace

from meshwright.frameworks.base import Framework
from meshwright.frameworks.bridge import BRIDGE
from meshwright.frameworks.bridge.deciding import normal
from meshwright.frameworks.facts import Facts
from meshwright.frameworks.llama_factory_megatron.limits import all_limits
from meshwright.frameworks.llama_factory_megatron.mistakes import CHECKS, adds_keys, unknown_key
from meshwright.frameworks.llama_factory_megatron.reading import NAME, interpret
from meshwright.frameworks.llama_factory_megatron.sources import EXTRA, open_files
from meshwright.frameworks.llama_factory_megatron.surfaces import RELEASES, TITLE, surface
from meshwright.frameworks.llama_factory_megatron.writing import BELOW, UNSPOKEN, decide, write

__all__ = ["LLAMA_FACTORY_MEGATRON", "surface"]

_FEATURES = replace(
    BRIDGE.features, name=NAME, attentions=(), dispatchers=("alltoall",), offloads=(), zero_stages=(0, 1), partial_sharding=False,
    context_kinds=("ring",), uneven_stages=False, optimizer_offload=False, overlaps=("grad", "param", "p2p"),
)
LLAMA_FACTORY_MEGATRON = Framework(
    name=NAME,
    title=TITLE,
    aliases=("llama-factory-bridge",),
    implementation=BRIDGE.implementation,
    version=BELOW,
    releases=RELEASES,
    features=_FEATURES,
    limits=all_limits(),
    writer=write,
    surface=surface,
    decide=decide,
    opener=open_files,
    interpreter=interpret,
    checks=CHECKS,
    unknown_keys=unknown_key,
    adds_keys=adds_keys,
    normal=normal,
    unspoken=UNSPOKEN,
    facts=Facts(stages_inside_key=f"{EXTRA}{BRIDGE.facts.stages_inside_key}"),
)
