"""What Megatron-Bridge's files, and the recipe beneath them, say of a case beside its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.launch import launch_words, offload_words
from meshwright.domain.training import Lora
from meshwright.frameworks.adapters import adapters_of
from meshwright.frameworks.bridge.adapters import PROJECTIONS
from meshwright.frameworks.bridge.automatic import blocks_of
from meshwright.frameworks.bridge.images import seen
from meshwright.frameworks.bridge.limits import PRECISIONS
from meshwright.frameworks.bridge.program import HALF_GRADIENTS
from meshwright.frameworks.megatron.hybrid import main_pattern
from meshwright.frameworks.settings import Said

if TYPE_CHECKING:
    from meshwright.domain.training import Task
    from meshwright.frameworks.bridge.called import Call
    from meshwright.frameworks.compose import Values
    from meshwright.frameworks.settings import Given

FIGURES = {
    "num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "num_query_groups": "key_value_heads",
    "kv_channels": "head_dim", "ffn_hidden_size": "ffn", "vocab_size": "vocabulary", "num_moe_experts": "experts",
    "moe_router_topk": "experts_per_token", "moe_ffn_hidden_size": "expert_ffn",
    "moe_shared_expert_intermediate_size": "shared_ffn", "mtp_num_layers": "mtp_layers",
}
SWITCHES = (
    ("model.deterministic_mode", "deterministic", "off", "on"), ("train.manual_gc", "host", "plain", "bound"),
    ("model.moe_router_force_load_balancing", "routing", "natural", "balanced"),
)
"""Field -> setting of the launch, and its values where the field is off and on."""
ALIKE = {
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": "fp8-cs", "nanov2_bf16_with_fp8_current_scaling_mixed": "fp8-blockwise",
}
"""Recipes of precision that differ from those of the catalogue in how many layers at the ends stay in BF16."""
MOMENTS = {"torch.bfloat16": "adamw-bf16-moments", "torch.uint8": "adamw-8bit"}
_TRAINERS: dict[str, Task] = {
    "megatron.bridge.training.finetune": "sft", "megatron.bridge.training.pretrain": "pretrain",
}
"""Module that a program of somebody's own takes its trainer from -> what is trained, where no field says adapters."""


def said_of(values: Values, given: Given, call: Call | None, *, model: str | None, devices: int | None) -> Said:
    """All of it; ``model``: of the catalogue, as the recipe that is known trains it."""
    sequence, task = sequence_of(values, call) or given.sequence_tokens, _task(values, call)
    adapted = "lora" in {task, given.task}
    return Said(
        devices=devices, global_batch_sequences=batch_of(values, given), sequence_tokens=sequence, precision=_precision(values),
        gradient_dtype=_gradient_dtype(values), optimizer=_optimizer(values), task=task, model=model,
        lora=_lora(values) if adapted else None, launch=_launch(values, given, sequence, adapted=adapted),
        figures=_figures(values, given),
    )


def batch_of(values: Values, given: Given) -> int | None:
    """Sequences of a step."""
    return values.int("train.global_batch_size") or given.global_batch_sequences


def _figures(values: Values, given: Given) -> dict[str, object]:
    """The model's figures, as far as the files say them."""
    found: dict[str, object] = {
        name: number for key, name in FIGURES.items() if (number := values.int(f"model.{key}")) is not None
    }
    text = values.text("model.hybrid_layer_pattern") or values.text("model.hybrid_override_pattern")
    if text:
        found["blocks"] = main_pattern(text)
    if found.get("mtp_layers"):
        found["mtp_shared"] = values.bool("model.mtp_use_repeated_layer")
    return found | ({"layers": layers_in(values, given)} if "layers" in found else {})


def sequence_of(values: Values, call: Call | None) -> int | None:
    """Tokens of a sequence: the model's, which must be the data set's; main's ``run_recipe`` gives the model the latter."""
    names = ("model.seq_length", "dataset.sequence_length", "dataset.seq_length")
    if call is not None and call.by_words and values.release == "main":
        names = ("dataset.seq_length", "dataset.sequence_length", "model.seq_length")
    return next((number for name in names if (number := values.int(name)) is not None), None)


def _precision(values: Values) -> str | None:
    """The precision of the catalogue behind a recipe's name, in either of its spellings."""
    name = str(values.source.value("mixed_precision")).replace("-", "_")
    return next((ours for ours, theirs in PRECISIONS.items() if theirs == name), ALIKE.get(name))


def _gradient_dtype(values: Values) -> str | None:
    """The type in which gradients are reduced: what is said beside the recipe of precision, else that recipe's own."""
    whole, precision = values.source.value("mixed_precision.grad_reduce_in_fp32"), _precision(values)
    if isinstance(whole, bool):
        return "fp32" if whole else "bf16"
    return None if precision is None else "bf16" if precision in HALF_GRADIENTS else "fp32"


def _optimizer(values: Values) -> str | None:
    """The optimizer of the catalogue; None where nothing is said of it."""
    name, moment = values.source.value("optimizer.optimizer"), values.source.value("optimizer.exp_avg_dtype")
    if name in (None, "adam") and moment is not None:
        aware = values.bool("optimizer.use_precision_aware_optimizer")
        return MOMENTS.get(str(moment), "adamw") if aware else "adamw"
    return {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}.get(str(name))


def _lora(values: Values) -> Lora | None:
    """Rank and places of adapters; None where the files and the recipe do not say them."""
    key = "peft.target_modules"
    return adapters_of(values, key, values.int("peft.dim"), values.words(key), PROJECTIONS)


def _task(values: Values, call: Call | None) -> Task | None:
    """The task, where fields, the name of the recipe or the program's own import tell it."""
    recipe, mode = "" if call is None else call.recipe, str(values.source.value("--mode", ""))
    fields = {**values.source.beneath, **values.source.settings}
    taken_out = "peft" in fields and fields["peft"].value is None
    adapters = any(key.startswith("peft.") and setting.value is not None for key, setting in fields.items())
    if adapters or ("_peft_" in recipe and not taken_out):
        return "lora"
    if any(word in recipe for word in ("_sft_", "_finetune_", "_peft_")) or mode == "sft":
        return "sft"
    if "pretrain" in recipe or mode == "pretrain":
        return "pretrain"
    called = {task for document in values.source.documents if document.path.endswith(".py")
              for module, task in _TRAINERS.items() if module in document.text}
    return called.pop() if len(called) == 1 else None


def _launch(values: Values, given: Given, sequence: int | None, *, adapted: bool) -> str | None:
    """Settings of the launch that fields make; what they leave to a recipe that is not known is not said."""
    found = seen(values, given.model, sequence, adapted=adapted)
    graphs, scope = values.source.value("model.cuda_graph_impl"), str(values.source.value("model.cuda_graph_scope"))
    if graphs is not None:
        found["graphs"] = "none" if str(graphs) == "none" else "step" if "full_iteration" in f"{graphs} {scope}" else "partial"
    for key, name, off, on in SWITCHES:
        if isinstance(told := values.source.value(key), bool):
            found[name] = on if told else off
    layers = values.source.value("model.cpu_offloading_num_layers")
    if values.source.value("model.cpu_offloading") is True and isinstance(layers, int) and layers > 0:
        found["offload_layers"] = str(layers)
    if values.source.value("model.fine_grained_activation_offloading") is True:
        found |= offload_words(values.words("model.offload_modules"))
    if (kind := values.source.value("model.moe_token_dispatcher_type")) is not None:
        found["dispatcher"] = "flex" if str(kind) == "flex" else "alltoall"
    return launch_words(found) or None


def blocks_in(values: Values, given: Given) -> int:
    """Megatron-Core's layers of one layer of the model: two of some hybrids, of which its configuration counts blocks."""
    return blocks_of(given.model, values.release) if given.model else 1


def layers_in(values: Values, given: Given) -> int | None:
    """Layers of the model, which the files may count in blocks."""
    said = values.int("model.num_layers")
    return said // blocks_in(values, given) if said else given.model.num_layers if given.model else None
