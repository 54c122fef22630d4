"""What accelerate takes although it is wrong, and what contradicts itself in its YAML."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, equal, is_true, other_than, place_of
from meshwright.frameworks.deepspeed.mistakes import json_checks
from meshwright.frameworks.deepspeed.mistakes import unknown_key as unknown_json_key
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

_MESHES, _LAUNCH = "accelerate/parallelism_config.py", "accelerate/commands/launch.py"
FSDP, MESH = "fsdp_config.fsdp_", "parallelism_config.parallelism_config_"
SECTIONS = (
    "fsdp_config",
    "parallelism_config",
    "deepspeed_config",
    "fp8_config",
    "dynamo_config",
    "megatron_lm_config",
    "mpirun_config",
)
_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_FILE_EXCLUDES = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)
_IGNORED = ("backward_prefetch", "use_orig_params", "sync_module_states", "forward_prefetch")
_TRUTHS = {"true", "false", "1", "0", "yes", "no", "y", "n", "t", "f", "on", "off"}


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Top-level keys are refused, keys of sections are copied and never looked at, flags belong to the training program."""
    from meshwright.frameworks.accelerate import surface

    section, _, name = key.partition(".")
    if key.startswith("-"):
        return None
    if section in SECTIONS:
        prefix = section.removesuffix("config")
        known = f"{section}.{prefix}{name}" in surface().keys
        return (
            None
            if known or section in {"dynamo_config", "megatron_lm_config", "mpirun_config"}
            else ("warning", "accelerate launch never reads {key}")
        )
    if name:
        return unknown_json_key(key)
    return (
        "error",
        "The config file had unknown keys (['{key}']), please try upgrading your `accelerate` version or fix (and "
        "potentially remove) these keys from your config file.",
    )


def _is_fsdp(reading: Reading) -> bool:
    return reading.source.value("distributed_type") == "FSDP"


def _is_1(reading: Reading) -> bool:
    return _is_fsdp(reading) and str(reading.source.value(f"{FSDP}version", 1)) != "2"


def _is_2(reading: Reading) -> bool:
    return _is_fsdp(reading) and not _is_1(reading)


def _sizes(reading: Reading) -> dict[str, int] | None:
    """Sizes of the mesh; None where there is no mesh or one is no number."""
    found = {name: reading.source.value(f"{MESH}{name}", 1) for name in _SIZES}
    if not any(key.startswith(MESH) for key in reading.source.settings):
        return None
    return (
        {name: value for name, value in found.items() if isinstance(value, int)}
        if all(isinstance(v, int) for v in found.values())
        else None
    )


def _no_type(reading: Reading, case: Case | None) -> Iterator[Values]:
    known = (*SECTIONS, "num_processes", "mixed_precision")
    own = [setting for key, setting in reading.source.settings.items() if key.partition(".")[0] in known]
    if own and "distributed_type" not in reading.source.settings:
        yield {"expected": "distributed_type", "path": own[0].file}


def _no_processes(reading: Reading, case: Case | None) -> Iterator[Values]:
    kind = reading.source.value("distributed_type")
    if kind not in (None, "NO") and reading.source.value("num_processes") in (None, -1) and reading.source.devices is None:
        yield {"expected": "num_processes", "path": place_of(reading, "distributed_type")}


def _machines(reading: Reading, case: Case | None) -> Iterator[Values]:
    processes, machines = (reading.source.value(name, 1) for name in ("num_processes", "num_machines"))
    if isinstance(processes, int) and isinstance(machines, int) and machines > 0 and processes > 0 and processes % machines:
        yield {"processes": processes, "machines": machines, "value": processes, "path": place_of(reading, "num_processes")}


def _wrapping(reading: Reading, case: Case | None) -> Iterator[Values]:
    policy = reading.source.value(f"{FSDP}auto_wrap_policy")
    if _is_fsdp(reading) and policy in (None, "NO_WRAP"):
        yield {"value": policy, "expected": "TRANSFORMER_BASED_WRAP", "path": place_of(reading, f"{FSDP}auto_wrap_policy")}


def _layer_class(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.frameworks.accelerate.writing import layer_class

    key = f"{FSDP}transformer_layer_cls_to_wrap"
    value = reading.source.value(key)
    expected = layer_class(case.model) if case is not None else None
    if _is_fsdp(reading) and expected and isinstance(value, str) and expected not in [name.strip() for name in value.split(",")]:
        yield {"value": value, "expected": expected, "model": case.model.name if case else "", "path": place_of(reading, key)}


def _strategy(reading: Reading) -> Values | None:
    value = reading.source.value(f"{FSDP}sharding_strategy")
    return values_if(_is_2(reading), expected=str(value).upper() not in {"SHARD_GRAD_OP", "2"})


def _reshard(reading: Reading) -> Values | None:
    value = reading.source.value(f"{FSDP}reshard_after_forward")
    return values_if(_is_2(reading) and str(value).lower() not in _TRUTHS, expected="SHARD_GRAD_OP" not in str(value))


def _fsdp1(reading: Reading, case: Case | None) -> Iterator[Values]:
    if _is_1(reading):
        yield {"value": 1, "expected": 2, "path": place_of(reading, f"{FSDP}version") or place_of(reading, "distributed_type")}


def _other_section(reading: Reading, case: Case | None) -> Iterator[Values]:
    kind = reading.source.value("distributed_type")
    for section, engine in (("fsdp_config", "FSDP"), ("deepspeed_config", "DEEPSPEED")):
        setting = next((setting for key, setting in reading.source.settings.items() if key.startswith(f"{section}.")), None)
        if setting is not None and kind not in (None, engine):
            yield at(setting, engine, section=section, kind=kind, value=kind)


def _total_size(reading: Reading, case: Case | None) -> Iterator[Values]:
    sizes, processes = _sizes(reading), reading.source.value("num_processes")
    if sizes is None or not isinstance(processes, int) or processes < 1 or sizes["sp_size"] > 1:
        return
    total = prod(sizes.values())
    if total not in {1, processes}:
        place = place_of(reading, f"{MESH}dp_shard_size")
        yield {"total": total, "processes": processes, "value": total, "expected": processes, "path": place}


def _mesh_engine(reading: Reading, case: Case | None) -> Iterator[Values]:
    sizes = _sizes(reading)
    if sizes and max(sizes.values()) > 1 and _is_1(reading):
        yield {"value": 1, "expected": "fsdp_version: 2", "path": place_of(reading, f"{FSDP}version")}


def _two_sequences(reading: Reading) -> Values | None:
    sizes = _sizes(reading)
    return values_if(sizes["cp_size"] > 1 and sizes["sp_size"] > 1, cp=sizes["cp_size"], sp=sizes["sp_size"]) if sizes else None


def _pure_data(reading: Reading, case: Case | None) -> Iterator[Values]:
    sizes = _sizes(reading)
    if sizes and max(sizes["tp_size"], sizes["cp_size"]) > 1 and sizes["dp_replicate_size"] > 1 and sizes["dp_shard_size"] == 1:
        yield {"value": sizes["dp_shard_size"], "path": place_of(reading, f"{MESH}dp_replicate_size")}


def _deepspeed_file(reading: Reading) -> Values | None:
    settings = reading.source.settings
    found = [name for name in _FILE_EXCLUDES if f"deepspeed_config.{name}" in settings]
    found += ["mixed_precision"] if "mixed_precision" in settings else []
    return values_if(found, keys=", ".join(found), value=found)


_MISTAKES = (
    Mistake("distributed-type", "A `distributed_type` must be specified in the config file.", _no_type, source=_LAUNCH),
    Mistake("processes", "You need to manually pass in `--num_processes` using this config yaml.", _no_processes, source=_LAUNCH),
    Mistake("machines", "num_processes ({processes}) counts all machines and is not divisible by num_machines ({machines})",
            _machines, source=_LAUNCH),
    Mistake("wrapping", "without fsdp_auto_wrap_policy the whole model is one unit: it is gathered at once", _wrapping, "warning"),
    Mistake("layer-class", "{value} is not the layer of {model}: {expected} is; accelerate stops where it finds no such class",
            _layer_class, "warning"),
    Mistake("ignored", "{key} has no effect in FSDP2",
            tuple(At(f"{FSDP}{name}", None, other_than(None, "NO_PREFETCH"), when=_is_2, values={"key": f"fsdp_{name}"})
                  for name in _IGNORED), "warning"),
    Mistake("strategy", "FSDP2 never reads fsdp_sharding_strategy ({value}): fsdp_reshard_after_forward decides",
            At(f"{FSDP}sharding_strategy", when=_strategy), "warning"),
    Mistake("reshard", "reshard_after_forward set to {value}. This is not supported with FSDP2, please set to a `bool`",
            At(f"{FSDP}reshard_after_forward", when=_reshard)),
    Mistake("reshard-fsdp1", "this is FSDP1, which fsdp_sharding_strategy decides: fsdp_reshard_after_forward ({value}) is "
            "ignored; FSDP2 is fsdp_version: 2", At(f"{FSDP}reshard_after_forward", "fsdp_version: 2", when=_is_1), "warning"),
    Mistake("fsdp1", "fsdp_version is 1 unless it is said: meshes (parallelism_config) and reshard_after_forward need 2", _fsdp1,
            "advice"),
    Mistake("state-dict", "FSDP2 does not support LOCAL_STATE_DICT. Please set `fsdp_state_dict_type` to `SHARDED_STATE_DICT` or "
            "`FULL_STATE_DICT`.", At(f"{FSDP}state_dict_type", "SHARDED_STATE_DICT", equal("LOCAL_STATE_DICT"), when=_is_2)),
    Mistake("other-section", "{section} is ignored: distributed_type is {kind}", _other_section, "warning", _LAUNCH),
    Mistake("total-size", "ParallelismConfig total_size ({total}) does not match num_processes ({processes}). Please adjust "
            "dp_replicate_size/ dp_shard_size/tp_size/cp_size/sp_size.", _total_size, source=_MESHES),
    Mistake("mesh-engine", "You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`. ", _mesh_engine,
            source=_MESHES),
    Mistake("mesh-exclusive", "Context Parallelism (CP) and Sequence Parallelism (SP) are mutually exclusive. Got cp_size={cp} and "
            "sp_size={sp}. Please set either cp_size=1 or sp_size=1.", At(f"{MESH}sp_size", 1, when=_two_sequences),
            source=_MESHES),
    Mistake("mesh-pure-data", "Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure data parallelism "
            "(dp_replicate_size > 1 and dp_shard_size == 1).", _pure_data, source=_MESHES),
    Mistake("deepspeed-file", "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: "
            "{keys}. accelerate refuses them", At("deepspeed_config.deepspeed_config_file", when=_deepspeed_file)),
    Mistake("twice-checkpointing", "fsdp_activation_checkpointing and --gradient_checkpointing recompute every layer twice: give "
            "one",
            At("--gradient_checkpointing", False, lambda value: str(value).lower() != "false",
               beside={f"{FSDP}activation_checkpointing": is_true}, when=_is_fsdp, values={"value": True}), "warning"),
)


def yaml_checks(name: str) -> tuple[Check, ...]:
    """The mistakes of accelerate's YAML for a framework that takes one; ids begin with its name."""
    return checks(name, _MISTAKES, source="accelerate/utils/dataclasses.py")


CHECKS = (*json_checks("accelerate", trainer=True), *yaml_checks("accelerate"))
