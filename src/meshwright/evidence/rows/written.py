"""A run of a case as a row of measured runs, in the schema of the corpus that ships: what ``calibrate`` and ``validate`` read."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.domain.model import MixtureOfExperts
from meshwright.errors import fault
from meshwright.evidence.rows.columns import SCHEMA
from meshwright.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Recompute


def row_of_case(
    case: Case, layout: Layout, *, id: str, source: str, framework: str = "", version: str = "", status: str = "ok",
    step_s: float | None = None, memory_bytes: float | None = None, flag: str = "", notes: str = "",
) -> dict[str, str]:
    """Column -> cell; what is not known is blank.

    Errors:  ``InputError`` where no row has words for the layout.
    """
    model, cluster = case.model, case.cluster
    kind = model.kinds[-1]
    cells: dict[str, object] = {
        "id": id,
        "source": source,
        "status": status,
        "task": case.training.task,
        "framework": framework,
        "framework_version": version,
        "model": model.name,
        "n_layers": model.num_layers,
        "hidden": model.hidden,
        "n_heads": kind.attention.num_heads,
        "n_kv_heads": kind.attention.num_key_value_heads,
        "head_dim": kind.attention.head_dim,
        "vocab": model.vocabulary,
        "gated_mlp": int(kind.feed_forward.gated),
        "gpu": cluster.device.name,
        "n_gpus": layout.world,
        "gpus_per_node": cluster.devices_per_node,
        "precision": case.training.precision.name,
        "seq": case.batch.sequence_tokens,
        "gbs": case.batch.global_batch_sequences,
        "mbs": layout.microbatch_sequences,
        "tp": layout.tensor_parallel,
        "sp": int(layout.sequence_parallel),
        "cp": layout.context_parallel,
        "pp": layout.pipeline_parallel,
        "vpp": layout.virtual_stages,
        "ep": layout.expert_parallel,
        "etp": layout.expert_tensor_parallel,
        "dp": layout.data_parallel,
        "zero": zero_stage(layout),
        "recompute": recompute_word(layout.recompute),
        "flag": flag,
        "notes": notes,
    }
    if step_s is not None:
        cells |= {"step_time_s": f"{step_s:.6g}", "tokens_per_s_per_gpu": f"{case.batch.tokens / step_s / layout.world:.6g}"}
    feed = kind.feed_forward
    if isinstance(feed, MixtureOfExperts):
        cells |= {"n_experts": feed.num_experts, "top_k": feed.experts_per_token, "moe_ffn_hidden": feed.expert_width}
    else:
        cells["ffn_hidden"] = feed.width
    if memory_bytes is not None:
        cells |= {"mem_gb": f"{memory_bytes / GIB:.6g}", "mem_kind": "reserved peak"}
    return {name: str(cells.get(name, "")) for name in SCHEMA}


def zero_stage(layout: Layout) -> str:
    """The stage of sharding as the corpus spells it."""
    return (
        "3" if layout.parameter_shards > 1 else "2" if layout.gradient_shards > 1 else "1" if layout.optimizer_shards > 1 else "0"
    )


def recompute_word(recompute: Recompute) -> str:
    """Recomputation as the corpus spells it.

    Errors:  ``InputError`` for what differs between stages, which no column says.
    """
    match recompute:
        case NoRecompute():
            return "none"
        case Full() if recompute == Full():
            return "full"
        case Selective():
            return f"selective:{'+'.join(recompute.modules)}"
    raise fault("diagnose.row-recompute", "recomputation that differs between stages has no word in a row of measured runs")


def table_of(rows: Sequence[dict[str, str]]) -> str:
    """Rows as the text of a CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
