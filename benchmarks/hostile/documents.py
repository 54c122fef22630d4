"""Well-formed descriptions of every kind that the command line reads, and how one of their values is spoiled."""

from __future__ import annotations

import copy
import csv
import json
from typing import TYPE_CHECKING, Any

from benchmarks.hostile.atoms import Raw

if TYPE_CHECKING:
    import random

HF_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "_name_or_path": "my-llama", "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": None, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "_name_or_path": "my-moe", "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 16,
    "num_experts_per_tok": 4, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": False,
}
MODEL: dict[str, Any] = {
    "models": {"my-model": {
        "aliases": ["mine/my-model"], "source": "mine", "architecture": "LlamaForCausalLM", "hidden": 2048, "vocabulary": 128256,
        "max_sequence": 8192,
        "layers": 8, "attention": {"num_heads": 32, "num_key_value_heads": 8, "head_dim": 64}, "mlp": {"width": 8192},
        "rotary_base": 500000,
    }}, "sources": {"mine": "made up"},
}


def _figure(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": "ours"}


CLUSTER: dict[str, Any] = {
    "sources": {"ours": "measured"},
    "devices": {"my-gpu": {
        "family": "hopper", "cluster": "my-cluster", "memory": _figure(79.1, "GiB"), "memory_bandwidth": _figure(3.35, "TB/s"),
        "peak": {"bf16": _figure(989, "TFLOP/s")}, "units": _figure(132, "count"), "scale_up": _figure(450, "GB/s"),
        "power": _figure(700, "W"),
    }},
    "clusters": {"my-cluster": {
        "like": "dgx-h100", "device": "my-gpu", "nodes": 1, "oversubscription": _figure(2, "ratio"), "pod_devices": 256,
        "network": {"bandwidth": _figure(25, "GB/s"), "latency": _figure(6, "us")},
    }},
}
SAPP: dict[str, Any] = {
    "name": "LS1", "layers_description": [
        {"name": "embedding", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11000},
        {"name": "layer", "type": "BODY", "time": 180, "nb_layer": 24, "memory_parameter": 1583, "memory_activation": 826,
        "memory_recompute": 32,
         "recompute_coef": 0.5, "memory_select_rec": 614},
        {"name": "head", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 2473},
    ],
}
DRY_RUNS: dict[str, Any] = {
    "pipeline_config": {"pipeline_num": 4, "num_layer": 80, "offset": [[0, 1, -1, 0], [0, -1, 1, 0]]},
    "time_config": {"head": 30, "body": 180, "tail": 90},
    "recompute_config": {"recompute": [[1, 2, 1, 1], [1, 3, 4, 1]], "select_recompute": [False, False],
    "select_comm_recompute": [False, False]},
    "memory_usage": {"head_memory": 66502, "tail_memory": 25599,
                     "body_memories": {"stage_id": [[1, 2], [1, 2]], "memories": [[52536, 35595], [45439, 35700]]}},
}
MANUAL: dict[str, Any] = {"mine": {"offset": [0, 0, 0, 0], "recompute": [6, 6, 6, 6], "select_recompute": False,
    "select_comm_recompute": False,
                                   "interleave_num": 1, "show": True, "file_name": "mine.svg"}}
TRAINING: dict[str, Any] = {
    "runner_config": {"batch_size": 1}, "parallel_config": {"model_parallel": 2},
    "model": {"model_config": {"seq_length": 4096, "hidden_size": 4096, "num_heads": 32, "vocab_size": 32000}},
}
MEASURED: dict[str, Any] = {"stage_time_s": [0.1, 0.1, 0.1, 0.1], "stage_memory_bytes": [10**10] * 4}
REQUEST: dict[str, Any] = {
    "model": "llama3-8b", "layers": 8, "device": "h100-sxm", "nodes": 1, "global_batch": 32, "sequence": 2048, "precision": "bf16",
    "task": "pretrain",
    "framework": "megatron", "layout": "tp2 mb1 sp zero1", "top": 3, "max_memory_ratio": 0.9, "pin": {"tp": 2},
}
LENGTHS = "".join(f"{length}\n" for length in (100, 900, 2000, 512, 1024, 77, 4000, 1))
COLUMNS = next(csv.reader([
    "id,source,status,task,framework,framework_version,model,n_layers,hidden,n_heads,n_kv_heads,head_dim,ffn_hidden,vocab,gated_mlp,gpu,"
    "n_gpus,gpus_per_node,precision,seq,gbs,mbs,tp,sp,cp,pp,vpp,ep,etp,dp,zero,recompute,step_time_s,mem_gb,mem_kind,flops_convention,"
    "flag,notes"
]))
_ROW = next(csv.reader([
    "a-1,mine,ok,pretrain,Megatron-LM,0.12,llama3-8b,32,4096,32,8,128,14336,128256,1,h100-sxm,"
    "8,8,bf16,4096,64,1,2,1,1,1,1,,,,1,none,5.1,60,reserved,causal,,"
]))


def row(number: int, **cells: str) -> list[str]:
    """A measured run: micro-batches and degrees differ by its number."""
    base = dict(zip(COLUMNS, _ROW, strict=True))
    varied = {
        "id": f"a-{number}",
        "tp": ("1", "2", "4", "8")[number % 4],
        "mbs": ("1", "2", "4")[number % 3],
        "step_time_s": f"{5 + number % 7 / 10}",
    }
    return list({**base, **varied, **cells}.values())


def table(rows: list[list[str]], columns: list[str] = COLUMNS) -> str:
    """Rows as CSV, quoted where a cell needs it."""
    return "".join(",".join(_cell(cell) for cell in line) + "\n" for line in (columns, *rows))


def _cell(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(one in cell for one in ',"\n\r') else cell


def dumped(value: object) -> str:
    """A document as JSON, which is YAML too; ``Raw`` words stand as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {dumped(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value)


def places(document: object, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside, also of those that hold others."""
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    found = [(*above, key) for key, _ in inner]
    return found + [each for key, value in inner for each in places(value, (*above, key))]


def changed(document: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    """The document with another value at a place."""
    fresh = copy.deepcopy(document)
    target: Any = fresh
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return fresh


def renamed(document: dict[str, Any], place: tuple[Any, ...], name: str) -> dict[str, Any]:
    """The document with another key at a place of a mapping, in its order."""
    fresh = copy.deepcopy(document)
    target: Any = fresh
    for key in place[:-1]:
        target = target[key]
    entries = [(name if key == place[-1] else key, value) for key, value in target.items()]
    target.clear()
    target.update(entries)
    return fresh


def spoiled(rng: random.Random, document: dict[str, Any], value: object) -> dict[str, Any]:
    """The document with a drawn value replaced, removed, renamed or put beside its own list."""
    place = rng.choice(places(document))
    holder: Any = document
    for key in place[:-1]:
        holder = holder[key]
    how = rng.randrange(10)
    if how == 0 and isinstance(holder, dict):
        return renamed(document, place, str(value))
    if how == 1:
        return changed(document, place[:-1], [each for key, each in enumerate(holder) if key != place[-1]] if isinstance(holder,
            list) else
                       {key: each for key, each in holder.items() if key != place[-1]}) if place[:-1] else document
    return changed(document, place, value)
