"""What LLaMA-Factory refuses of its YAML in its own words, and what the engines' files beside it say wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.accelerate.mistakes import unknown_key as unknown_yaml_key
from meshwright.frameworks.accelerate.mistakes import yaml_checks
from meshwright.frameworks.asking import at, equal, is_not_true, is_true, other_than, place_of
from meshwright.frameworks.deepspeed.json_config import AUTO
from meshwright.frameworks.deepspeed.mistakes import json_checks
from meshwright.frameworks.deepspeed.mistakes import unknown_key as unknown_json_key
from meshwright.frameworks.llama_factory_hf.reading import MICROBATCH, NAME, stage
from meshwright.frameworks.llama_factory_hf.silent_mistakes import SILENT
from meshwright.frameworks.llama_factory_hf.sources import ACCELERATE, DEEPSPEED, engine_reading, launchers
from meshwright.frameworks.llama_factory_hf.surfaces import RELEASES
from meshwright.frameworks.rules import At, Mistake, checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.documents.source import Source
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

_PARSER, _TRAINER = "llamafactory/hparams/parser.py", "transformers/training_args.py"
_MEGATRON = frozenset({
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "virtual_pipeline_model_parallel_size", "sequence_parallel", "use_distributed_optimizer", "overlap_param_gather",
    "overlap_grad_reduce", "recompute_granularity",
})
"""Arguments of the Megatron back ends."""
_LAUNCHERS = frozenset({"llamafactory-cli", "lmf", "torchrun", "torch.distributed.launch", "deepspeed", "accelerate"})
"""What starts processes that find each other."""
_BELOW = 1e-6
"""``val_size`` below it counts as none."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Arguments are refused; what an engine does with a key of its own file is said by it."""
    for prefix, engine in ((DEEPSPEED, unknown_json_key), (ACCELERATE, unknown_yaml_key)):
        if key.startswith(prefix):
            return engine(key.removeprefix(prefix))
    if key in _MEGATRON:
        words = "it is of USE_MEGATRON_BRIDGE=1 (--from llama-factory-megatron)"
        return "error", f"Some keys are not used by the HfArgumentParser: ['{{key}}']: {words}"
    return "error", "Some keys are not used by the HfArgumentParser: ['{key}']"


def adds_keys(source: Source) -> str:
    """The variable that has LLaMA-Factory drop arguments that it does not know."""
    variable = source.environment.get("ALLOW_EXTRA_ARGS")
    return "ALLOW_EXTRA_ARGS" if variable is not None and str(variable.value).lower() in {"true", "1", "y"} else ""


def _is_stage_3(reading: Reading) -> bool:
    return stage(reading.source) == 3


def _not_stage_3(reading: Reading) -> bool:
    return not _is_stage_3(reading)


def _several(reading: Reading) -> bool:
    return (reading.said.devices or 1) > 1


def _sharded(reading: Reading) -> bool:
    """Whether DeepSpeed is named."""
    return reading.source.value("deepspeed") not in {None, ""} or any(key.startswith(DEEPSPEED) for key in reading.source.settings)


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _evaluates(reading: Reading, case: Case | None) -> Iterator[Values]:
    source = reading.source
    if source.value("eval_dataset") is not None or _number(source.value("val_size")) >= _BELOW:
        return
    for key in ("do_eval", "do_predict", "predict_with_generate"):
        if source.value(key) is True:
            yield at(source.settings[key], "eval_dataset")
            return


def _torchrun(reading: Reading, case: Case | None) -> Iterator[Values]:
    """One process of ``llamafactory-cli`` is started without torchrun, and so is a plain Python."""
    environment = reading.source.environment
    forced = environment.get("FORCE_TORCHRUN")
    if not _sharded(reading) or (forced is not None and str(forced.value).lower() in {"true", "1", "y"}):
        return
    found = set(launchers(reading.source))
    alone = reading.source.devices_per_node == 1 and found & {"llamafactory-cli", "lmf"}
    if alone or (found and not found & _LAUNCHERS):
        yield {"value": None, "expected": "FORCE_TORCHRUN=1", "path": place_of(reading, "deepspeed")}


def _mismatches(reading: Reading, case: Case | None) -> Iterator[Values]:
    """Numbers of the JSON that are not those of the arguments; ``auto`` is filled in."""
    source = reading.source
    micro, steps = (
        value if isinstance(value := source.value(key, default), int) else None
        for key, default in (("per_device_train_batch_size", MICROBATCH), ("gradient_accumulation_steps", 1))
    )
    total = micro * steps * reading.said.devices if micro and steps and reading.said.devices else None
    told: dict[str, tuple[str, object]] = {
        "train_micro_batch_size_per_gpu": ("per_device_train_batch_size", micro),
        "gradient_accumulation_steps": ("gradient_accumulation_steps", steps),
        "train_batch_size": ("train_batch_size (calculated)", total),
        "gradient_clipping": ("max_grad_norm", source.value("max_grad_norm", 1.0)),
        "bf16.enabled": ("bf16|bf16_full_eval", source.value("bf16", False)),
        "fp16.enabled": ("fp16|fp16_full_eval", source.value("fp16", False)),
    }
    for key, (name, wanted) in told.items():
        setting = source.settings.get(DEEPSPEED + key)
        known = setting is not None and isinstance(setting.value, (int, float)) and isinstance(wanted, (int, float))
        if setting is not None and known and setting.value != wanted:
            yield at(setting, AUTO, key=key, name=name, wanted=wanted)


_not_sft = other_than(None, "sft")
_is_adapter = equal(None, "lora")
_MISTAKES = (
    Mistake("generate-stage", "`predict_with_generate` cannot be set as True except SFT.",
            At("predict_with_generate", False, is_true, beside={"stage": _not_sft})),
    Mistake("packing-stage", "`neat_packing` cannot be set as True except SFT.",
            At("neat_packing", False, is_true, beside={"stage": _not_sft})),
    Mistake("mask-stage", "`train_on_prompt` or `mask_history` cannot be set as True except SFT.",
            tuple(At(key, False, is_true, beside={"stage": _not_sft}) for key in ("train_on_prompt", "mask_history"))),
    Mistake("predict", "Please enable `predict_with_generate` to save model predictions.",
            At("do_predict", "predict_with_generate", is_true, beside={"stage": equal(None, "sft"),
                                                                       "predict_with_generate": is_not_true})),
    Mistake("torchrun", "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training.", _torchrun),
    Mistake("streaming", "Please specify `max_steps` in streaming mode.",
            At("streaming", "max_steps", is_true, beside={"max_steps": equal(None, -1)})),
    Mistake("dataset", "Please specify dataset for training.",
            At("do_train", "dataset", is_true, beside={"dataset": equal(None)})),
    Mistake("evaluation", "Please make sure eval_dataset be provided or val_size >1e-6", _evaluates),
    Mistake("two-evaluations", "Cannot specify `val_size` if `eval_dataset` is not None.",
            At("val_size", 0, lambda value: _number(value) > _BELOW, beside=("eval_dataset",))),
    Mistake("samples-streamed", "`max_samples` is incompatible with `streaming`.",
            At("max_samples", None, other_than(None), beside={"streaming": is_true})),
    Mistake("two-masks", "`mask_history` is incompatible with `train_on_prompt`.",
            At("mask_history", False, is_true, beside={"train_on_prompt": is_true})),
    Mistake("mixing", "`interleave_probs` is only valid for interleaved mixing.",
            At("interleave_probs", None, other_than(None), beside={"mix_strategy": equal(None, "concat")})),
    Mistake("generate-stage-3", "`predict_with_generate` is incompatible with DeepSpeed ZeRO-3.",
            At("predict_with_generate", False, is_true, when=_is_stage_3)),
    Mistake("pissa-stage-3", "Please use scripts/pissa_init.py to initialize PiSSA in DeepSpeed ZeRO-3.",
            At("pissa_init", False, is_true, when=_is_stage_3)),
    Mistake("incompatible-stage-3", "{what} is incompatible with DeepSpeed ZeRO-3.",
            tuple(At(key, False, is_true, when=_is_stage_3, values={"what": what})
                  for key, what in (("pure_bf16", "`pure_bf16`"), ("use_unsloth", "Unsloth"), ("use_kt", "KTransformers")))),
    Mistake("layerwise", "Distributed training does not support layer-wise {optimizer}.",
            tuple(At(f"{key}_layerwise", False, is_true, beside={f"use_{key}": is_true}, when=_several, values={"optimizer": name})
                  for key, name in (("galore", "GaLore"), ("apollo", "APOLLO")))),
    Mistake("badam-ratio", "Radio-based BAdam does not yet support distributed training, use layer-wise BAdam.",
            At("use_badam", False, is_true, beside={"badam_mode": equal("ratio")}, when=_several)),
    Mistake("badam-stage", "Layer-wise BAdam only supports DeepSpeed ZeRO-3 training.",
            At("use_badam", False, is_true, beside={"badam_mode": equal(None, "layer")},
               when=lambda reading: _several(reading) and _not_stage_3(reading))),
    Mistake("low-rank-deepspeed", "GaLore and APOLLO are incompatible with DeepSpeed yet.",
            tuple(At(key, False, is_true, when=_sharded) for key in ("use_galore", "use_apollo"))),
    Mistake("low-rank-adapters", "Cannot use LoRA with GaLore, APOLLO or BAdam together.",
            tuple(At(key, False, is_true, beside={"finetuning_type": _is_adapter})
                  for key in ("use_galore", "use_apollo", "use_badam"))),
    Mistake("quantized", "Quantization is only compatible with the LoRA or OFT method.",
            At("quantization_bit", None, other_than(None), beside={"finetuning_type": equal("full", "freeze")})),
    Mistake("quantized-map", "Cannot use device map for quantized models in training.",
            At("quantization_device_map", None, equal("auto"), beside={"do_train": is_true})),
    Mistake("adapter", "Adapter is only valid for the LoRA method.",
            At("adapter_name_or_path", None, other_than(None), beside={"finetuning_type": equal("full", "freeze")})),
    Mistake("lora-only", "`{key}` is only valid for LoRA training.",
            (*(At(key, False, is_true, beside={"finetuning_type": other_than(None, "lora")})
               for key in ("use_rslora", "use_dora", "pissa_init")),
             At("loraplus_lr_ratio", None, other_than(None), beside={"finetuning_type": other_than(None, "lora")}))),
    Mistake("serving", "vLLM/SGLang backend is only available for API, CLI and Web.",
            At("infer_backend", "hf", other_than("hf", "huggingface"))),
    Mistake("two-precisions", "At most one of fp16 and bf16 can be True, but not both",
            At("fp16", False, is_true, beside={"bf16": is_true}), source=_TRAINER),
    Mistake("fp8-quantized", "FP8 training is not compatible with quantization. Please disable one of them.",
            At("fp8", False, is_true, beside={"quantization_bit": other_than(None)})),
    Mistake("mismatch", "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: "
            "ds {key}={value} vs hf {name}={wanted}. The easiest method is to set these DeepSpeed config values to 'auto'.",
            _mismatches, source="transformers/integrations/deepspeed.py"),
)


def _of_engine(found: Iterable[Check], prefix: str) -> tuple[Check, ...]:
    """Checks of an engine's file, asked of its settings alone."""

    def scoped(check: Check) -> Check:
        def find(reading: Reading, case: Case | None) -> Iterable[Values]:
            part = engine_reading(reading, prefix)
            return () if part is None else check.find(part, case)

        return structs.replace(check, find=find)

    return tuple(map(scoped, found))


def _checks(release: str) -> tuple[Check, ...]:
    return (
        *checks(NAME, _MISTAKES, release=release, source=_PARSER),
        *checks(NAME, SILENT, release=release, source="llamafactory"),
        *_of_engine((each for each in json_checks(NAME, trainer=True) if each.id != f"{NAME}.batch-arithmetic"), DEEPSPEED),
        *_of_engine(yaml_checks(NAME), ACCELERATE),
    )


CHECKS: Mapping[str, tuple[Check, ...]] = {release: _checks(release) for release in RELEASES}
"""Release -> its checks; the Trainer's own arithmetic stands for DeepSpeed's."""
