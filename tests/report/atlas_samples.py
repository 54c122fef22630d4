"""Made-up cells of an atlas."""

from __future__ import annotations

from typing import Any

from meshwright.api.cells.cell import Cell
from meshwright.api.verbs.atlas import AtlasAnswer, AtlasRequest
from meshwright.units import GIB

LAYOUT = {
    "data_parallel": 128, "tensor_parallel": 16, "context_parallel": 2, "pipeline_parallel": 32, "virtual_stages": 1,
    "expert_parallel": 8, "expert_tensor_parallel": 1, "microbatch_sequences": 2, "num_microbatches": 1024, "zero_stage": 1,
    "sequence_parallel": True, "recompute": "selective:core_attn", "offload": "",
}


def cell(series: str, nodes: int, **more: Any) -> Cell:
    said: dict[str, Any] = {
        "series": series, "model": series, "device": "h100-sxm", "devices": 8 * nodes, "devices_per_node": 8, "source": "predicted",
        "grade": "refined", "label": "tp16 pp32", "layout": LAYOUT, "step_s": 12.3456, "tokens_per_s_per_device": 10_000.0 / nodes,
        "mfu_ratio": 0.4 / nodes, "memory_reserved_bytes": 61 * GIB, "memory_capacity_bytes": 71 * GIB,
        "batch": {"global_batch_sequences": 1024, "sequence_tokens": 8192},
    }
    return Cell(**{**said, **more})


def empty(series: str, nodes: int, **more: Any) -> Cell:
    return cell(series, nodes, label=None, layout=None, step_s=None, tokens_per_s_per_device=None, mfu_ratio=None,
                memory_reserved_bytes=None, why="no room", **more)


def wide_atlas() -> AtlasAnswer:
    """Three models, one of a long name, on fourteen numbers of nodes; some coarse, some empty."""
    cells = [cell("a-model-of-a-name-that-is-longer-than-a-phone-is-wide", 2**place, grade="coarse" if place % 3 else "refined")
             for place in range(14)]
    cells += [empty("b", 2**place, missing_bytes=(1500 - place) * GIB) for place in range(3)]
    cells += [cell("b", 2**place, mfu_ratio=0.61 / (place + 1)) for place in range(3, 14)]
    cells += [cell("c", 2**place, mfu_ratio=0.02 * (place + 1)) for place in range(14)]
    return AtlasAnswer(asked=AtlasRequest(), request={}, cells=tuple(cells))
