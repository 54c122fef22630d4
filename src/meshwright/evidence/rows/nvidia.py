"""What NVIDIA's rows say in words beside their columns: dispatcher, graphs, overlap, layers per stage, balanced routing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from meshwright.catalog import load_model, models
from meshwright.domain.training import Lora

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.evidence.rows.row import Row

SOURCE = "NVIDIA"
"""Beginning of the names of NVIDIA's own repositories, whose recipes the conventions here are."""
RACKS = ("gb200", "gb300")
"""Devices of an NVL72 domain, whose recipes are apart."""
PACKED_TOKENS = 210
"""Length of the document that a token of packed SQuAD stands in, on average (contexts of some 150 words, question, answer)."""
GRAPHS_SINCE = "26.06"
"""Release of Megatron-Bridge since which its mixture recipes for racks run the whole iteration as one graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Settings of a run that no column has."""

    graphs: bool
    """The whole iteration is one CUDA graph (partial graphs of attention or router are not)."""
    flex: bool
    """The flex dispatcher with DeepEP or HybridEP."""
    expert_overlap: bool
    dropless: bool
    """No capacity: the host waits for the numbers of tokens per expert."""
    balanced: bool
    """Routing is forced to be balanced, or padded to a capacity."""
    mtp_layers: int
    layout: str
    """Megatron-Core's pipeline layout string; empty: not given."""


def release(row: Row) -> str:
    """The year and month of a container: ``26.04`` of ``NeMo 26.04.01 (bridge v0.4.1)``."""
    found = re.search(r"\d\d\.\d\d", row.framework_version)
    return found.group() if found else ""


def packed(row: Row) -> bool:
    """Fine-tuning on packed SQuAD, as all of NVIDIA's fine-tuning recipes run."""
    return row.source.startswith(SOURCE) and row.task in ("sft", "lora")


def adapters(row: Row) -> Lora | None:
    """Adapters of a LoRA row: on query, key and value alone in NVIDIA's recipes (target_modules linear_qkv)."""
    if row.task != "lora":
        return None
    return Lora(targets=("query", "key", "value")) if packed(row) else Lora()


def said(row: Row) -> Said:
    """Settings of a row from its ``extra_settings`` and ``notes``; what a recipe is known to do where they are silent."""
    extra, notes = row.extra_settings.lower(), row.notes.lower()
    bridge = row.framework == "megatron-bridge" and bool(row.shape.num_experts)
    racks = bridge and row.device in RACKS and release(row) >= GRAPHS_SINCE
    drop = "tokendrop" in notes
    domain = 72 if row.device in RACKS else 8
    crosses = bridge and not drop and "a2a_overlap=" not in extra and (row.expert_parallel or 1) > domain
    named = "dispatcher=" in extra or "dispatcher-type" in extra
    flex = "deepep" in extra + notes or "hybridep" in extra + notes
    graphs = "full_iteration" in extra and "none:full_iteration" not in extra
    layout = re.search(r'pp_layout=(E[^;]*)|pipeline-model-parallel-layout": "(E[^"]*)"', row.extra_settings)
    latent = row.shape.attention == "mla" and row.source.startswith(SOURCE)
    return Said(
        graphs=graphs or racks,
        flex=flex or (bridge and not named and not drop),
        expert_overlap="a2a_overlap=true" in extra or "overlap-moe-expert" in extra or "ep overlap" in notes or racks or crosses,
        dropless=bool(row.shape.num_experts) and not drop,
        balanced="forced router balance" in notes or "force-load-balancing" in extra or drop,
        mtp_layers=int(latent and "w/o mtp" not in notes),
        layout=(layout.group(1) or layout.group(2)) if layout else "",
    )


def layers_of(layout: str, stages: int, chunks: int) -> tuple[tuple[int, ...], ...] | None:
    """Layers per chunk and stage of a pipeline layout string, multi-token-prediction layers not counted.

    ``E`` embedding, ``t`` a layer, ``m`` a multi-token-prediction layer, ``L`` the loss; ``x*n`` and ``(..)*n`` repeat, ``|``
    ends a place. None where the places are not stages x chunks.

    Source: Megatron-Core --pipeline-model-parallel-layout (pipeline_parallel_layer_layout.py).

    >>> layers_of("Et*2|(tt|)*2tmL", 2, 2)
    ((2, 2), (2, 1))
    """
    text = layout.replace(" ", "")
    while found := re.search(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)", text):
        piece, times = found.group(1) or found.group(3), int(found.group(2) or found.group(4))
        text = text[: found.start()] + piece * times + text[found.end() :]
    places = [place.count("t") for place in text.split("|")]
    if len(places) != stages * chunks:
        return None
    return tuple(tuple(places[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))


def windowed(model: Model) -> Model | None:
    """The catalogue's model of the same name and shapes, if some of its layers attend to a window."""
    if model.name not in models():
        return None
    known = load_model(model.name)

    def shape(each: Model) -> tuple[object, ...]:
        parts = {
            (kind.attention.num_heads, kind.attention.num_key_value_heads, kind.attention.head_dim, kind.feed_forward.num_inputs,
             kind.experts and (kind.experts.num_experts, kind.experts.experts_per_token, kind.experts.expert_width))
            for kind in each.kinds
        }
        return each.hidden, each.vocabulary, each.num_layers, parts

    windows = any(kind.attention.window_tokens for kind in known.kinds)
    return known if windows and shape(known) == shape(model) else None


def shards(row: Row, ranks: int, memory_bytes: float) -> int:
    """Ranks over which MaxText and PaxML shard: all, 256 under HSDP, and under ``FSDP+DP`` the least power of two from 8 up at
    which 16 bytes a parameter take at most 30 % of memory."""
    if "FSDP+DP" in row.notes:
        needed = 16e9 * (row.shape.parameters_billions or 0.0) / (0.3 * memory_bytes)
        return min(ranks, max(8, int(2 ** ceil(log2(needed)))))
    return min(ranks, 256) if row.zero == "hsdp" else ranks
