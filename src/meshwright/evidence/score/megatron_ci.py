"""Megatron-LM's own CI runs as a check of the memory model: allocated bytes of the last stage, without a target.

Most of its rows do not state their vocabulary (the tokenizer is a default of the test harness), many not their devices; those are
skipped and counted. What a row does not say otherwise is Megatron-LM's default: four-fold feed-forward width, biases, separate
loss in FP32, gradients accumulated in FP32.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.catalog import calibration, cluster_for, recipes
from meshwright.catalog import implementation as implementation_named
from meshwright.domain.attention import Attention
from meshwright.domain.case import Case
from meshwright.domain.layout import Layout
from meshwright.domain.memory_reading import MemoryReading
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.domain.training import Batch, Training
from meshwright.estimate.evaluate import evaluate
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "megatron_ci_memory.csv"
TOKENIZERS = {"Llama2Tokenizer": 32000}
"""Tokenizers whose name implies the vocabulary; NullTokenizer states it and adds the end of a document."""
DEVICES = {"a100": "a100-80g-sxm", "h100": "h100-sxm", "gb200": "gb200"}
LAST_STAGE = MemoryReading(kind="allocated", stage="last")
UNSUPPORTED = (
    "num-experts", "multi-latent-attention", "is-hybrid-model", "hybrid-layer-pattern", "use-megatron-fsdp",
    "recompute-granularity", "fp8-format", "mtp-num-layers", "pipeline-model-parallel-layout", "fine-grained-activation-offloading",
)
"""Columns that this reader does not turn into a case."""
UNFUSED_LOGIT_BYTES = 10.0


class Check(Value, frozen=True, kw_only=True):
    """A run of the CI beside its prediction."""

    test: str
    device: str
    measured_bytes: float
    predicted_bytes: float

    @property
    def error_ratio(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


class UnresolvedError(Exception):
    """A row that does not say enough; its text says what is missing."""


def check(folder: Path) -> tuple[tuple[Check, ...], Mapping[str, int]]:
    """Every row that resolves beside its prediction, and how many were skipped for which reason."""
    found: list[Check] = []
    skipped: Counter[str] = Counter()
    with (folder / FILE).open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                case, layout = _resolved(row)
            except UnresolvedError as reason:
                skipped[str(reason)] += 1
                continue
            evaluation = evaluate(case, layout)
            predicted = evaluation.memory.shown(LAST_STAGE, evaluation.composition, case.cluster.device.memory_bytes)
            measured, name = float(row["mem_max_allocated_bytes"]), case.cluster.device.name
            found.append(Check(test=row["test"], device=name, measured_bytes=measured, predicted_bytes=float(predicted)))
    return tuple(found), dict(sorted(skipped.items()))


def _resolved(row: Mapping[str, str]) -> tuple[Case, Layout]:
    if not row["test"].startswith("gpt/"):
        raise UnresolvedError(f"no decoder of text alone ({row['test'].split('/')[0]})")
    if unread := [name for name in UNSUPPORTED if row[name]]:
        raise UnresolvedError(f"not read: {unread[0]}")
    device = DEVICES.get(row["gpu"].removesuffix("_2nd"))
    if not row["nodes"] or device is None:
        raise UnresolvedError("devices unstated")
    needed = ("num-layers", "hidden-size", "num-attention-heads", "seq-length", "global-batch-size", "micro-batch-size", "bf16")
    if not all(row[key] for key in needed) or not row["mem_max_allocated_bytes"]:
        raise UnresolvedError("shape or figure unstated")
    if row["transformer-impl"] != "transformer_engine":
        raise UnresolvedError("not Transformer Engine")
    devices = int(row["nodes"]) * int(row["gpus_per_node"])
    implementation = implementation_named("megatron-te")
    if row["cross-entropy-loss-fusion"] != "true":
        implementation = replace(implementation, logit_bytes=UNFUSED_LOGIT_BYTES)
    cluster = cluster_for(device, num_devices=devices)
    batch = Batch(global_batch_sequences=int(row["global-batch-size"]), sequence_tokens=int(row["seq-length"]))
    case = Case(
        model=_model(row), cluster=cluster, batch=batch, implementation=implementation,
        training=Training(task="pretrain", precision=recipes.precision("bf16"), optimizer=recipes.optimizer("adamw")),
        calibration=calibration("none", cluster.device),
    )
    return case, _layout(row, devices)


def _vocabulary(row: Mapping[str, str]) -> int:
    if row["tokenizer-type"] == "NullTokenizer" and row["vocab-size"]:
        return int(row["vocab-size"]) + 1
    known = TOKENIZERS.get(row["tokenizer-type"])
    if known is None:
        raise UnresolvedError("vocabulary unstated")
    return known


def _model(row: Mapping[str, str]) -> Model:
    hidden, heads, layers = int(row["hidden-size"]), int(row["num-attention-heads"]), int(row["num-layers"])
    groups = int(row["num-query-groups"]) if row["group-query-attention"] == "true" and row["num-query-groups"] else heads
    attention = Attention(
        num_heads=heads, num_key_value_heads=groups, head_dim=int(row["kv-channels"] or hidden // heads), query_bias=True,
        key_value_bias=True, output_bias=True,
    )
    block = Mlp(width=int(row["ffn-hidden-size"] or 4 * hidden), gated=row["swiglu"] == "true", bias=True)
    return Model(
        name=row["test"], hidden=hidden, vocabulary=_vocabulary(row), kinds=(LayerKind(attention=attention, feed_forward=block),),
        pattern=(0,) * layers, norm="layer", position="rope", position_table=0,
        tied_embeddings=row["untie-embeddings-and-output-weights"] != "true",
    )


def _layout(row: Mapping[str, str], devices: int) -> Layout:
    tp, pp, cp = (
        int(row[f"{name}-size"] or 1) for name in ("tensor-model-parallel", "pipeline-model-parallel", "context-parallel")
    )
    per_chunk = row["num-layers-per-virtual-pipeline-stage"]
    chunks = int(row["num-layers"]) // pp // int(per_chunk) if per_chunk else 1
    dp, mb = devices // (tp * pp * cp), int(row["micro-batch-size"])
    if dp < 1 or int(row["global-batch-size"]) % (dp * mb):
        raise UnresolvedError("degrees do not fit the devices")
    return Layout(
        tensor_parallel=tp, sequence_parallel=row["sequence-parallel"] == "true", context_parallel=cp, pipeline_parallel=pp,
        virtual_stages=chunks, schedule="interleaved" if chunks > 1 else "1f1b", data_parallel=dp,
        optimizer_shards=dp * cp if row["use-distributed-optimizer"] == "true" else 1, microbatch_sequences=mb,
        num_microbatches=int(row["global-batch-size"]) // (dp * mb),
    )
