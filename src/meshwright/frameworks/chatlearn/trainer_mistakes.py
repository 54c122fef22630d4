"""What ChatLearn takes of its trainer's keys although it is wrong, or has no effect (commit b7af31a9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, differs, is_false, is_true, other_than
from meshwright.frameworks.chatlearn.asking import (
    degrees_of,
    is_fsdp,
    is_megatron,
    number_of,
    rank_samples,
    sequence_of,
    setting_of,
)
from meshwright.frameworks.chatlearn.deciding import TRAINER
from meshwright.frameworks.chatlearn.packing import padding_multiple, worst_tokens, written_for
from meshwright.frameworks.chatlearn.patch import FIELDS
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

_WORLD = f"{TRAINER}.num_gpu"
_MISTAKES = "docs/sources.md#accepted-although-wrong"
_FSDP_ONLY = ("fsdp_size", "ulysses_sequence_parallel_size", "meta_init", "groupgemm", "gradient_checkpointing", "save_hf")
_MEGATRON_ONLY = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout", "sequence_parallel",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "use_distributed_optimizer", "bf16", "tokenizer_type", "tokenizer_model",
)
_KNOWN_NOT_DECLARED = ("overlap_grad_reduce", "overlap_param_gather")


def _key(name: str) -> str:
    return f"{TRAINER}.{name}"


def _floor_division(reading: Reading) -> Values | None:
    world, (tp, pp, cp) = number_of(reading, _WORLD, 0), degrees_of(reading)
    replica = tp * pp * cp
    if is_fsdp(reading) or not world or not replica or world % replica == 0:
        return None
    idle = world % replica
    return {"world": world, "replica": replica, "dp": world // replica, "idle": idle, "value": world, "expected": world - idle}


def _virtual_stages(reading: Reading) -> Values | None:
    _, pp, _ = degrees_of(reading)
    chunks = reading.source.value(_key("virtual_pipeline_model_parallel_size"))
    several = f"pipeline_model_parallel_layout with {pp} x {chunks} cells"
    return values_if(is_megatron(reading), expected=several if pp > 1 else "pipeline_model_parallel_size above 1")


def _interleaved_data(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.layout is not None and reading.layout.virtual_stages > 1:
        names = ("pipeline_model_parallel_layout", "num_virtual_stages_per_pipeline_rank")
        setting = setting_of(reading, names[0]) or setting_of(reading, names[1])
        yield {"chunks": reading.layout.virtual_stages, "path": setting.place if setting else ""}


def _packing_limit(reading: Reading) -> Values | None:
    limit, sequence = reading.source.value(_key("max_token_in_packing")), sequence_of(reading)
    if not isinstance(limit, int) or not sequence or reading.source.value(_key("packing")) is not True:
        return None
    tp, _, cp = degrees_of(reading)
    multiple, layout = padding_multiple(tp, cp), reading.layout
    planned = layout is not None and written_for(limit, sequence, rank_samples(reading, layout), multiple) is not None
    worst = worst_tokens(limit, multiple)
    return values_if(worst < sequence and not planned, sequence=sequence, worst=worst, limit=limit, expected=sequence)


def _text_bool(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.frameworks.chatlearn import surface

    keys = surface().at(reading.version)
    for key, setting in reading.source.settings.items():
        typed = key.startswith((f"{TRAINER}.", "models.ref_policy.")) and key in keys and keys[key].kind == "bool"
        if typed and isinstance(setting.value, str):
            yield at(setting, setting.value.lower() in {"true", "yes", "on"})


def _interpolation(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "chatlearn.interpolation":
            yield {"name": remark.values["name"], "expected": "a number", "path": remark.path}


def _is_asked_for(value: object) -> bool:
    return value is not None and value is not False


def _fsdp_size(reading: Reading) -> Values | None:
    size, world = reading.source.value(_key("fsdp_size")), number_of(reading, _WORLD, 0)
    return values_if(isinstance(size, int) and world and size != world, world=world, expected=world)


def _cut_experts(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, _, _ = degrees_of(reading)
    experts = number_of(reading, _key("expert_model_parallel_size"), 1) or 1
    if is_megatron(reading) and experts > 1 and tp > 1 and setting_of(reading, "expert_tensor_parallel_size") is None:
        yield {"tp": tp, "value": None, "expected": 1}


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, _, cp = degrees_of(reading)
    variable = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if is_megatron(reading) and max(tp, cp) > 1 and variable is not None and differs(variable, "1"):
        yield at(variable, "1")


def _backend_keys(names: tuple[str, ...], owner: str, when: Callable[[Reading], bool]) -> Iterator[At]:
    """Keys of one back end in files that choose the other."""
    return (At(_key(name), when=when, values={"key": name, "owner": owner}) for name in names)


TRAINER_CHECKS = checks("chatlearn", (
    Mistake("floor-division", "num_gpu {world} is no multiple of tp x pp x cp = {replica}: ChatLearn rounds dp down to {dp} and "
            "{idle} GPUs are not accounted for", At(_WORLD, when=_floor_division),
            source=f"ChatLearn configs/megatron_config.py _post_init_impl; {_MISTAKES}"),
    Mistake("virtual-stages", "virtual_pipeline_model_parallel_size has no effect: Megatron computes it anew and runs without "
            "interleaving", At(_key("virtual_pipeline_model_parallel_size"), None, other_than(None), when=_virtual_stages),
            "warning", f"ChatLearn models/megatron_module.py; {_MISTAKES}"),
    Mistake("interleaved-data", "interleaved pipeline parallelism expected each model chunk to have a data iterator: ChatLearn "
            "hands over one iterator, so {chunks} chunks need the patch of its trainer", _interleaved_data, "advice", "ChatLearn "
            "algorithm/grpo_utils/megatron_policy_trainer.py train_step"),
    Mistake("packing-limit", "a sample may have {sequence} tokens, more than the {worst} that max_token_in_packing {limit} "
            "accounts for: ChatLearn only warns, and the micro-batch is that much larger",
            At(_key("max_token_in_packing"), when=_packing_limit), "warning",
            f"ChatLearn algorithm/grpo_utils/packing_utils.py bin_packing; {_MISTAKES}"),
    Mistake("text-bool", "the text {value!r} becomes True: values are cast with bool(), and no text but the empty one is False",
            _text_bool, source="ChatLearn models/megatron_module.py try_convert_to_default_type; docs/sources.md#chatlearn"),
    Mistake("interpolation", "InterpolationKeyError: Interpolation key '{name}' not found (OmegaConf 2.3.1)", _interpolation,
            source="omegaconf 2.3.1 on template/grpo_megatron.yaml; docs/sources.md#chatlearn"),
    Mistake("undeclared", "{key} is no field of MegatronPolicyTrainerConfig: without the patch that adds it ChatLearn stops with "
            '"got an unexpected keyword argument"', tuple(At(_key(name), values={"key": name}) for name in FIELDS), "advice",
            "ChatLearn configs/megatron_config.py; docs/sources.md#chatlearn"),
    Mistake("gradient-overlap-key", '{key} would fail in the second micro-batch ("Cannot set grad twice"): ChatLearn never sets '
            "no_sync_func", tuple(At(_key(name), False, _is_asked_for, values={"key": name}) for name in _KNOWN_NOT_DECLARED),
            source="ChatLearn algorithm/grpo_utils/megatron_policy_trainer.py; docs/sources.md#chatlearn"),
    Mistake("expert-overlap-key", "overlap_moe_expert_parallel_comm cannot run: ChatLearn's forward_step takes no "
            "return_schedule_plan", At(_key("megatron_model_cfg.overlap_moe_expert_parallel_comm"), False, is_true),
            source="ChatLearn algorithm/grpo_utils/megatron_utils/train_helper.py forward_step"),
    Mistake("backend-key", "{key} belongs to the other back end: {owner}.__init__() got an unexpected keyword argument '{key}'",
            (*_backend_keys(_MEGATRON_ONLY, "FSDPPolicyTrainerConfig", is_fsdp),
                *_backend_keys(_FSDP_ONLY, "MegatronPolicyTrainerConfig", is_megatron)),
            source="ChatLearn algorithm/grpo.py GrpoConfig"),
    Mistake("checkpointing", "gradient_checkpointing: false has no effect: the FSDP back end always recomputes every layer",
            At(_key("gradient_checkpointing"), True, is_false), "warning", "ChatLearn models/fsdp_module.py model_setup"),
    Mistake("fsdp-size-key", "fsdp_size {value} has no effect: it is set to all {world} GPUs",
            At(_key("fsdp_size"), when=_fsdp_size), "warning", "ChatLearn configs/fsdp_config.py _post_init_impl"),
    Mistake("expert-tensor-parallel", "expert_tensor_parallel_size is not set, so Megatron takes that of the dense layers, {tp}",
            _cut_experts, "warning", f"Megatron-LM megatron/training/arguments.py; {_MISTAKES}"),
    Mistake("connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: Megatron-LM demands 1 for tensor and context parallelism",
            _connections, "warning", "ChatLearn scripts/base_env.sh; megatron/training/arguments.py"),
))
