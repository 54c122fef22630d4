"""A run of a case as a row of measured runs, in the schema of the corpus that ships: what ``calibrate`` and ``validate`` read.

A row is written only where it is read back as the run that it was made of: the same shapes, layout, machine and batch.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from meshwright.catalog import load_model, models
from meshwright.domain.label import label
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.domain.recompute_label import recompute_word
from meshwright.errors import fault
from meshwright.evidence.rows.columns import SCHEMA, cell_fault
from meshwright.evidence.rows.reading import Refused, read_row
from meshwright.evidence.rows.row import row_of as typed
from meshwright.perf.parameters import total_parameters
from meshwright.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model


def row_of_case(
    case: Case, layout: Layout, *, id: str, source: str, framework: str = "", version: str = "", status: str = "ok",
    step_s: float | None = None, memory_bytes: float | None = None, flag: str = "", notes: str = "",
) -> dict[str, str]:
    """Column -> cell; what is not known is blank. ``source``: ``diagnosed from ...`` or ``measured by ...``.

    Errors:  ``InputError`` where no row has words for a run that was measured.
    """
    cells: dict[str, object] = {
        "id": id, "source": source, "status": status, "framework": framework, "framework_version": version, "flag": flag,
        "notes": notes, **cells_of(case, layout),
    }
    if step_s is not None:
        cells |= {"step_time_s": f"{step_s:.6g}", "tokens_per_s_per_gpu": f"{case.batch.tokens / step_s / layout.world:.6g}"}
    if memory_bytes is not None:
        cells |= {"mem_gb": f"{memory_bytes / GIB:.6g}", "mem_kind": "reserved peak"}
    row = {name: str(cells.get(name, "")) for name in SCHEMA}
    if status == "ok" and step_s is not None:
        check_read_back(row, case, layout)
    return row


def cells_of(case: Case, layout: Layout) -> dict[str, object]:
    """What ran, on what, and how; a model of the catalogue is said by its name alone, a layout by its label beside the columns."""
    model, cluster = case.model, case.cluster
    known = model.name in models() and load_model(model.name) == model
    return {
        "task": case.training.task,
        "model": model.name,
        **({} if known else shape_of(model)),
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
        "zero": layout.zero_stage,
        "recompute": recompute_word(layout.recompute).replace(",", "+"),
        "extra_settings": f"implementation: {case.implementation.name}; layout: {label(layout)}",
    }


def shape_of(model: Model) -> dict[str, object]:
    """The columns of a model; of what they have no words for nothing is said."""
    attention, experts = model.attention, model.experts
    heads = attention.num_heads
    dense = next((kind.feed_forward for kind in model.kinds if isinstance(kind.feed_forward, Mlp)), None)
    cells: dict[str, object] = {
        "n_params_B": f"{float(total_parameters(model)) / 1e9:.12g}",
        "n_layers": model.num_layers,
        "hidden": model.hidden,
        "n_heads": heads,
        "n_kv_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "attention": "mla" if attention.latent else "mha" if attention.num_key_value_heads == heads else "gqa",
        "vocab": model.vocabulary,
        "gated_mlp": int(model.feed_forward.gated),
        "ffn_hidden": dense.width if dense is not None else experts.expert_width if experts is not None else "",
    }
    if experts is not None:
        cells |= {
            "n_experts": experts.num_experts,
            "top_k": experts.experts_per_token,
            "moe_ffn_hidden": experts.expert_width,
            "n_shared_experts": experts.shared_width // experts.expert_width,
            "n_dense_layers": next(at for at, kind in enumerate(model.pattern) if model.kinds[kind].experts is not None),
        }
    return cells


def check_read_back(row: Mapping[str, str], case: Case, layout: Layout) -> None:
    """Refuse what the table would read as another run."""
    faults = [why for name, cell in row.items() if cell and (why := cell_fault(name, cell))]
    found = None if faults else read_row(typed({name: cell for name, cell in row.items() if cell}))
    if found is None or isinstance(found, Refused):
        raise fault("diagnose.row-refused", "the run makes no row of measured runs: {why}",
                    why=faults[0] if found is None else found.reason)
    pairs = {
        "model": (_shapes(found.case.model), _shapes(case.model)),
        "layout": (label(found.layout), label(layout)),
        "device": (found.case.cluster.device.name, case.cluster.device.name),
        "batch": (found.case.batch.tokens, case.batch.tokens),
        "precision": (found.case.training.precision.name, case.training.precision.name),
        "optimizer": (found.case.training.optimizer.name, case.training.optimizer.name),
        "adapters": (found.case.training.lora, case.training.lora),
        "implementation": (found.case.implementation.name, case.implementation.name),
    }
    if lost := [name for name, (read, meant) in pairs.items() if read != meant]:
        raise fault("diagnose.row-words", "a row of measured runs has no words for the {what} of this run, and would be read as "
                    "another", what=" and the ".join(lost))


def _shapes(model: Model) -> tuple[object, ...]:
    """What decides time and memory of a model; norms, biases and positions are small."""
    layers = []
    for kind in model.kinds:
        attention, feed = kind.attention, kind.feed_forward
        own: tuple[object, ...] = (feed.num_inputs, kind.mixer)
        if attention is not None:
            own += (attention.num_heads, attention.latent, attention.window_tokens, attention.selected_tokens)
            own += () if attention.latent else (attention.num_key_value_heads, attention.head_dim)
        if isinstance(feed, MixtureOfExperts):
            own += (feed.num_experts, feed.experts_per_token, feed.expert_width, feed.shared_width)
        else:
            own += (feed.width,)
        layers.append(own)
    ends = (model.hidden, model.vocabulary, model.tied_embeddings, model.num_mtp_layers)
    return (*ends, *(layers[each] for each in model.pattern))


def table_of(rows: Sequence[dict[str, str]]) -> str:
    """Rows as the text of a CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
