"""Rows of ``measured_runs.csv`` as cases and layouts, from their own columns; what a row leaves out is assumed here alone."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshwright import catalog
from meshwright.catalog import recipes
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.domain.model import Attention, LatentAttention, LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.domain.reading import Reading
from meshwright.domain.training import Batch, Lora, Training
from meshwright.perf.parameters import total_parameters
from meshwright.plan.split import cost_split

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.implementation import Implementation

Row = dict[str, str]

SC21 = {
    "gpt-1.7b": (16, 1), "gpt-3.6b": (16, 1), "gpt-7.5b": (16, 1), "gpt-18.4b": (8, 1), "gpt-39.1b": (4, 1), "gpt-76.1b": (2, 3),
    "gpt-145.6b": (2, 2), "gpt-310.1b": (1, 2), "gpt-529.6b": (1, 3), "gpt-1008.0b": (1, 1),
}  # fmt: skip
"""Micro-batch and chunks of Narayanan et al. 2021, table 1: NVIDIA/Megatron-LM examples/sc21/run_table_1.sh."""
MINDSPEED = ("ModelLink", "MindSpeed-LLM")
DEVICES = {"h100-80g-sxm": "h100-sxm", "h100-96g-sxm": "h100-96g"}
PRECISIONS = {"fp8": "fp8-delayed", "bf16-amp": "bf16"}
NOT_TRANSFORMERS = ("nemotron-3", "nemotron-h", "qwen3-next", "qwen3.5", "deepseek-v4")
"""Hybrids with state-space or linear attention layers, and sparse attention: their columns do not describe them."""
DEEPSEEK = LatentAttention(query_rank=1536, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
ASSUMPTIONS = (
    "Narayanan 2021: micro-batch and interleaving of each row from examples/sc21/run_table_1.sh of Megatron-LM; FP16; no "
    "sequence parallelism.",
    "Playbook: cluster `p5` (3.2 Tb/s EFA a node). nanotron places layers by cumulative cost with the output layer counted "
    "(build_model), so the stages of a row are uneven as in `plan.split.cost_split`. More stages than layers count as "
    "predicted not to fit.",
    "vTrain: 800 Gb/s a node as its notes say, ZeRO-0. BLOOM: cluster `jean-zay-a100`.",
    "NVIDIA rows (NeMo, Megatron-Bridge, Megatron-LM): `fp8` without a recipe is delayed scaling; TP overlap (userbuffers) on "
    "for NeMo and Bridge; expert overlap, CUDA graphs and de-duplicating dispatchers (DeepEP, HybridEP) where the row names "
    "them; recompute none where blank; expert TP = TP where blank on NeMo rows with EP before 25.04, else 1.",
    "Playbook memory: world rank 0 writes it (the first stage), after log_memory has reset the peak counters within the step: "
    "it is what the caching allocator holds then (nanotron helpers.py log_throughput, logging.py log_memory). Peaks of tensors "
    "would grow with the micro-batch; the figures of runs near capacity do not.",
    "FP16 rows of Megatron-DeepSpeed and MindSpeed have FP16 gradients, as those frameworks do without another flag.",
    "Ascend rows: expert TP = TP where blank (Megatron-Core's default); MindSpeed's kernels; no-op layers (notes) do not exist. "
    "Their memory is logged after the first step (report_memory), whose backward had no "
    "moments yet: rows without activations to speak of show exactly their states.",
    "Multi-head latent attention has the widths of DeepSeek-V3. Sliding windows (GPT-OSS) are not in the columns and not modelled.",
    "Tied embeddings where that brings the parameter count nearer to the published one, or notes say so; untied without either.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row that can be predicted."""

    id: str
    row: Row
    case: Case
    layout: Layout
    step_s: float | None
    memory_bytes: float | None
    failed: bool
    reading: Reading
    """What the figure of memory is."""


class ImpossibleError(Exception):
    """A row whose degrees no framework can run; it is predicted not to fit."""


class UnreadableError(Exception):
    """A row that this reader cannot turn into a case; its text says why."""


def read(corpus: Path) -> list[Row]:
    """All rows of the corpus, in no meaningful order."""
    with (corpus / "measured_runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def run(row: Row) -> Run:
    """A row as a case and a layout.

    Errors: ``UnreadableError`` where a needed column is blank or the model is no transformer; ``ImpossibleError`` where
            nothing can run it.
    """
    if row["model"].startswith(NOT_TRANSFORMERS):
        raise UnreadableError("not a transformer")
    if not all(row[key] for key in ("gbs", "seq", "tp", "pp", "n_gpus", "hidden", "n_layers", "ffn_hidden", "vocab")):
        raise UnreadableError("layout or architecture is blank")
    batch = Batch(global_batch_sequences=_int(row, "gbs"), sequence_tokens=_int(row, "seq"))
    model, layout = _model(row), _layout(row)
    if row["framework"] == "nanotron" and layout.pipeline_parallel > 1:
        layout = replace(layout, stage_layers=cost_split(model, layout.pipeline_parallel))
    if layout.world != _int(row, "n_gpus"):
        raise UnreadableError("degrees do not multiply to the devices")
    if layout.pipeline_parallel * layout.virtual_stages > model.num_layers:
        raise ImpossibleError("more chunks than layers")
    if row["framework"] == "nanotron" and (reason := _refused_by_nanotron(layout)):
        raise ImpossibleError(reason)
    half = row["precision"] == "fp16" and row["framework"] in ("Megatron-DeepSpeed", *MINDSPEED)
    precision = recipes.precision(PRECISIONS.get(row["precision"], row["precision"]), "bf16" if half else None)
    cluster = _cluster(row)
    case = Case(
        model=model, cluster=cluster, batch=batch,
        training=Training(
            task=row["task"], precision=precision, optimizer=recipes.optimizer("adamw"),  # type: ignore[arg-type]
            lora=Lora() if row["task"] == "lora" else None,
        ),
        implementation=_implementation(row), calibration=catalog.calibration("none", cluster.device),
    )  # fmt: skip
    return Run(
        id=row["id"], row=row, case=case, layout=layout, step_s=_step_s(row, batch), failed=row["status"] == "failed",
        memory_bytes=float(row["mem_gb"]) * 2**30 if row["mem_gb"] else None, reading=_reading(row),
    )  # fmt: skip


def _refused_by_nanotron(layout: Layout) -> str | None:
    """Why nanotron cannot run a layout, whatever its memory; ``cost_split`` says where its blocks stand.

    Norm, output layer, cast and loss follow the last layer, each rank ending with the block that passes its share of the
    cost: two ranks behind the output layer at most get a block, and those have no parameters, which DDP (ZeRO-0) refuses.
    """
    if layout.num_microbatches < layout.pipeline_parallel - 1:
        return "nanotron asserts at least PP - 1 micro-batches"
    behind = layout.stage_layers[0].count(0) - 1 if layout.stage_layers else 0
    if behind > 2:
        return "nanotron leaves a stage without any block"
    if behind > 0 and layout.zero_stage == 0 and layout.data_parallel > 1:
        return "DDP refuses a stage without parameters"
    return None


def _reading(row: Row) -> Reading:
    if row["framework"] == "nanotron":
        return Reading(kind="allocator", stage="first")
    if row["framework"] in MINDSPEED:
        return Reading(kind="first step")
    kinds: dict[str, Literal["allocated", "allocator"]] = {"allocated peak": "allocated", "reserved peak": "allocator"}
    kind = kinds.get(row["mem_kind"])
    return Reading(kind=kind) if kind else Reading()


def _int(row: Row, key: str, default: int = 1) -> int:
    return int(float(row[key])) if row[key] else default


def _step_s(row: Row, batch: Batch) -> float | None:
    if row["step_time_s"]:
        return float(row["step_time_s"])
    if row["tokens_per_s_per_gpu"]:
        return batch.tokens / float(row["tokens_per_s_per_gpu"]) / _int(row, "n_gpus")
    return None


def _cluster(row: Row) -> Cluster:
    devices = _int(row, "n_gpus")
    framework = row["framework"]
    if framework == "nanotron":
        return catalog.load_cluster("p5", num_devices=devices)
    if row["id"].startswith("bloom"):
        return catalog.load_cluster("jean-zay-a100", num_devices=devices)
    name = row["gpu"].split("(")[0]
    cluster = catalog.cluster_for(DEVICES.get(name, name), num_devices=devices)
    if row["id"].startswith("vtrain-m"):
        return replace(cluster, network=replace(cluster.network, bytes_per_s=100e9 / 8))
    return cluster


def _implementation(row: Row) -> Implementation:
    framework, version = row["framework"].lower(), row["framework_version"]
    if framework == "nanotron":
        name = "nanotron"
    elif framework == "torchtitan":
        name = "torchtitan"
    elif row["framework"] in MINDSPEED:
        name = "mindspeed"
    elif framework == "megatron-deepspeed":
        name = "megatron-deepspeed"
    elif version.startswith("2021"):
        name = "megatron-2021"
    elif version.startswith("2022"):
        name = "megatron-2022"
    else:
        name = "megatron-te"
    extra = (row["extra_settings"] + row["notes"]).lower()
    chosen = catalog.implementation(name)
    graphs = "cuda_graph=full_iteration" in extra or '"cuda-graph-scope": "full_iteration"' in extra
    return replace(
        chosen, cuda_graphs=chosen.cuda_graphs or graphs,
        expert_deduplication=chosen.expert_deduplication or "deepep" in extra or "hybridep" in extra,
    )  # fmt: skip


@cache
def _built(columns: tuple[tuple[str, str], ...]) -> Model:
    row = dict(columns)
    attention = _attention(row)
    gated = row["gated_mlp"] == "1"
    plain = not gated and row["attention"] == "mha"
    dense = LayerKind(attention=attention, feed_forward=Mlp(width=_int(row, "ffn_hidden"), gated=gated, bias=plain))
    layers = _int(row, "n_layers") - _idle_layers(row)
    kinds: tuple[LayerKind, ...] = (dense,)
    pattern = (0,) * layers
    if row["n_experts"]:
        width = _int(row, "moe_ffn_hidden", _int(row, "ffn_hidden"))
        experts = MixtureOfExperts(
            num_experts=_int(row, "n_experts"), experts_per_token=_int(row, "top_k"), expert_width=width, gated=gated,
            shared_width=_int(row, "n_shared_experts", 0) * width,
        )  # fmt: skip
        mixed, first = LayerKind(attention=attention, feed_forward=experts), max(0, _int(row, "n_dense_layers", 0))
        kinds = (dense, mixed) if first else (mixed,)
        pattern = (0,) * first + (len(kinds) - 1,) * (layers - first)
    model = Model(
        name=row["model"], hidden=_int(row, "hidden"), vocabulary=_int(row, "vocab"), kinds=kinds, pattern=pattern,
        norm="layer" if plain else "rms", position="learned" if plain else "rope",
        position_table=2048 if plain and row["framework"] != "Megatron-DeepSpeed" else 0,
    )  # fmt: skip
    tied = replace(model, tied_embeddings=True)
    if not row["n_params_B"]:
        return tied if "tied-emb" in row["notes"] else model
    wanted = float(row["n_params_B"]) * 1e9
    return min((model, tied), key=lambda each: abs(float(total_parameters(each)) - wanted))


def _idle_layers(row: Row) -> int:
    """No-op layers, which pad a pipeline: their list stands in the notes of Ascend rows."""
    found = re.search(r"noop-layers=([0-9,]+)", row["notes"])
    return len(found[1].strip(",").split(",")) if found else 0


def _model(row: Row) -> Model:
    keys = (
        "model", "hidden", "vocab", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "attention",
        "n_experts", "top_k", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers", "n_params_B", "framework", "notes",
    )  # fmt: skip
    return _built(tuple((key, row[key]) for key in keys))


def _attention(row: Row) -> Attention:
    heads = _int(row, "n_heads")
    bias = row["gated_mlp"] != "1" and row["attention"] == "mha"
    if row["attention"] == "mla":
        width = DEEPSEEK.nope_dim + DEEPSEEK.rope_dim
        return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=width, latent=DEEPSEEK)
    return Attention(
        num_heads=heads, num_key_value_heads=_int(row, "n_kv_heads", heads),
        head_dim=_int(row, "head_dim", _int(row, "hidden") // heads), query_bias=bias, key_value_bias=bias, output_bias=bias,
    )  # fmt: skip


def _recompute(text: str) -> Recompute:
    if text.startswith("full"):
        return Full()
    if text.startswith("selective"):
        named = text.partition(":")[2].replace("norm+act+shared_expert", "layernorm+moe_act+shared_experts")
        known = {"core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"}
        return Selective(modules=tuple(word for word in named.split("+") if word in known) or ("core_attn",))
    return NoRecompute()


def _layout(row: Row) -> Layout:
    tp, cp, pp, ep = (_int(row, key) for key in ("tp", "cp", "pp", "ep"))
    mb, chunks = _int(row, "mbs"), _int(row, "vpp")
    if row["model"] in SC21 and row["framework_version"].startswith("2021"):
        mb, chunks = SC21[row["model"]]
    if pp == 1 or pp * chunks > _int(row, "n_layers") - _idle_layers(row):
        chunks = 1
    dp = _int(row, "n_gpus") // (tp * cp * pp)
    if dp < 1 or _int(row, "gbs") % (dp * mb):
        raise UnreadableError("the batch does not split over the replicas")
    framework = row["framework"]
    old = framework == "nemo" and row["framework_version"][:5] < "25.04"
    etp = _int(row, "etp", tp if (old and ep > 1) or (framework in MINDSPEED and row["n_experts"]) else 1)
    shards, zero = dp * cp, row["zero"]
    if framework == "nanotron":
        shards = dp
    if zero == "hsdp":
        shards = max(1, min(shards, 8 // tp))
    extra = row["extra_settings"]
    nvidia = framework in ("nemo", "megatron-bridge")
    expert_overlap = "a2a_overlap=True" in extra or "overlap-moe-expert" in extra or "EP overlap" in row["notes"]
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and (row["sp"] == "1" or (row["sp"] == "" and nvidia)), context_parallel=cp,
        pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards if zero in ("1", "2", "3", "fsdp", "hsdp") else 1,
        gradient_shards=shards if zero in ("2", "3", "fsdp", "hsdp") else 1,
        parameter_shards=shards if zero in ("3", "fsdp", "hsdp") else 1,
        microbatch_sequences=mb, num_microbatches=_int(row, "gbs") // (dp * mb), recompute=_recompute(row["recompute"]),
        schedule="interleaved" if chunks > 1 else "1f1b",
        overlap=Overlap(tensor=nvidia and tp > 1, expert=expert_overlap),
    )  # fmt: skip
