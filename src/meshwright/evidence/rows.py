"""Rows of ``measured_runs.csv`` as cases and layouts, from their own columns; what a row leaves out is assumed here alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright import catalog
from meshwright.catalog import recipes
from meshwright.catalog.model_sheet import model_names
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Recompute, Selective
from meshwright.domain.model import Attention, LatentAttention, LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.domain.training import Batch, Lora, Training
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
PRECISIONS = {"fp8": "fp8-delayed", "bf16-amp": "bf16"}
NOT_TRANSFORMERS = (
    "nemotron-3", "nemotron-h", "qwen3-next", "qwen3.5", "deepseek-v4", "st-deepseek32", "st-longcat", "st-mamba",
)  # fmt: skip
"""Hybrids with state-space or linear attention layers, sparse attention, two attentions a layer: columns do not describe them."""
VOCABULARIES = {
    "aquila": 100008, "baichuan2": 125696, "baichuan-": 64000, "codegeex2": 65024, "glm3": 65024, "internlm-7b": 103168,
    "llama-": 32000, "llama2": 32000, "llama3": 128256, "qwen-": 151936, "gpt3": 50257,
}  # fmt: skip
"""Vocabulary by name of the model where a row leaves it blank, because its script takes it from the tokenizer: ``vocab_size``
of the published configuration (Hugging Face config.json of each; GPT-2 BPE for gpt3)."""
BLOOM_HEADS = "64"
"""Heads where the column cannot hold: "all NHEADS=64 (above too)", bigscience train/tr11-176B-ml/chronicles-prequel.md."""
DEEPSEEK = LatentAttention(query_rank=1536, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
MC2 = ("st-baichuan2_13b_tp8", "st-llama3_tp2_pp2_vpp1", "st-qwen3_8b_tp2_pp2_vpp2")
"""System tests with --use-ascend-mc2 in their script (Ascend/MindSpeed-LLM c77308a, tests/), which the notes leave out."""
ASSUMPTIONS = (
    "Narayanan 2021: micro-batch and interleaving of each row from examples/sc21/run_table_1.sh of Megatron-LM; FP16; no "
    "sequence parallelism.",
    "Playbook: cluster `p5` (3.2 Tb/s EFA a node). nanotron places layers by cumulative cost with the output layer counted "
    "(build_model), so the stages of a row are uneven as in `plan.split.cost_split`. More stages than layers count as "
    "predicted not to fit.",
    "vTrain: 800 Gb/s a node as its notes say, ZeRO-0. BLOOM: cluster `jean-zay-a100`; CUDA_LAUNCH_BLOCKING=1 (BigScience's "
    "chronicles-prequel.md); 64 heads where the column does not divide the hidden size; the rows that name the partition "
    "`type:transformer|embedding` give both ends a layer less. GPT-2 on V100: cluster `jean-zay-v100`; its source says that "
    "speeds vary by 40 %.",
    "InternEvo: 4 x 100 Gb/s a node and the ZeRO-1 group size of the notes. llm-foundry: FlashAttention-1, gradients in BF16.",
    "NVIDIA rows (NeMo, Megatron-Bridge, Megatron-LM): `fp8` without a recipe is delayed scaling; TP overlap (userbuffers) on "
    "for NeMo and Bridge; expert overlap, CUDA graphs and de-duplicating dispatchers (DeepEP, HybridEP) where the row names "
    "them; recompute none where blank; expert TP = TP where blank on NeMo rows with EP before 25.04, else 1.",
    "Ascend rows: blank feed-forward width of a layer without gate = 4 hidden (Megatron's default); blank vocabulary of the "
    "published tokenizer; `n_dense_layers` -1 = none; expert TP = TP where blank (Megatron's default); Gemma 2 is gated (its 9 B "
    "need the third matrix); the log's TFLOP/s count full attention and no recompute (rows with both agree within 1 %).",
    "MindSpeed and ModelLink rows: mc2 is TP overlap, coc none (a kernel for every piece); activation-function recomputes one "
    "layer (scripts) and counts as none; without flash-attn in the notes attention is unfused.",
    "MindFormers rows: graph mode; `select` lists recompute activation functions; Llama hides TP (yaml: fine_grain_interleave "
    "2); LLaMA 7B and CodeGeeX2 have no flash attention (yaml). An Atlas 800T A2 has 313 TFLOP/s devices, an Atlas 900 A2 "
    "PoDc 376 (one configuration on both: 1465 and 1640 tokens/s); the heading in the notes decides.",
    "Multi-head latent attention has the widths of DeepSeek-V3. Sliding windows (GPT-OSS) are not in the columns and not modelled.",
    "A GPT learns as many positions as the sequence has tokens; BLOOM has ALiBi (bigscience tr11-176B-ml).",
    "Tied embeddings where that brings the parameter count nearer to the published one.",
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
    row = _completed(row)
    blank = [key for key in GIVEN if not row[key]]
    if blank:
        raise UnreadableError("layout or batch is blank", ", ".join(blank))
    if any(row[key] and _int(row, key) < 1 for key in DEGREES):
        raise ImpossibleError("a degree is below 1")
    batch = Batch(global_batch_sequences=_int(row, "gbs"), sequence_tokens=_int(row, "seq"))
    model, layout = _model(row), _layout(row)
    if row["framework"] == "nanotron" and layout.pipeline_parallel > 1:
        layout = replace(layout, stage_layers=cost_split(model, layout.pipeline_parallel))
    if "type:transformer|embedding" in row["notes"] and layout.pipeline_parallel > 1:
        layout = replace(layout, stage_layers=_embedding_slots(model.num_layers, layout.pipeline_parallel))
    if layout.world != _int(row, "n_gpus") or _int(row, "dp", layout.data_parallel) != layout.data_parallel:
        raise ImpossibleError("degrees do not multiply to the devices")
    if layout.pipeline_parallel * layout.virtual_stages > model.num_layers:
        raise ImpossibleError("more chunks than layers")
    implementation = _implementation(row)
    precision = recipes.precision(PRECISIONS.get(row["precision"], row["precision"]), implementation.gradient_dtype)
    cluster = _cluster(row)
    case = Case(
        model=model, cluster=cluster, batch=batch,
        training=Training(
            task=row["task"], precision=precision, optimizer=recipes.optimizer("adamw"),  # type: ignore[arg-type]
            lora=Lora() if row["task"] == "lora" else None,
        ),
        implementation=implementation, calibration=catalog.calibration("none", cluster.device),
    )  # fmt: skip
    return Run(
        id=row["id"], row=row, case=case, layout=layout, step_s=_step_s(row), failed=row["status"] == "failed",
        memory_bytes=float(row["mem_gb"]) * 2**30 if row["mem_gb"] else None,
    )  # fmt: skip


def _embedding_slots(num_layers: int, stages: int) -> Split:
    """Megatron-DeepSpeed's partition by transformer and embedding layers: both ends count as a layer each."""
    (counts,) = fill_split(num_layers + 2, stages)
    return ((counts[0] - 1, *counts[1:-1], counts[-1] - 1),)


def _completed(row: Row) -> Row:
    """The row with the blanks filled whose value its source leaves to a documented default."""
    filled = {"tied": ""}
    name = row["model"].removeprefix("st-").removeprefix("tune_")
    if not row["vocab"]:
        filled["vocab"] = next((str(size) for start, size in VOCABULARIES.items() if name.startswith(start)), "")
    if row["framework"].startswith(("MindSpeed", "ModelLink")):
        filled["tied"] = "1" if "tied-emb" in row["notes"] else "0"
    if not row["ffn_hidden"] and row["hidden"] and row["gated_mlp"] == "0" and not row["n_experts"]:
        filled["ffn_hidden"] = str(4 * _int(row, "hidden"))
    if name == "gemma2-9b":
        filled["gated_mlp"] = "1"
    return row | filled


def _int(row: Row, key: str, default: int = 1) -> int:
    return int(float(row[key])) if row[key] else default


def _step_s(row: Row) -> float | None:
    return next(iter(step_times(row).values()), None)


def _cluster(row: Row) -> Cluster:
    devices = _int(row, "n_gpus")
    per_node = _int(row, "gpus_per_node", 0) or None
    framework = row["framework"]
    if framework == "nanotron":
        return catalog.load_cluster("p5", num_devices=devices)
    if row["id"].startswith("bloom"):
        return catalog.load_cluster("jean-zay-a100", num_devices=devices)
    if row["id"].startswith("gpt2-v100"):
        return catalog.load_cluster("jean-zay-v100", num_devices=devices)
    name, spelling = row["gpu"].split("(")[0], row["gpu"]
    if 'heading="Atlas 900 A2 PoDc"' in row["notes"]:
        spelling = "ascend-910b(atlas 900 a2 podc)"
    cluster = catalog.cluster_for(DEVICES.get(name, spelling), num_devices=devices, devices_per_node=per_node)
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
        name = "torchtitan"
    elif framework.startswith(("megatron-deepspeed", "megatron+deepspeed")):
        name = "megatron-deepspeed-bf16" if row["precision"] == "bf16" else "megatron-deepspeed"
    elif framework.startswith("llm-foundry"):
        name = "llm-foundry"
    elif framework == "internevo":
        name = "internevo"
    elif framework.startswith("mindspore"):
        name = "mindspore-unfused" if row["model"] in ("llama_7b", "codegeex2_6b") else "mindspore"
    elif framework.startswith(("modellink", "mindspeed")):
        name = "mindspeed" if "flash-attn" in row["notes"] else "mindspeed-unfused"
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
        chosen, cuda_graphs=chosen.cuda_graphs or graphs, blocking_launches=row["id"].startswith("bloom"),
        expert_deduplication=chosen.expert_deduplication or "deepep" in extra or "hybridep" in extra,
    )  # fmt: skip


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
    return _built(tuple((key, row[key]) for key in keys))


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


def _recompute(text: str, stages: int, chunks: int, *, graph: bool) -> Recompute:
    kind, _, rest = text.partition("(")
    if kind == "full" and rest.startswith("block,"):
        layers = int(rest.split(",")[1].rstrip(")"))
        if "per-pp-rank" not in rest:
            return Full(layers=layers)
        return Full(layers=((layers,) * stages, *((0,) * stages for _ in range(chunks - 1))))
    if text.startswith("full"):
        return Full()
    if text.startswith("select list") or (text == "selective" and graph):
        return Selective(modules=("moe_act",))
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
    chunks = chunks if pp > 1 else 1
    dp = _int(row, "n_gpus") // (tp * cp * pp)
    if dp < 1 or dp * tp * cp * pp != _int(row, "n_gpus"):
        raise ImpossibleError("degrees do not multiply to the devices")
    if _int(row, "gbs") % (dp * mb):
        raise ImpossibleError("the batch does not split over the replicas")
    framework = row["framework"]
    old = framework == "nemo" and row["framework_version"][:5] < "25.04"
    ascend = framework.startswith(("MindSpeed", "ModelLink"))
    etp = _int(row, "etp", tp if (old and ep > 1) or (ascend and row["n_experts"]) else 1)
    shards, zero = dp * cp, row["zero"]
    if framework == "nanotron":
        shards = dp
    if zero == "hsdp":
        shards = max(1, min(shards, 8 // tp))
    named = re.search(r"zero1 group size=(\d+)", row["notes"])
    if named:
        shards = int(named[1])
    extra = row["extra_settings"]
    nvidia = framework in ("nemo", "megatron-bridge")
    notes = row["notes"]
    copies = framework.startswith("MindSpore") and row["model"].startswith("llama") and row["sp"] == "1"
    tensor_overlap = nvidia or copies or (ascend and ("mc2, " in notes or row["model"].startswith(MC2)))
    expert_overlap = "a2a_overlap=True" in extra or "overlap-moe-expert" in extra or "EP overlap" in row["notes"]
    return Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1 and (row["sp"] == "1" or (row["sp"] == "" and nvidia)), context_parallel=cp,
        pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards if zero in ("1", "2", "3", "fsdp", "hsdp") else 1,
        gradient_shards=shards if zero in ("2", "3", "fsdp", "hsdp") else 1,
        parameter_shards=shards if zero in ("3", "fsdp", "hsdp") else 1,
        microbatch_sequences=mb, num_microbatches=_int(row, "gbs") // (dp * mb),
        recompute=_recompute(row["recompute"], pp, chunks, graph=framework.startswith("MindSpore")),
        schedule="interleaved" if chunks > 1 else "1f1b",
        overlap=Overlap(
            tensor=tensor_overlap and tp > 1, expert=expert_overlap, gradient_reduce=not ascend or "overlap-grad-reduce" in notes,
            parameter_gather=not ascend or "overlap-param-gather" in notes,
        ),
        context_kind="ulysses" if "ulysses_cp_algo" in notes else "hybrid" if "hybrid_cp_algo" in notes else "ring",
    )  # fmt: skip
