"""What DeepSpeed takes although it is wrong, and what contradicts itself in its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting
from meshwright.errors import did_you_mean
from meshwright.frameworks.asking import equal, is_not_true, is_true, other_than, place_of, whole
from meshwright.frameworks.deepspeed.json_config import AUTO, BATCH_KEYS, ZERO
from meshwright.frameworks.rules import At, Mistake, checks, values_if
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

SOURCE, _ZERO = "deepspeed/runtime/config.py", "deepspeed/runtime/zero/config.py"
RENAMED = {
    f"{ZERO}.cpu_offload": f"{ZERO}.offload_optimizer", f"{ZERO}.cpu_offload_param": f"{ZERO}.offload_param",
    f"{ZERO}.cpu_offload_use_pin_memory": f"{ZERO}.offload_optimizer.pin_memory",
    f"{ZERO}.stage3_gather_fp16_weights_on_model_save": f"{ZERO}.stage3_gather_16bit_weights_on_model_save",
}
_LEGACY_OFFLOAD = {f"{ZERO}.cpu_offload": "offload_optimizer", f"{ZERO}.cpu_offload_param": "offload_param"}
"""Of these the switches that have a rule of their own where they are true, and the section that is meant."""
_STAGE_3 = {
    "zero_hpz_partition_size": 1, "zero_quantized_weights": False, "zero_quantized_gradients": False, "mics_shard_size": -1,
}
"""Key that acts in stage 3 only -> its value without effect."""
_LOW_STATES = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states")
_MISNAMED = {
    "train_micro_batch_size": "train_micro_batch_size_per_gpu", "micro_batch_size": "train_micro_batch_size_per_gpu",
    "train_micro_batch_size_per_device": "train_micro_batch_size_per_gpu", "global_batch_size": "train_batch_size",
    "batch_size": "train_batch_size", "gradient_accumulation": "gradient_accumulation_steps",
}
"""Key that is none of DeepSpeed's -> the batch key that is meant."""


@cache
def sections() -> Mapping[str, str]:
    """Section of the JSON -> what becomes of extra keys in it (``sections.csv``).

    ``refused``: it is a pydantic model. ``passed on``: they are handed on, looked up one by one, or known to a rule here.
    """
    return {row["section"]: row["extra_keys"] for row in rows(__package__, "sections.csv")}


@cache
def removed(release: str) -> Mapping[str, str]:
    """Key or section that a release refuses -> its words (``removed.csv``)."""
    return {row["key"]: row["words"] for row in rows(__package__, "removed.csv") if row["release"] == release}


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Refused inside the strict sections, ignored without a word at the top; flags belong to the training program."""
    section = key.partition(".")[0]
    if key.startswith("-") or sections().get(section) == "passed on":
        return None
    if section in sections():
        return "error", "{key} Extra inputs are not permitted"
    return "warning", "DeepSpeed ignores {key} without a word" + _hint(section)


def _hint(section: str) -> str:
    """The section that was perhaps meant."""
    from meshwright.frameworks.deepspeed import surface

    return (
        did_you_mean(section, {*sections(), *(key.partition(".")[0] for key in surface().keys)})
        .replace("{", "{{")
        .replace("}", "}}")
    )


def raw(reading: Reading) -> dict[str, Setting]:
    """Settings as they stand in the files, with ``auto`` as it is written."""
    return {key: setting for document in reading.source.documents for key, setting in document.settings().items()}


def _number(settings: dict[str, Setting], key: str) -> int | None:
    value = settings[key].value if key in settings else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stage(reading: Reading) -> int:
    value = reading.source.value(f"{ZERO}.stage", 0)
    return value if isinstance(value, int) else 0


def _batch_arithmetic(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    batch, mb, steps = (_number(settings, key) for key in BATCH_KEYS)
    dp = _replicas(reading, settings)
    if not batch or not dp:
        return
    if mb and steps is None:
        steps = batch // mb // dp
    elif steps and mb is None:
        mb = batch // dp // steps
    elif mb is None and steps is None:
        mb, steps = batch // dp, 1
    if mb is None or steps is None or batch == mb * steps * dp:
        return
    hint = " (a world of 1 is seen where the program is not started by torchrun or deepspeed)" if dp == 1 else ""
    yield {
        "batch": batch, "mb": mb, "gas": steps, "dp": dp, "hint": hint, "value": batch, "expected": mb * steps * dp,
        "path": place_of(reading, "train_batch_size"),
    }


def _replicas(reading: Reading, settings: dict[str, Setting]) -> int | None:
    """Data-parallel ranks: of the layout, or of the devices."""
    if reading.layout is not None:
        return reading.layout.data_parallel
    inner = 1
    for key in ("tensor_parallel.autotp_size", "sequence_parallel_size"):
        inner *= max(1, _number(settings, key) or 1)
    for flag in ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--ds-sequence-parallel-size"):
        inner *= max(1, whole(reading.source.value(flag, 1)) or 1)
    return reading.said.devices // inner if reading.said.devices else None


def _batch_missing(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    flags = {"--per_device_train_batch_size", "--zero_stage"}
    keys = [key for key in settings if not key.startswith("-")]
    if keys and not {"train_batch_size", "train_micro_batch_size_per_gpu", *flags} & set(settings):
        yield {"expected": "train_batch_size", "path": settings[keys[0]].file}


def _removed(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    for key, words in removed(reading.version).items():
        found = next((setting for name, setting in settings.items() if name == key or name.startswith(f"{key}.")), None)
        if found is not None:
            yield {"words": words, "value": key, "path": found.place}


def _below_3(reading: Reading) -> Values | None:
    """Stages in which a key of stage 3 does nothing: value ``stage``."""
    return values_if(_stage(reading) != 3, stage=_stage(reading))


def _is_off(reading: Reading) -> bool:
    """Stage 0."""
    return _stage(reading) == 0


def _is_bf16(reading: Reading) -> bool:
    return True in (reading.source.value("bf16.enabled"), reading.source.value("bfloat16.enabled"))


def _no_zero(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    keys = [key for key in settings if not key.startswith("-")]
    if set(BATCH_KEYS) & set(keys) and not any(key.partition(".")[0] in {ZERO, "--zero_stage"} for key in settings):
        yield {"section": ZERO, "expected": f"{ZERO}.stage", "path": settings[keys[0]].file}


def _auto(reading: Reading, case: Case | None) -> Iterator[Values]:
    found = [setting for setting in raw(reading).values() if setting.value == AUTO and not setting.key.startswith("-")]
    if found:
        yield {"keys": ", ".join(setting.key for setting in found), "value": AUTO, "path": found[0].place}


def _comment(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "deepspeed.hjson":
            yield {"line": remark.values["line"], "value": "//", "path": remark.path}


_ONLY_WITHOUT_TRAINER = ("batch-missing", "auto")
"""The Hugging Face Trainer and accelerate fill in what is ``auto``."""
_JSON = (
    Mistake("batch-arithmetic", "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size {batch} != {mb} * {gas} * {dp}{hint}", _batch_arithmetic),
    Mistake("batch-missing", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided", _batch_missing),
    Mistake("both-precisions", "bfloat16 and fp16 modes cannot be simultaneously enabled",
            At("fp16.enabled", False, is_true, when=_is_bf16)),
    Mistake("removed", "{words} See https://github.com/deepspeedai/DeepSpeed/issues/8489.", _removed),
    Mistake("legacy-offload", "{key}: true is deprecated, and crashes with \"'str' object has no attribute 'value'\" under some "
            "releases of pydantic: give {section} with device cpu",
            tuple(At(key, section, is_true, values={"section": section}) for key, section in _LEGACY_OFFLOAD.items()), "warning",
            _ZERO),
    Mistake("deprecated", "Config parameter {key} is deprecated use {instead} instead",
            (*(At(key, instead, is_not_true if key in _LEGACY_OFFLOAD else None, values={"instead": instead})
               for key, instead in RENAMED.items()),
             At("bfloat16.enabled", "bf16", values={"instead": "bf16"}),
             At(ZERO, f"{ZERO}.stage", lambda value: isinstance(value, bool), values={"instead": f"{ZERO}.stage"})),
            "warning", "deepspeed/runtime/config_utils.py"),
    Mistake("offload-param", "offload_param is valid only with stage 3, not {stage}: it is accepted and does nothing",
            At(f"{ZERO}.offload_param.device", "stage 3", other_than("none"), when=_below_3), "warning", _ZERO),
    Mistake("offload-stage", "offload_optimizer does nothing in stage 0",
            At(f"{ZERO}.offload_optimizer.device", "stage 1 or more", other_than("none"), without=("--zero_stage",), when=_is_off),
            "warning", _ZERO),
    Mistake("offload-ratio", "Partial offloading only supported for ZeRO Stage 3.",
            At(f"{ZERO}.offload_optimizer.ratio", 1.0, lambda value: isinstance(value, (int, float)) and value < 1, when=_below_3),
            source=_ZERO),
    Mistake("stage-3-keys", "{key} acts in stage 3 only, the stage is {stage}",
            tuple(At(f"{ZERO}.{name}", neutral, other_than(neutral), when=_below_3) for name, neutral in _STAGE_3.items()),
            "warning", _ZERO),
    Mistake("zero-section", "there is no {section} section: ZeRO is off", _no_zero, "advice"),
    Mistake("max-grad-norm", "max_grad_norm ({value}) is not supported as an optimizer parameter, please switch to using the "
            "deepspeed parameter 'gradient_clipping'",
            At("optimizer.params.max_grad_norm", "gradient_clipping", lambda value: isinstance(value, (int, float)) and value > 0),
            "warning"),
    Mistake("bf16-states", "{key} is only supported with ZeRO Stage 1, 2, or 3.",
            tuple(At(key, False, is_true, when=_is_off) for key in _LOW_STATES)),
    Mistake("gradient-mix", "unsupported mix of model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32: stage 0 accumulates "
            "in BF16",
            At("data_types.grad_accum_dtype", "bf16", equal("fp32"), beside=(f"{ZERO}.stage",),
               when=lambda reading: _is_bf16(reading) and _is_off(reading)), source="deepspeed/runtime/engine.py"),
    Mistake("duplicate-batch", "{key} is no batch key of DeepSpeed: {instead} is",
            tuple(At(key, instead, values={"instead": instead}) for key, instead in _MISNAMED.items()), "warning"),
    Mistake("auto", '"auto" for {keys} is filled in by the Hugging Face Trainer or accelerate only: deepspeed.initialize cannot '
            "use it", _auto, "advice", "transformers/integrations/deepspeed.py"),
)


def json_checks(name: str, *, trainer: bool = False) -> tuple[Check, ...]:
    """The mistakes of DeepSpeed's JSON for a framework that takes one; ids begin with its name.

    ``trainer``: the JSON is for the Hugging Face Trainer or accelerate.
    """
    return checks(name, (each for each in _JSON if not (trainer and each.name in _ONLY_WITHOUT_TRAINER)), source=SOURCE)


_COMMENT = (
    Mistake("comment", "line {line} holds a comment: DeepSpeed parses Hjson and takes it, the Hugging Face Trainer, accelerate and "
            "Megatron-DeepSpeed parse JSON and refuse it", _comment, "warning", "deepspeed/runtime/config.py (hjson.load)"),
)
CHECKS = (*json_checks("deepspeed"), *checks("deepspeed", _COMMENT))
