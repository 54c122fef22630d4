"""Conventions of the rows measured on Ascend: what MindSpeed-LLM (ModelLink) and MindFormers mean by what they publish.

Read from the scripts at the commits that the rows name: Ascend/MindSpeed-LLM c77308a (tests/), aeeeeeep/ModelLink d4feda7
(examples/) and mindspore-lab/mindformers (configs/, research/). Nothing here knows a measured value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.domain.layout import Full, NoRecompute, Overlap, Recompute, Selective

if TYPE_CHECKING:
    from meshwright.domain.layout import ContextKind
    from meshwright.domain.training import Precision
    from meshwright.estimate.split import Split
    from meshwright.evidence.rows.row import Row

ASSUMPTIONS = (
    "Ascend rows: blank feed-forward width of a layer without gate = 4 hidden (Megatron's default); blank vocabulary of the "
    "published tokenizer; `n_dense_layers` -1 = none; expert TP = TP where blank (Megatron's default); Gemma 2 is gated (its 9 B "
    "need the third matrix). Rows with TFLOP/s alone (five, measured again with a time elsewhere) have no time.",
    "MindSpeed and ModelLink rows: mc2 is TP overlap, coc none (a kernel for every piece); activation-function recomputes one "
    "layer (scripts) and counts as none; without flash-attn in the notes attention is unfused; FP16 keeps FP16 gradients and "
    "FP32 copies of the owned shard; reuse-fp32-param saves two bytes of the master. Memory of system tests is the peak up to "
    "the end of the first step, when Megatron reports it (what it keeps then is our 18 bytes a parameter within 1 %): no moments "
    "lie beside activations. Rows that swap have no memory.",
    "MindFormers rows: graph mode; `select` lists recompute activation functions; Llama hides TP (yaml: fine_grain_interleave "
    "2); LLaMA 7B and CodeGeeX2 have no flash attention (yaml). An Atlas 800T A2 has 313 TFLOP/s devices, an Atlas 900 A2 "
    "PoDc 376 (one configuration on both: 1465 and 1640 tokens/s); the heading in the notes decides.",
)
NOT_DESCRIBED = ("st-deepseek32", "st-longcat", "st-mamba")
"""Sparse attention, two attentions a layer, state spaces: the columns do not describe them."""
VOCABULARIES = {
    "aquila": 100008, "baichuan2": 125696, "baichuan-": 64000, "codegeex2": 65024, "glm3": 65024, "internlm-7b": 103168,
    "llama-": 32000, "llama2": 32000, "llama3": 128256, "qwen-": 151936, "gpt3": 50257,
}
"""Vocabulary by name of the model where a row leaves it blank, because its script takes it from the tokenizer: ``vocab_size``
of the published configuration (Hugging Face config.json of each; GPT-2 BPE for gpt3)."""
MC2 = ("st-baichuan2_13b_tp8", "st-llama3_tp2_pp2_vpp1", "st-qwen3_8b_tp2_pp2_vpp2")
"""System tests with --use-ascend-mc2 in their script, which the notes leave out."""
UNFUSED = ("llama_7b", "codegeex2_6b")
"""Configurations of MindFormers without use_flash_attention."""


def is_megatron(row: Row) -> bool:
    """Megatron on Ascend: MindSpeed-LLM and its older name ModelLink."""
    return row.framework.startswith(("MindSpeed", "ModelLink"))


def is_mindspore(row: Row) -> bool:
    """MindFormers in graph mode."""
    return row.framework.startswith("MindSpore")


def completed(row: Row) -> Row:
    """The row with the blanks filled whose value its source leaves to a documented default."""
    if not (is_megatron(row) or is_mindspore(row)):
        return row
    shape, filled = row.shape, dict[str, Any]()
    name = row.model.removeprefix("st-").removeprefix("tune_")
    if is_megatron(row):
        filled["tied_embeddings"] = "tied-emb" in row.notes
    elif not shape.vocabulary:
        filled["tied_embeddings"] = False
    if not shape.vocabulary:
        filled["vocabulary"] = next((size for start, size in VOCABULARIES.items() if name.startswith(start)), None)
    if not shape.ffn_width and shape.hidden and shape.gated is False and not shape.num_experts:
        filled["ffn_width"] = 4 * shape.hidden
    if (shape.num_dense_layers or 0) < 0:
        filled["num_dense_layers"] = int(name.startswith("deepseek2"))  # its script sets -1 and later 1: the last one holds
    if name == "gemma2-9b":
        filled["gated"] = True
    if idle := _idle_layers(row):
        filled["num_layers"] = (shape.num_layers or 0) - len(idle)
    follows = shape.num_experts and row.expert_tensor_parallel is None and is_megatron(row)
    etp = row.tensor_parallel if follows else row.expert_tensor_parallel
    return replace(row, shape=replace(shape, **filled), expert_tensor_parallel=etp)


def _idle_layers(row: Row) -> tuple[int, ...]:
    found = re.search(r"noop-layers=([\d,]*\d)", row.notes)
    return tuple(int(word) for word in found[1].split(",")) if found else ()


def stage_layers(row: Row, stages: int, chunks: int) -> Split | None:
    """Layers per chunk and stage where some layers of the script do nothing (``noop-layers``); None: as even as possible."""
    idle = _idle_layers(row)
    if not idle:
        return None
    each = (row.shape.num_layers or 0) // (stages * chunks)
    counts = [each] * (stages * chunks)
    for layer in idle:
        counts[layer // each] -= 1
    return tuple(tuple(counts[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))


def device(row: Row) -> str:
    """Spelling of the device; the heading of the source's table tells the 313 from the 376 TFLOP/s part."""
    return "ascend-910b(atlas 900 a2 podc)" if 'heading="Atlas 900 A2 PoDc"' in row.notes else row.device


def implementation(row: Row) -> str:
    """Name of the implementation."""
    if is_mindspore(row):
        return "mindspore-unfused" if row.model in UNFUSED else "mindspore"
    return "mindspeed" if "flash-attn" in row.notes else "mindspeed-unfused"


def precision(row: Row, recipe: Precision) -> Precision:
    """What Megatron on Ascend keeps per parameter: see ``ASSUMPTIONS``. Checked against the allocated bytes after a step."""
    if is_megatron(row) and row.precision == "fp16":
        recipe = replace(recipe, gradient_bytes=2.0)
    if "reuse-fp32-param" in row.notes:
        recipe = replace(recipe, master_bytes=recipe.master_bytes - 2.0)
    return recipe


def overlap(row: Row) -> Overlap:
    """Which communication the row's switches hide."""
    notes = row.notes
    if is_mindspore(row):
        return Overlap(tensor=row.model.startswith("llama") and bool(row.sequence_parallel))
    return Overlap(
        tensor=(row.tensor_parallel or 1) > 1 and ("mc2, " in notes or row.model.startswith(MC2)),
        gradient_reduce="overlap-grad-reduce" in notes, parameter_gather="overlap-param-gather" in notes,
    )


def context_kind(row: Row) -> ContextKind:
    """How the sequence is split: the scripts' context-parallel-algo, else a ring."""
    return "ulysses" if "ulysses_cp_algo" in row.notes else "hybrid" if "hybrid_cp_algo" in row.notes else "ring"


def recompute(row: Row, stages: int, chunks: int) -> Recompute:
    """What is run again: ``full(block, k)`` is k layers of every chunk, or of the first chunk of a stage with per-pp-rank."""
    text = row.recompute
    kind, _, rest = text.partition("(")
    if kind == "full" and rest.startswith("block,"):
        layers = int(rest.split(",")[1].rstrip(")"))
        if "per-pp-rank" not in rest:
            return Full(layers=layers)
        return Full(layers=((layers,) * stages, *((0,) * stages for _ in range(chunks - 1))))
    if text.startswith("full"):
        return Full()
    return Selective(modules=("moe_act",)) if text.startswith("select") else NoRecompute()


def is_first_step(row: Row) -> bool:
    """Whether the memory is the peak up to the end of the first step: the baselines of system tests."""
    return is_megatron(row) and "CI baseline" in row.notes


def memory_gib(row: Row) -> float | None:
    """The published memory; blank where tensors are swapped to the host, which is not modelled."""
    return None if "swap-" in row.notes else row.measured.memory_gib
