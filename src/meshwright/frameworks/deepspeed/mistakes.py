"""What DeepSpeed takes although it is wrong, and what contradicts itself in its JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting
from meshwright.errors import did_you_mean
from meshwright.frameworks.asking import at, place_of, whole
from meshwright.frameworks.deepspeed.json_config import AUTO, BATCH_KEYS, ZERO
from meshwright.frameworks.rules import Finder, file_rule
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

SOURCE = "deepspeed/runtime/config.py"
RENAMED = {
    f"{ZERO}.cpu_offload": f"{ZERO}.offload_optimizer", f"{ZERO}.cpu_offload_param": f"{ZERO}.offload_param",
    f"{ZERO}.cpu_offload_use_pin_memory": f"{ZERO}.offload_optimizer.pin_memory",
    f"{ZERO}.stage3_gather_fp16_weights_on_model_save": f"{ZERO}.stage3_gather_16bit_weights_on_model_save",
}
_LEGACY_OFFLOAD = (f"{ZERO}.cpu_offload", f"{ZERO}.cpu_offload_param")
"""Of these the switches that have a rule of their own where they are true."""


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


def json_checks(name: str, *, trainer: bool = False) -> list[Check]:
    """The rules of DeepSpeed's JSON for a framework that takes one; ids begin with its name.

    ``trainer``: the JSON is for the Hugging Face Trainer or accelerate, which fill in ``auto``.
    """
    checks: list[Check] = []

    def add(id: str, words: str, severity: Severity = "error", source: str = SOURCE) -> Callable[[Finder], Finder]:
        return file_rule(checks, f"{name}.{id}", words, severity=severity, source=source)

    add("batch-arithmetic", "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size {batch} != {mb} * {gas} * {dp}{hint}")(_batch_arithmetic)
    if not trainer:
        add("batch-missing", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided")(_batch_missing)
    add("both-precisions", "bfloat16 and fp16 modes cannot be simultaneously enabled")(_both_precisions)
    add("removed", "{words} See https://github.com/deepspeedai/DeepSpeed/issues/8489.")(_removed)
    add(
        "legacy-offload", "{key}: true is deprecated, and crashes with \"'str' object has no attribute 'value'\" under some "
                          "releases of pydantic: give {section} with device cpu", "warning", "deepspeed/runtime/zero/config.py",
    )(_legacy_offload)
    add("deprecated", "Config parameter {key} is deprecated use {instead} instead", "warning",
        "deepspeed/runtime/config_utils.py")(_deprecated)
    add("offload-param", "offload_param is valid only with stage 3, not {stage}: it is accepted and does nothing", "warning",
        "deepspeed/runtime/zero/config.py")(_offload_param)
    add("offload-stage", "offload_optimizer does nothing in stage 0", "warning", "deepspeed/runtime/zero/config.py")(_offload_stage)
    add("offload-ratio", "Partial offloading only supported for ZeRO Stage 3.", source="deepspeed/runtime/zero/config.py")(
        _offload_ratio
    )
    add("stage-3-keys", "{key} acts in stage 3 only, the stage is {stage}", "warning", "deepspeed/runtime/zero/config.py")(
        _stage_3_keys
    )
    add("zero-section", "there is no {section} section: ZeRO is off", "advice")(_no_zero)
    add("max-grad-norm", "max_grad_norm ({value}) is not supported as an optimizer parameter, please switch to using the deepspeed "
        "parameter 'gradient_clipping'", "warning")(_max_grad_norm)
    add("bf16-states", "{key} is only supported with ZeRO Stage 1, 2, or 3.")(_low_precision_states)
    add("gradient-mix", "unsupported mix of model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32: stage 0 accumulates "
        "in BF16",
        source="deepspeed/runtime/engine.py")(_gradient_mix)
    add("duplicate-batch", "{key} is no batch key of DeepSpeed: {instead} is", "warning")(_misnamed_batch)
    if not trainer:
        add("auto", "\"auto\" for {keys} is filled in by the Hugging Face Trainer or accelerate only: "
                    "deepspeed.initialize cannot use it",
            "advice", "transformers/integrations/deepspeed.py")(_auto)
    return checks


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
    if not batch or dp is None:
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


def _both_precisions(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value("fp16.enabled") is True and True in (
        reading.source.value("bf16.enabled"), reading.source.value("bfloat16.enabled")
    ):
        yield {"value": True, "expected": False, "path": place_of(reading, "fp16.enabled")}


def _removed(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    for key, words in removed(reading.version).items():
        found = next((setting for name, setting in settings.items() if name == key or name.startswith(f"{key}.")), None)
        if found is not None:
            yield {"words": words, "value": key, "path": found.place}


def _legacy_offload(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in _LEGACY_OFFLOAD:
        if reading.source.value(key) is True:
            section = RENAMED[key].partition(".")[2]
            yield {"key": key, "section": section, "value": True, "expected": section, "path": place_of(reading, key)}


def _deprecated(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key, instead in RENAMED.items():
        setting = reading.source.settings.get(key)
        if setting is not None and not (setting.value is True and key in _LEGACY_OFFLOAD):
            yield at(setting, instead, key=key, instead=instead)
    for old, new in (("bfloat16.enabled", "bf16"), (ZERO, f"{ZERO}.stage")):
        setting = reading.source.settings.get(old)
        if setting is not None and (old != ZERO or isinstance(setting.value, bool)):
            yield at(setting, new, key=old, instead=new)


def _offload_param(reading: Reading, case: Case | None) -> Iterator[Values]:
    key, stage = f"{ZERO}.offload_param.device", _stage(reading)
    if reading.source.value(key, "none") != "none" and stage != 3:
        yield {"stage": stage, "value": reading.source.value(key), "expected": "stage 3", "path": place_of(reading, key)}


def _offload_stage(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = f"{ZERO}.offload_optimizer.device"
    if reading.source.value(key, "none") != "none" and _stage(reading) == 0 and "--zero_stage" not in reading.source.settings:
        yield {"value": reading.source.value(key), "expected": "stage 1 or more", "path": place_of(reading, key)}


def _offload_ratio(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = f"{ZERO}.offload_optimizer.ratio"
    ratio = reading.source.value(key, 1.0)
    if isinstance(ratio, (int, float)) and ratio < 1 and _stage(reading) != 3:
        yield {"value": ratio, "expected": 1.0, "path": place_of(reading, key)}


def _stage_3_keys(reading: Reading, case: Case | None) -> Iterator[Values]:
    for name, neutral in (("zero_hpz_partition_size", 1), ("zero_quantized_weights", False), ("zero_quantized_gradients", False),
                          ("mics_shard_size", -1)):
        key = f"{ZERO}.{name}"
        value = reading.source.value(key, neutral)
        if value != neutral and _stage(reading) != 3:
            yield {"key": key, "stage": _stage(reading), "value": value, "expected": neutral, "path": place_of(reading, key)}


def _no_zero(reading: Reading, case: Case | None) -> Iterator[Values]:
    settings = raw(reading)
    keys = [key for key in settings if not key.startswith("-")]
    if set(BATCH_KEYS) & set(keys) and not any(key.partition(".")[0] in {ZERO, "--zero_stage"} for key in settings):
        yield {"section": ZERO, "expected": f"{ZERO}.stage", "path": settings[keys[0]].file}


def _max_grad_norm(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "optimizer.params.max_grad_norm"
    value = reading.source.value(key)
    if isinstance(value, (int, float)) and value > 0:
        yield {"value": value, "expected": "gradient_clipping", "path": place_of(reading, key)}


def _low_precision_states(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"):
        if reading.source.value(key) is True and _stage(reading) == 0:
            yield {"key": key, "value": True, "expected": False, "path": place_of(reading, key)}


def _gradient_mix(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "data_types.grad_accum_dtype"
    bf16 = True in (reading.source.value("bf16.enabled"), reading.source.value("bfloat16.enabled"))
    if bf16 and reading.source.value(key) == "fp32" and _stage(reading) == 0 and f"{ZERO}.stage" in reading.source.settings:
        yield {"value": "fp32", "expected": "bf16", "path": place_of(reading, key)}


def _misnamed_batch(reading: Reading, case: Case | None) -> Iterator[Values]:
    near = {
        "train_micro_batch_size": "train_micro_batch_size_per_gpu", "micro_batch_size": "train_micro_batch_size_per_gpu",
        "train_micro_batch_size_per_device": "train_micro_batch_size_per_gpu", "global_batch_size": "train_batch_size",
        "batch_size": "train_batch_size", "gradient_accumulation": "gradient_accumulation_steps",
    }
    for key, instead in near.items():
        if setting := reading.source.settings.get(key):
            yield at(setting, instead, key=key, instead=instead)


def _auto(reading: Reading, case: Case | None) -> Iterator[Values]:
    found = [setting for setting in raw(reading).values() if setting.value == AUTO and not setting.key.startswith("-")]
    if found:
        yield {"keys": ", ".join(setting.key for setting in found), "value": AUTO, "path": found[0].place}


CHECKS = json_checks("deepspeed")


@file_rule(
    CHECKS, "deepspeed.comment", "line {line} holds a comment: DeepSpeed parses Hjson and takes it, the Hugging Face "
                                 "Trainer, accelerate and "
    "Megatron-DeepSpeed parse JSON and refuse it", severity="warning", source="deepspeed/runtime/config.py (hjson.load)",
)
def _comment(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "deepspeed.hjson":
            yield {"line": remark.values["line"], "value": "//", "path": remark.path}
