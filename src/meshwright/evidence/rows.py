"""Rows of ``measured_runs.csv`` as cases and layouts, from their own columns; what a row leaves out is assumed here alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshwright import catalog
from meshwright.catalog import recipes
from meshwright.catalog.model_sheet import model_names
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.domain.model import Attention, LatentAttention, LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.domain.reading import Reading
from meshwright.domain.training import Batch, Training
from meshwright.evidence import ascend, nvidia
from meshwright.evidence.columns import DEGREES, shown
from meshwright.evidence.groups import group_key, source_group
from meshwright.evidence.table import Row, read_table, step_times
from meshwright.perf.parameters import total_parameters
from meshwright.plan.split import cost_split, fill_split

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.model import PositionEncoding
    from meshwright.plan.split import Split

GIVEN = ("gbs", "seq", "tp", "pp", "n_gpus")
ARCHITECTURE = ("hidden", "n_layers", "n_heads", "ffn_hidden", "vocab")
SC21 = {
    "gpt-1.7b": (16, 1), "gpt-3.6b": (16, 1), "gpt-7.5b": (16, 1), "gpt-18.4b": (8, 1), "gpt-39.1b": (4, 1), "gpt-76.1b": (2, 3),
    "gpt-145.6b": (2, 2), "gpt-310.1b": (1, 2), "gpt-529.6b": (1, 3), "gpt-1008.0b": (1, 1),
}  # fmt: skip
"""Micro-batch and chunks of Narayanan et al. 2021, table 1: NVIDIA/Megatron-LM examples/sc21/run_table_1.sh."""
DEVICES = {"h100-80g-sxm": "h100-sxm", "h100-96g-sxm": "h100-96g"}
SITES = {("nanotron", "h100-sxm"): "p5", ("Megatron-DeepSpeed", "a100-80g-sxm"): "jean-zay-a100"}
"""Framework and device -> the cluster on which its published runs were made."""
PRECISIONS = {"fp8": "fp8-delayed", "bf16-amp": "bf16"}
NOT_TRANSFORMERS = ("nemotron-3", "nemotron-h", "qwen3-next", "qwen3.5", "deepseek-v4", *ascend.NOT_DESCRIBED)
"""Hybrids with state-space or linear attention layers, and sparse attention: their columns do not describe them."""
BLOOM_HEADS = "64"
"""Heads where the column cannot hold: "all NHEADS=64 (above too)", bigscience train/tr11-176B-ml/chronicles-prequel.md."""
DEEPSEEK = LatentAttention(query_rank=1536, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
ASSUMPTIONS = (
    "Narayanan 2021: micro-batch and interleaving of each row from examples/sc21/run_table_1.sh of Megatron-LM; FP16; no "
    "sequence parallelism.",
    "Playbook: cluster `p5` (3.2 Tb/s EFA a node). nanotron places layers by cumulative cost with the output layer counted "
    "(build_model), so the stages of a row are uneven as in `plan.split.cost_split`. More stages than layers count as "
    "predicted not to fit.",
    "vTrain: 800 Gb/s a node as its notes say, ZeRO-0. BLOOM: cluster `jean-zay-a100`; CUDA_LAUNCH_BLOCKING=1 (BigScience's "
    "chronicles-prequel.md); 64 heads where the column does not divide the hidden size; the rows that name the partition "
    "`type:transformer|embedding` give both ends a layer less.",
    "InternEvo: 4 x 100 Gb/s a node and the ZeRO-1 group size of the notes. llm-foundry: FlashAttention-1, gradients in BF16.",
    "NVIDIA rows (NeMo, Megatron-Bridge, Megatron-LM): `fp8` without a recipe is delayed scaling; TP overlap (userbuffers) on "
    "for NeMo and Bridge; expert overlap, CUDA graphs, dispatchers and pipeline layout where the row names them; recompute none "
    "where blank; expert TP = TP where blank on NeMo rows with EP before 25.04, else 1. Mixtures of Megatron-Bridge run the "
    "flex dispatcher where none is named and nothing is dropped, and since 26.06 on racks one graph with expert overlap, as "
    "every row that says so does. One multi-token-prediction layer with latent attention (the source's own 260 GFLOP per token "
    "count it) unless the row says without. Full-iteration graphs and token drop need no counts on the host.",
    "Megatron-Bridge's performance recipes reduce gradients in BF16 (grad_reduce_in_fp32 = False).",
    "Multi-head latent attention has the widths of DeepSeek-V3. Sliding windows are those of the catalogue's model of the same "
    "name where all its shapes agree with the columns (GPT-OSS).",
    "MaxText and PaxML: `FSDP+DP` shards over the least power of two from 8 up at which 16 bytes a parameter take at most 30 % "
    "of memory (the smallest size of each model); MaxText's HSDP over 256.",
    "SimuMax: no overlap of data-parallel or point-to-point communication, as its notes say.",
    "A GPT learns as many positions as the sequence has tokens; BLOOM has ALiBi (bigscience tr11-176B-ml).",
    "Tied embeddings where that brings the parameter count nearer to the published one.",
    "Playbook memory: world rank 0 writes it (the first stage), after log_memory has reset the peak counters within the step: "
    "it is what the caching allocator holds then (nanotron helpers.py log_throughput, logging.py log_memory). Peaks of tensors "
    "would grow with the micro-batch; the figures of runs near capacity do not.",
    "GPT-2 on V100: cluster `jean-zay-v100`; the day that the source calls degraded is left out (1.7 times slower than others).",
    "torchtitan: FlashAttention-2, compile where the notes say so, float8 of torchao; selective(op) takes the time of core_attn "
    "(it runs wk, wo and w3 again, 37 % of the products) and keeps what that policy keeps. Rows with PP are flagged: `mbs` is the "
    "local batch and its split is not published.",
    *ascend.ASSUMPTIONS,
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

    @property
    def device(self) -> str:
        """The catalogue's name of the device."""
        return self.case.cluster.device.name

    @property
    def family(self) -> str:
        """Family of the implementation: what measurements of the run calibrate."""
        return self.case.implementation.family

    @property
    def release(self) -> tuple[str, str]:
        """Framework and version, as published."""
        return self.row["framework"], self.row["framework_version"]

    @property
    def precision(self) -> str:
        """The precision recipe."""
        return self.case.training.precision.name

    @property
    def source(self) -> str:
        """The source group."""
        return source_group(self.id)

    @property
    def group(self) -> tuple[str, ...]:
        """What all measurements of this configuration share."""
        return group_key(self.row)

    @property
    def mem_kind(self) -> str:
        """What the source calls the memory that it states: allocated peak, reserved peak, device total, unknown or blank."""
        return self.row["mem_kind"]


class ImpossibleError(Exception):
    """A row whose degrees no framework can run; it is predicted not to fit."""


class UnreadableError(Exception):
    """A row that this reader cannot turn into a case: the kind of reason, and what exactly."""

    def __init__(self, kind: str, detail: str = "") -> None:
        """Keep both; ``detail`` begins with the kind."""
        super().__init__(kind)
        self.detail = f"{kind}: {detail}" if detail else kind


def read(corpus: Path) -> list[Row]:
    """All rows of the corpus that can be read and carry no flag, in no meaningful order."""
    return list(read_table(corpus / "measured_runs.csv").rows)


def run(row: Row) -> Run:
    """A row as a case and a layout.

    Errors: ``UnreadableError`` where a needed column is blank or the model is no transformer; ``ImpossibleError`` where
            nothing can run it.
    """
    if row["model"].startswith(NOT_TRANSFORMERS):
        raise UnreadableError("not a transformer")
    if "network-degraded" in row["notes"]:
        raise UnreadableError("the source says that its network was degraded")
    given, row = row, ascend.completed(row)
    blank = [key for key in GIVEN if not row[key]]
    if blank:
        raise UnreadableError("layout or batch is blank", ", ".join(blank))
    if any(row[key] and _int(row, key) < 1 for key in DEGREES):
        raise ImpossibleError("a degree is below 1")
    batch = Batch(
        global_batch_sequences=_int(row, "gbs"), sequence_tokens=_int(row, "seq"),
        mean_square_document_tokens=nvidia.PACKED_TOKENS * _int(row, "seq") if nvidia.packed(row) else None,
    )  # fmt: skip
    model, layout = _model(row), _layout(row)
    if row["framework"] == "nanotron" and layout.pipeline_parallel > 1:
        layout = replace(layout, stage_layers=cost_split(model, layout.pipeline_parallel))
    told = nvidia.said(row)
    if told.layout:
        split = nvidia.layers_of(told.layout, layout.pipeline_parallel, layout.virtual_stages)
        layout = replace(layout, stage_layers=split if split and sum(map(sum, split)) == model.num_layers else None)
    if "type:transformer|embedding" in row["notes"] and layout.pipeline_parallel > 1:
        layout = replace(layout, stage_layers=_embedding_slots(model.num_layers, layout.pipeline_parallel))
    if ascend.is_megatron(row):
        layout = replace(layout, stage_layers=ascend.stage_layers(given, layout.pipeline_parallel, layout.virtual_stages))
    if layout.world != _int(row, "n_gpus") or _int(row, "dp", layout.data_parallel) != layout.data_parallel:
        raise ImpossibleError("degrees do not multiply to the devices")
    if layout.pipeline_parallel * layout.virtual_stages > model.num_layers:
        raise ImpossibleError("more chunks than layers")
    if row["framework"] == "nanotron" and (reason := _refused_by_nanotron(layout)):
        raise ImpossibleError(reason)
    implementation = _implementation(row)
    precision = recipes.precision(_recipe(row), implementation.gradient_dtype)
    precision, cluster = ascend.precision(row, precision), _cluster(row)
    case = Case(
        model=model, cluster=cluster, batch=batch,
        training=Training(
            task=row["task"], precision=precision, optimizer=recipes.optimizer("adamw"),  # type: ignore[arg-type]
            lora=nvidia.adapters(row), balanced_routing=told.balanced,
        ),
        implementation=implementation, calibration=catalog.calibration("none", cluster.device),
    )  # fmt: skip
    return Run(
        id=row["id"], row=given, case=case, layout=layout, step_s=_step_s(row), failed=row["status"] == "failed",
        memory_bytes=float(ascend.memory_gib(row)) * 2**30 if ascend.memory_gib(row) else None, reading=_reading(row),
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


def _recipe(row: Row) -> str:
    if row["framework"] == "torchtitan" and row["precision"] == "fp8":
        return "fp8-torchao"
    return PRECISIONS.get(row["precision"], row["precision"])


def _embedding_slots(num_layers: int, stages: int) -> Split:
    """Megatron-DeepSpeed's partition by transformer and embedding layers: both ends count as a layer each."""
    (counts,) = fill_split(num_layers + 2, stages)
    return ((counts[0] - 1, *counts[1:-1], counts[-1] - 1),)


def _reading(row: Row) -> Reading:
    if row["framework"] == "nanotron":
        return Reading(kind="allocator", stage="first")
    if ascend.is_first_step(row):
        return Reading(kind="first step")
    kinds: dict[str, Literal["allocated", "allocator"]] = {"allocated peak": "allocated", "reserved peak": "allocator"}
    kind = kinds.get(row["mem_kind"])
    return Reading(kind=kind) if kind else Reading()


def _int(row: Row, key: str, default: int = 1) -> int:
    return int(float(row[key])) if row[key] else default


def _step_s(row: Row) -> float | None:
    return next(iter(step_times(row).values()), None)


def _cluster(row: Row) -> Cluster:
    devices = _int(row, "n_gpus")
    per_node = _int(row, "gpus_per_node", 0) or None
    name = row["gpu"].split("(")[0]
    cluster = catalog.cluster_for(DEVICES.get(name, ascend.device(row)), num_devices=devices, devices_per_node=per_node)
    site = SITES.get((row["framework"], cluster.device.name))
    if site and (row["framework"] == "nanotron" or row["id"].startswith("bloom")):
        return catalog.load_cluster(site, num_devices=devices)
    if cluster.device.name == "v100-32g" and row["source"].startswith("bigscience"):
        return catalog.load_cluster("jean-zay-v100", num_devices=devices)
    if row["id"].startswith("vtrain-m"):
        return replace(cluster, network=replace(cluster.network, bytes_per_s=100e9 / 8))
    if "4x100Gb RoCE" in row["notes"]:
        return replace(cluster, network=replace(cluster.network, bytes_per_s=50e9 / 8))
    return cluster


def _implementation(row: Row) -> Implementation:
    framework, version = row["framework"].lower(), row["framework_version"]
    if framework == "nanotron":
        name = "nanotron"
    elif framework == "torchtitan":
        name = "torchtitan" if "compile" in row["notes"] else "torchtitan-eager"
    elif framework.startswith(("megatron-deepspeed", "megatron+deepspeed")):
        name = "megatron-deepspeed-bf16" if row["precision"] == "bf16" else "megatron-deepspeed"
    elif framework.startswith("llm-foundry"):
        name = "llm-foundry"
    elif framework == "internevo":
        name = "internevo"
    elif ascend.is_megatron(row) or ascend.is_mindspore(row):
        name = ascend.implementation(row)
    elif version.startswith("2021"):
        name = "megatron-2021"
    elif version.startswith("2022"):
        name = "megatron-2022"
    else:
        name = "megatron-te"
    told = nvidia.said(row)
    if name == "megatron-te" and row["n_experts"] and told.flex:
        name = "megatron-te-graphed" if told.graphs and row["precision"] == "fp8-mx" else "megatron-te-deepep"
    chosen = catalog.implementation(name)
    graphs = chosen.cuda_graphs or told.graphs
    waits = chosen.expert_host_sync and told.dropless and not graphs
    gradients = "bf16" if framework == "megatron-bridge" else chosen.gradient_dtype
    return replace(
        chosen,
        cuda_graphs=graphs,
        expert_host_sync=waits,
        gradient_dtype=gradients,
        blocking_launches=row["id"].startswith("bloom"),
    )


@cache
def _built(columns: tuple[tuple[str, str], ...]) -> Model:
    row = dict(columns)
    attention = _attention(row)
    gated = row["gated_mlp"] == "1"
    plain = not gated and row["attention"] == "mha"
    dense = LayerKind(attention=attention, feed_forward=Mlp(width=_int(row, "ffn_hidden"), gated=gated, bias=plain))
    layers = _int(row, "n_layers")
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
    position: PositionEncoding = "alibi" if row["model"].startswith("bloom") else "learned" if plain else "rope"
    model = Model(
        name=row["model"], hidden=_int(row, "hidden"), vocabulary=_int(row, "vocab"), kinds=kinds, pattern=pattern,
        norm="layer" if plain else "rms", position=position, position_table=_int(row, "seq") if position == "learned" else 0,
    )  # fmt: skip
    windowed = nvidia.windowed(model)
    if windowed:
        return windowed
    tied = replace(model, tied_embeddings=True)
    if row["tied"] or not row["n_params_B"]:
        return tied if row["tied"] == "1" else model
    wanted = float(row["n_params_B"]) * 1e9
    return min((model, tied), key=lambda each: abs(float(total_parameters(each)) - wanted))


def _model(row: Row) -> Model:
    blank = [key for key in ARCHITECTURE if not row[key]]
    if blank:
        name = model_names().find(row["model"])
        if name is None:
            raise UnreadableError("architecture is blank", f"{', '.join(blank)}; {shown(row['model'])} is not in the catalogue")
        return catalog.load_model(name)
    keys = (
        "model", "hidden", "vocab", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "attention",
        "n_experts", "top_k", "moe_ffn_hidden", "n_shared_experts", "n_dense_layers", "n_params_B", "seq",
        "tied",
    )  # fmt: skip
    return replace(_built(tuple((key, row[key]) for key in keys)), num_mtp_layers=nvidia.said(row).mtp_layers)


def _attention(row: Row) -> Attention:
    if row["head_dim"] and float(row["head_dim"]) % 1.0:
        row = row | {"n_heads": BLOOM_HEADS, "n_kv_heads": BLOOM_HEADS, "head_dim": ""}
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
    if text == "selective(op)":
        return Selective(modules=("core_attn", "op"))
    if text.startswith("selective"):
        named = text.partition(":")[2].replace("norm+act+shared_expert", "layernorm+moe_act+shared_experts")
        known = {"core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts"}
        return Selective(modules=tuple(word for word in named.split("+") if word in known) or ("core_attn",))
    return NoRecompute()


def _layout(row: Row) -> Layout:
    tp, cp, pp, ep = (_int(row, key) for key in ("tp", "cp", "pp", "ep"))
    mb, chunks = _int(row, "mbs"), _int(row, "vpp", _int(row, "n_layers") // pp if nvidia.packed(row) else 1)
    if row["model"] in SC21 and row["framework_version"].startswith("2021"):
        mb, chunks = SC21[row["model"]]
    if pp == 1 or pp * chunks > _int(row, "n_layers"):
        chunks = 1
    dp = _int(row, "n_gpus") // (tp * cp * pp)
    if dp < 1 or dp * tp * cp * pp != _int(row, "n_gpus"):
        raise ImpossibleError("degrees do not multiply to the devices")
    if _int(row, "gbs") % (dp * mb):
        raise ImpossibleError("the batch does not split over the replicas")
    framework = row["framework"]
    old = framework == "nemo" and row["framework_version"][:5] < "25.04"
    etp = _int(row, "etp", tp if old and ep > 1 else 1)
    shards, zero = dp * cp, row["zero"]
    if framework == "nanotron":
        shards = dp
    if zero == "hsdp":
        shards = max(1, min(shards, 8 // tp))
    if framework in ("maxtext", "paxml"):
        shards = nvidia.shards(row, dp * cp, _cluster(row).device.memory_bytes)
    named = re.search(r"zero1 group size=(\d+)", row["notes"])
    if named:
        shards = int(named[1])
    bridge = framework in ("nemo", "megatron-bridge")
    if ascend.is_megatron(row) or ascend.is_mindspore(row):
        overlap, again = ascend.overlap(row), ascend.recompute(row, pp, chunks)
    else:
        overlap, again = _overlap(row, tensor=bridge and tp > 1), _recompute(row["recompute"])
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and (row["sp"] == "1" or (row["sp"] == "" and bridge)), context_parallel=cp,
        pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards if zero in ("1", "2", "3", "fsdp", "hsdp") else 1,
        gradient_shards=shards if zero in ("2", "3", "fsdp", "hsdp") else 1,
        parameter_shards=shards if zero in ("3", "fsdp", "hsdp") else 1,
        microbatch_sequences=mb, num_microbatches=_int(row, "gbs") // (dp * mb), recompute=again,
        schedule="interleaved" if chunks > 1 else "1f1b",
        overlap=overlap, context_kind=ascend.context_kind(row),
    )  # fmt: skip


def _overlap(row: Row, *, tensor: bool) -> Overlap:
    off = "no comm overlap" in row["notes"]
    return Overlap(
        tensor=tensor, expert=nvidia.said(row).expert_overlap, gradient_reduce=not off, parameter_gather=not off,
        point_to_point=not off,
    )  # fmt: skip
