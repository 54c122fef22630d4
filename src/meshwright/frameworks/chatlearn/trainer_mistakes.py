"""What ChatLearn takes of its trainer's keys although it is wrong, or has no effect (commit b7af31a9)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.asking import at, differs
from meshwright.frameworks.chatlearn.asking import degrees_of, is_fsdp, number_of, sequence_of, setting_of
from meshwright.frameworks.chatlearn.deciding import TRAINER
from meshwright.frameworks.chatlearn.packing import padding_multiple, worst_tokens
from meshwright.frameworks.chatlearn.patch import undeclared
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading

TRAINER_CHECKS: list[Check] = []
_rule = partial(file_rule, TRAINER_CHECKS)
_MISTAKES = "docs/sources.md#accepted-although-wrong"
_FSDP_ONLY = ("fsdp_size", "ulysses_sequence_parallel_size", "meta_init", "groupgemm", "gradient_checkpointing", "save_hf")
_MEGATRON_ONLY = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout", "sequence_parallel",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "use_distributed_optimizer", "bf16", "tokenizer_type", "tokenizer_model",
)
_KNOWN_NOT_DECLARED = ("overlap_grad_reduce", "overlap_param_gather")


@_rule("chatlearn.floor-division",
       "num_gpu {world} is no multiple of tp x pp x cp = {replica}: ChatLearn rounds dp down to {dp} and {idle} GPUs "
       "are not accounted for", source=f"ChatLearn configs/megatron_config.py _post_init_impl; {_MISTAKES}")
def _floor_division(reading: Reading, case: Case | None) -> Iterator[Values]:
    world = number_of(reading, f"{TRAINER}.num_gpu", 0)
    tp, pp, cp = degrees_of(reading)
    replica = tp * pp * cp
    if not is_fsdp(reading) and world and replica and world % replica:
        idle = world % replica
        setting = reading.source.settings[f"{TRAINER}.num_gpu"]
        yield at(setting, world - idle, world=world, replica=replica, dp=world // replica, idle=idle, value=world)


@_rule("chatlearn.virtual-stages",
       "virtual_pipeline_model_parallel_size has no effect: Megatron computes it anew and runs without interleaving",
       severity="warning", source=f"ChatLearn models/megatron_module.py; {_MISTAKES}")
def _virtual_stages(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = setting_of(reading, "virtual_pipeline_model_parallel_size")
    if setting is not None and not is_fsdp(reading):
        _, pp, _ = degrees_of(reading)
        chunks = setting.value
        expected = (
            f"pipeline_model_parallel_layout with {pp} x {chunks} cells" if pp > 1 else "pipeline_model_parallel_size above 1"
        )
        yield at(setting, expected, value=chunks)


@_rule("chatlearn.interleaved-data",
       "interleaved pipeline parallelism expected each model chunk to have a data iterator: ChatLearn hands over one "
       "iterator, so {chunks} chunks need the patch of its trainer", severity="advice",
       source="ChatLearn algorithm/grpo_utils/megatron_policy_trainer.py train_step")
def _interleaved_data(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.layout is not None and reading.layout.virtual_stages > 1:
        setting = setting_of(reading, "pipeline_model_parallel_layout") or setting_of(
            reading, "num_virtual_stages_per_pipeline_rank"
        )
        yield {"chunks": reading.layout.virtual_stages, "path": setting.place if setting else ""}


@_rule("chatlearn.packing-limit",
       "a sample may have {sequence} tokens, more than the {worst} that max_token_in_packing {limit} accounts for: "
       "ChatLearn only warns, and the micro-batch is that much larger", severity="warning",
       source=f"ChatLearn algorithm/grpo_utils/packing_utils.py bin_packing; {_MISTAKES}")
def _packing_limit(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = setting_of(reading, "max_token_in_packing")
    sequence = sequence_of(reading)
    if (
        setting is None
        or not isinstance(setting.value, int)
        or not sequence
        or reading.source.value(f"{TRAINER}.packing") is not True
    ):
        return
    tp, _, cp = degrees_of(reading)
    worst = worst_tokens(setting.value, padding_multiple(tp, cp))
    if worst < sequence:
        yield at(setting, sequence, sequence=sequence, worst=worst, limit=setting.value)


@_rule("chatlearn.text-bool",
       "the text {value!r} becomes True: values are cast with bool(), and no text but the empty one is False",
       source="ChatLearn models/megatron_module.py try_convert_to_default_type; docs/sources.md#chatlearn")
def _text_bool(reading: Reading, case: Case | None) -> Iterator[Values]:
    from meshwright.frameworks.chatlearn import surface

    keys = surface().at(reading.version)
    for key, setting in reading.source.settings.items():
        typed = key.startswith((f"{TRAINER}.", "models.ref_policy.")) and key in keys and keys[key].kind == "bool"
        if typed and isinstance(setting.value, str):
            yield {"value": setting.value, "expected": setting.value.lower() in {"true", "yes", "on"}, "path": setting.place}


@_rule("chatlearn.interpolation", "InterpolationKeyError: Interpolation key '{name}' not found (OmegaConf 2.3.1)",
       source="omegaconf 2.3.1 on template/grpo_megatron.yaml; docs/sources.md#chatlearn")
def _interpolation(reading: Reading, case: Case | None) -> Iterator[Values]:
    for remark in reading.source.remarks:
        if remark.id == "chatlearn.interpolation":
            yield {"name": remark.values["name"], "expected": "a number", "path": remark.path}


@_rule("chatlearn.undeclared",
       "{key} is no field of MegatronPolicyTrainerConfig: without the patch that adds it ChatLearn stops with \"got an "
       "unexpected keyword argument\"",
           severity="advice", source="ChatLearn configs/megatron_config.py; docs/sources.md#chatlearn")
def _undeclared(reading: Reading, case: Case | None) -> Iterator[Values]:
    for name in undeclared(reading.source.settings):
        setting = reading.source.settings[f"{TRAINER}.{name}"]
        yield at(setting, None, key=name)


@_rule("chatlearn.gradient-overlap-key",
       "{key} would fail in the second micro-batch (\"Cannot set grad twice\"): ChatLearn never sets no_sync_func",
       source="ChatLearn algorithm/grpo_utils/megatron_policy_trainer.py; docs/sources.md#chatlearn")
def _gradient_overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
    for name in _KNOWN_NOT_DECLARED:
        setting = setting_of(reading, name)
        if setting is not None and setting.value is not False:
            yield at(setting, False, key=name)


@_rule("chatlearn.expert-overlap-key",
       "overlap_moe_expert_parallel_comm cannot run: ChatLearn's forward_step takes no return_schedule_plan",
       source="ChatLearn algorithm/grpo_utils/megatron_utils/train_helper.py forward_step")
def _expert_overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = setting_of(reading, "megatron_model_cfg.overlap_moe_expert_parallel_comm")
    if setting is not None and setting.value is True:
        yield at(setting, False, value=True)


@_rule("chatlearn.backend-key",
       "{key} belongs to the other back end: {owner}.__init__() got an unexpected keyword argument '{key}'",
       source="ChatLearn algorithm/grpo.py GrpoConfig")
def _backend_key(reading: Reading, case: Case | None) -> Iterator[Values]:
    fsdp = is_fsdp(reading)
    for name in _MEGATRON_ONLY if fsdp else _FSDP_ONLY:
        setting = reading.source.settings.get(f"{TRAINER}.{name}")
        if setting is not None:
            owner = "FSDPPolicyTrainerConfig" if fsdp else "MegatronPolicyTrainerConfig"
            yield at(setting, None, key=name, owner=owner)


@_rule("chatlearn.checkpointing",
       "gradient_checkpointing: false has no effect: the FSDP back end always recomputes every layer", severity="warning",
       source="ChatLearn models/fsdp_module.py model_setup")
def _checkpointing(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = setting_of(reading, "gradient_checkpointing")
    if setting is not None and setting.value is False:
        yield at(setting, True, value=False)


@_rule("chatlearn.fsdp-size-key", "fsdp_size {value} has no effect: it is set to all {world} GPUs", severity="warning",
       source="ChatLearn configs/fsdp_config.py _post_init_impl")
def _fsdp_size(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting, world = setting_of(reading, "fsdp_size"), number_of(reading, f"{TRAINER}.num_gpu", 0)
    if setting is not None and isinstance(setting.value, int) and world and setting.value != world:
        yield at(setting, world, world=world)


@_rule("chatlearn.expert-tensor-parallel",
       "expert_tensor_parallel_size is not set, so Megatron takes that of the dense layers, {tp}",
       severity="warning", source=f"Megatron-LM megatron/training/arguments.py; {_MISTAKES}")
def _expert_tensor_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, _, _ = degrees_of(reading)
    experts = number_of(reading, f"{TRAINER}.expert_model_parallel_size", 1) or 1
    if not is_fsdp(reading) and experts > 1 and tp > 1 and setting_of(reading, "expert_tensor_parallel_size") is None:
        yield {"tp": tp, "value": None, "expected": 1}


@_rule("chatlearn.connections",
       "CUDA_DEVICE_MAX_CONNECTIONS is {value}: Megatron-LM demands 1 for tensor and context parallelism", severity="warning",
       source="ChatLearn scripts/base_env.sh; megatron/training/arguments.py")
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, _, cp = degrees_of(reading)
    variable = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if not is_fsdp(reading) and max(tp, cp) > 1 and variable is not None and differs(variable, "1"):
        yield at(variable, "1")
