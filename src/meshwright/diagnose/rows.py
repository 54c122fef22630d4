"""A run as a row of measured runs, so that ``calibrate`` learns from it; the schema is that of the corpus that ships."""

from __future__ import annotations

import csv
import hashlib
import io
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.domain.model import MixtureOfExperts
from meshwright.errors import NoAnswerError, fault
from meshwright.evidence.rows.columns import SCHEMA
from meshwright.units import GIB

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run
    from meshwright.domain.layout import Recompute


def row_of(run: Run) -> dict[str, str]:
    """Column -> cell; what is not known is blank. The identifier is that of what was read, so that the same log is the same row.

    Errors:  ``InputError`` where the case, its layout or a steady step is not known, and where no row has words for it.
    """
    facts, steady, log = run.facts, run.steady, run.log
    if facts is None or log is None:
        raise fault(
            "diagnose.row",
            "a row needs the model, the device and the layout of the run: --plan, or --model and --device beside a "
            "log that prints its arguments",
        )
    if steady is None:
        raise NoAnswerError(fault("diagnose.row-steps", "the log has no steps to make a row of").messages)
    case, layout = facts.case, facts.layout
    model, cluster = case.model, case.cluster
    kind = model.kinds[-1]
    digest = hashlib.sha256(repr([(each.number, each.step_s) for each in steady.steps]).encode()).hexdigest()
    cells: dict[str, object] = {
        "id": f"run-{digest[:12]}",
        "source": f"diagnosed from {log.file}",
        "status": "ok",
        "task": case.training.task,
        "framework": run.framework.name if run.framework else "",
        "framework_version": run.framework.version if run.framework else "",
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
        "zero": zero_stage(run),
        "recompute": recompute_word(layout.recompute),
        "step_time_s": f"{steady.step_s:.6g}",
        "tokens_per_s_per_gpu": f"{case.batch.tokens / steady.step_s / layout.world:.6g}",
        "notes": f"median of {len(steady.steps)} steps from {steady.steps[0].number} to {steady.steps[-1].number}",
    }
    feed = kind.feed_forward
    if isinstance(feed, MixtureOfExperts):
        cells |= {"n_experts": feed.num_experts, "top_k": feed.experts_per_token, "moe_ffn_hidden": feed.expert_width}
    else:
        cells["ffn_hidden"] = feed.width
    if run.memory_bytes is not None:
        cells |= {"mem_gb": f"{run.memory_bytes / GIB:.6g}", "mem_kind": "reserved peak"}
    return {name: str(cells.get(name, "")) for name in SCHEMA}


def zero_stage(run: Run) -> str:
    """The stage of sharding as the corpus spells it."""
    layout = run.layout
    assert layout is not None, "a row has a layout"
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


def table_of(rows: list[dict[str, str]]) -> str:
    """Rows as the text of a CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
