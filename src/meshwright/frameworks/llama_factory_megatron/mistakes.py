"""What LLaMA-Factory's Megatron-Bridge back end refuses of its YAML, and what it takes without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.asking import at, count_of, equal, is_false, is_not_true, is_true, other_than
from meshwright.frameworks.bridge.mistakes import CHECKS as BRIDGE_CHECKS
from meshwright.frameworks.bridge.mistakes import unknown_key as unknown_field
from meshwright.frameworks.llama_factory_hf.mistakes import adds_keys
from meshwright.frameworks.llama_factory_hf.reading import MICROBATCH
from meshwright.frameworks.llama_factory_hf.sources import launchers
from meshwright.frameworks.llama_factory_megatron.reading import DEGREES, NAME
from meshwright.frameworks.llama_factory_megatron.sources import EXTRA, as_bridge
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

__all__ = ["CHECKS", "adds_keys", "unknown_key"]

_PARSER = "llamafactory/hparams/parser.py"
_BUILDER = "llamafactory/train/megatron_bridge/config_builder.py"
_UNREAD = (
    "flash_attn", "disable_gradient_checkpointing", "gradient_checkpointing", "use_unsloth_gc", "enable_liger_kernel",
    "torch_compile", "optim", "pure_bf16", "use_reentrant_gc",
)
"""Arguments of the Trainer and of its models, which this back end builds neither of."""
_OF_OTHERS = ("recipe", "field", "section", "weights", "per-token-loss", "peft-checkpoint", "sequence-parallel-key")
"""Checks of Bridge's own programs and recipes, and what the arguments refuse before."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Arguments are refused; of ``extra_config`` the last name is set on whatever object stands before it."""
    if key.startswith(EXTRA):
        found = unknown_field(key.removeprefix(EXTRA))
        words = "{key} is no field of Bridge: extra_config sets it all the same, and nothing reads it"
        return None if found is None else ("warning", words)
    return "error", "Some keys are not used by the HfArgumentParser: ['{key}']"


def _parallel_size(reading: Reading, case: Case | None) -> Iterator[Values]:
    world, size = reading.said.devices, prod(max(1, count_of(reading, key, 1)) for key in DEGREES)
    if world and world % size:
        setting = next((reading.source.settings[key] for key in DEGREES if count_of(reading, key, 1) > 1), None)
        how = f"exceeds `world_size` ({world})" if size > world else f"must divide `world_size` ({world})"
        yield at(setting, None, size=size, how=how, value=size)


def _off(reading: Reading, case: Case | None) -> Iterator[Values]:
    """A launch that does not choose the back end."""
    variable = reading.source.environment.get("USE_MEGATRON_BRIDGE")
    if set(launchers(reading.source)) and (variable is None or str(variable.value).lower() not in {"1", "true", "y"}):
        yield at(variable, "USE_MEGATRON_BRIDGE=1")


def _several(reading: Reading) -> Values | None:
    """More than one sequence in a micro-batch, of which there are eight where nothing is said."""
    found = count_of(reading, "per_device_train_batch_size", MICROBATCH)
    return values_if(found > 1, mb=found)


def _targets(reading: Reading) -> Values | None:
    return values_if(reading.source.value("finetuning_type", "lora") == "lora")


_MISTAKES = (
    Mistake("parallel-size", "Total Megatron Bridge parallel size ({size}) {how}.", _parallel_size),
    Mistake("sequence-parallel", "`sequence_parallel` requires `tensor_model_parallel_size` > 1.",
            At("sequence_parallel", False, is_true, beside={"tensor_model_parallel_size": equal(None, 1)}),
            source="llamafactory/hparams/megatron_bridge_args.py"),
    Mistake("stage", "Megatron Bridge only supports the `pt` and `sft` stages.",
            At("stage", "sft", other_than("pt", "sft"))),
    Mistake("method", "Megatron Bridge only supports `full` and `lora` finetuning.",
            At("finetuning_type", "full", other_than("full", "lora"))),
    Mistake("quantized", "Quantized models are not supported with Megatron Bridge.",
            At("quantization_bit", None, other_than(None))),
    Mistake("deepspeed", "Megatron Bridge is incompatible with DeepSpeed.", At("deepspeed", None, other_than(None, ""))),
    Mistake("hyper-parallel", "Megatron Bridge cannot be used together with MCA or HyperParallel.",
            At("use_hyper_parallel", False, is_true)),
    Mistake("packing-stage", "`neat_packing` cannot be set as True except SFT.",
            At("neat_packing", False, is_true, beside={"stage": other_than(None, "sft")})),
    Mistake("dataset", "Please specify dataset for training.",
            At("do_train", "dataset", is_true, beside={"dataset": equal(None)})),
    Mistake("back-end", "without USE_MEGATRON_BRIDGE=1 the Trainer is started, which knows none of these arguments", _off,
            source="llamafactory/launcher.py"),
    Mistake("pretrain-adapters", "stage pt trains all weights: adapters are of stage sft alone, whatever finetuning_type says",
            At("stage", "finetuning_type: full", equal("pt"), beside={"finetuning_type": equal(None, "lora")}), "warning",
            _BUILDER),
    Mistake("targets", "Custom lora_target {value} is not supported by Megatron Bridge. Using default Megatron target modules",
            At("lora_target", "all", other_than("all", None), when=_targets), "warning", _BUILDER),
    Mistake("packing", "{key} packs nothing here and takes a token off cutoff_len: use_packed_sequences packs",
            tuple(At(key, "use_packed_sequences: true", is_true, beside={"use_packed_sequences": is_not_true})
                  for key in ("packing", "neat_packing")), "warning", "llamafactory/hparams/data_args.py"),
    Mistake("packed-microbatch", "Micro batch size should be 1 when training with packed sequence, but your micro batch size is "
            "{mb}.", At("use_packed_sequences", None, is_true, when=_several),
            source="Megatron-Bridge training/config.py validate"),
    Mistake("unread", "{key} has no effect: neither the Trainer nor a model of transformers is built",
            tuple(At(key, None, other_than(None)) for key in _UNREAD), "advice", _BUILDER),
    Mistake("gather-alone", "overlap_param_gather without overlap_grad_reduce: accepted in silence, although Megatron-LM's own "
            "flags refuse it", At("overlap_grad_reduce", True, is_false, beside={"overlap_param_gather": other_than(False)}),
            "warning", _BUILDER),
)


def _below(found: Iterable[Check]) -> tuple[Check, ...]:
    """Bridge's checks, asked of the fields that the arguments set."""

    def scoped(check: Check) -> Check:
        def find(reading: Reading, case: Case | None) -> Iterable[Values]:
            return check.find(replace(reading, source=as_bridge(reading.source)), case)

        return structs.replace(check, id=check.id.replace("bridge.", f"{NAME}.", 1), find=find)

    own = {f"{NAME}.{each.name}" for each in _MISTAKES}
    return tuple(
        scoped(check) for check in found
        if check.id.removeprefix("bridge.") not in _OF_OTHERS and check.id.replace("bridge.", f"{NAME}.", 1) not in own
    )


CHECKS = (*checks(NAME, _MISTAKES, source=_PARSER), *_below(BRIDGE_CHECKS))
