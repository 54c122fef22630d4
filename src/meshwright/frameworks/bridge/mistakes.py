"""What Megatron-Bridge takes although it is wrong, and what its files contradict themselves in (0.3 and main)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.frameworks.asking import differs, place_of
from meshwright.frameworks.rules import file_rule

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

CHECKS: list[Check] = []
_rule = partial(file_rule, CHECKS)
_MISTAKES = "docs/sources.md#accepted-although-wrong"
_CLI = {
    "model.decoder_first_pipeline_num_layers": "model.num_layers_in_first_pipeline_stage",
    "model.decoder_last_pipeline_num_layers": "model.num_layers_in_last_pipeline_stage",
    "model.num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "model.num_experts": "model.num_moe_experts", "model.micro_batch_size": "train.micro_batch_size",
    "model.global_batch_size": "train.global_batch_size",
}
"""Names of Megatron-LM's command line -> Bridge's."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """A recipe's model may have fields of its own; else Hydra refuses a word, and YAML and Python pass in silence."""
    if key.startswith("-") or "." not in key:
        return None
    if key in _CLI:
        return "error", "Key '{key}' in overrides not found in config object. Skipping. " + f"Bridge's name is {_CLI[key]}"
    return "warning", "Key '{key}' in overrides not found in config object. Skipping."


@_rule("bridge.parameter-overlap-key", "overlap_param_gather without overlap_grad_reduce is accepted in silence: Megatron-LM's "
       "flags refuse the same", severity="warning",
       source=f"Megatron-Bridge training/config.py ConfigContainer.validate; {_MISTAKES}")
def _parameter_overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
    for section in ("ddp", "comm_overlap"):
        gather, reduce = f"{section}.overlap_param_gather", f"{section}.overlap_grad_reduce"
        told = section == "ddp" or reduce in reading.source.settings
        if reading.source.value(gather) is True and told and reading.source.value(reduce) is not True:
            yield {"value": True, "expected": False, "path": place_of(reading, gather)}


@_rule("bridge.sequence-length", "Please ensure sequence length configuration in model config and dataset config match. Sequence "
       "length in model config: {model}, Sequence length in dataset config: {data}",
           source="Megatron-Bridge training/config.py validate")
def _sequence_length(reading: Reading, case: Case | None) -> Iterator[Values]:
    model = reading.source.value("model.seq_length")
    for key in ("dataset.sequence_length", "dataset.seq_length"):
        data = reading.source.value(key)
        if isinstance(model, int) and isinstance(data, int) and model != data:
            yield {"model": model, "data": data, "value": data, "expected": model, "path": place_of(reading, key)}


@_rule("bridge.sequence-parallel-key", "Cannot use sequence parallelism without tensor parallelism",
       source="megatron/core/model_parallel_config.py __post_init__")
def _sequence_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value("model.sequence_parallel") is True and reading.source.value("model.tensor_model_parallel_size") == 1:
        yield {"value": True, "expected": False, "path": place_of(reading, "model.sequence_parallel")}


@_rule("bridge.expert-tensor-parallel",
       "expert_tensor_parallel_size is not set, so Megatron-Core takes that of the dense layers, {tp}",
       severity="warning", source="NeMo Speech#14838, Megatron-Bridge#546")
def _expert_tensor_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, ep = (reading.source.value(f"model.{name}_model_parallel_size") for name in ("tensor", "expert"))
    etp = reading.source.value("model.expert_tensor_parallel_size")
    if isinstance(tp, int) and isinstance(ep, int) and tp > 1 and ep > 1 and etp is None:
        yield {"tp": tp, "value": None, "expected": 1, "path": place_of(reading, "model.expert_model_parallel_size")}


@_rule("bridge.pipeline-dtype", "pipeline_dtype is not set with {pp} pipeline stages and no mixed_precision",
       severity="warning", source="Megatron-LM PR 5768 (the usual eight)")
def _pipeline_dtype(reading: Reading, case: Case | None) -> Iterator[Values]:
    pp = reading.source.value("model.pipeline_model_parallel_size")
    explicit = "model.pipeline_dtype" in reading.source.settings and reading.source.value("model.pipeline_dtype") is None
    if isinstance(pp, int) and pp > 1 and explicit and "mixed_precision" not in reading.source.settings:
        yield {"pp": pp, "value": None, "expected": "torch.bfloat16", "path": place_of(reading, "model.pipeline_dtype")}


@_rule("bridge.virtual-alone",
       "virtual_pipeline_model_parallel_size {value} with one pipeline stage", source="megatron/core")
def _virtual_alone(reading: Reading, case: Case | None) -> Iterator[Values]:
    chunks = reading.source.value("model.virtual_pipeline_model_parallel_size")
    if isinstance(chunks, int) and chunks > 1 and reading.source.value("model.pipeline_model_parallel_size") == 1:
        yield {"value": chunks, "expected": None, "path": place_of(reading, "model.virtual_pipeline_model_parallel_size")}


@_rule("bridge.layout-twice",
       "virtual_pipeline_model_parallel_size conflicts with pipeline_model_parallel_layout: {told} is told, the layout "
       "has {found}", source="megatron/core/transformer/transformer_config.py __post_init__")
def _layout_twice(reading: Reading, case: Case | None) -> Iterator[Values]:
    told = reading.source.value("model.virtual_pipeline_model_parallel_size")
    layout = reading.source.value("model.pipeline_model_parallel_layout")
    if reading.layout is not None and layout is not None and isinstance(told, int) and told != reading.layout.virtual_stages:
        yield {"told": told, "found": reading.layout.virtual_stages, "value": told, "expected": reading.layout.virtual_stages,
               "path": place_of(reading, "model.virtual_pipeline_model_parallel_size")}


@_rule("bridge.fsdp-checkpoint", "Megatron FSDP only supports fsdp_dtensor checkpoint format",
       source="Megatron-Bridge training/config.py validate")
def _fsdp_checkpoint(reading: Reading, case: Case | None) -> Iterator[Values]:
    fsdp = True in (reading.source.value("ddp.use_megatron_fsdp"), reading.source.value("dist.use_megatron_fsdp"))
    saved = [key for key in ("checkpoint.save", "checkpoint.load") if reading.source.value(key) is not None]
    if fsdp and saved and reading.source.value("checkpoint.ckpt_format") != "fsdp_dtensor":
        yield {"value": reading.source.value("checkpoint.ckpt_format"), "expected": "fsdp_dtensor",
               "path": place_of(reading, "checkpoint.ckpt_format", *saved)}


@_rule("bridge.fsdp-strategy", "Megatron-FSDP with data_parallel_sharding_strategy {value} shards nothing", severity="warning",
       source="megatron/core/distributed/distributed_data_parallel_config.py")
def _fsdp_strategy(reading: Reading, case: Case | None) -> Iterator[Values]:
    fsdp = True in (reading.source.value("ddp.use_megatron_fsdp"), reading.source.value("dist.use_megatron_fsdp"))
    strategy = reading.source.value("ddp.data_parallel_sharding_strategy")
    if fsdp and strategy in (None, "no_shard"):
        yield {"value": strategy or "no_shard", "expected": "optim_grads_params",
               "path": place_of(reading, "ddp.data_parallel_sharding_strategy",
                   "ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")}


@_rule(
    "bridge.two-fsdp",
    "Using use_megatron_fsdp and use_torch_fsdp2 at the same time is not supported.",
    source="Megatron-Bridge training/config.py validate",
)
def _two_fsdp(reading: Reading, case: Case | None) -> Iterator[Values]:
    if reading.source.value("dist.use_megatron_fsdp") is True and reading.source.value("dist.use_torch_fsdp2") is True:
        yield {"value": True, "expected": False, "path": place_of(reading, "dist.use_torch_fsdp2")}


@_rule("bridge.packed-microbatch",
       "Micro batch size should be 1 when training with packed sequence, but your micro batch size is {value}.",
       source="Megatron-Bridge training/config.py validate")
def _packed_microbatch(reading: Reading, case: Case | None) -> Iterator[Values]:
    size = reading.source.value("train.micro_batch_size")
    packed = (
        reading.source.value("dataset.packed_sequence_specs.packed_sequence_size"),
        reading.source.value("dataset.offline_packing_specs.packed_sequence_size"),
    )
    if isinstance(size, int) and size > 1 and any(isinstance(each, int) and each > 0 for each in packed):
        yield {"value": size, "expected": 1, "path": place_of(reading, "train.micro_batch_size")}


@_rule(
    "bridge.two-packings",
    "in-batch and offline packing exclude each other",
    source="Megatron-Bridge src/megatron/bridge/training/config.py ConfigContainer.validate",
)
def _two_packings(reading: Reading, case: Case | None) -> Iterator[Values]:
    keys = ("dataset.enable_offline_packing", "dataset.enable_in_batch_packing")
    if all(reading.source.value(key) is True for key in keys):
        yield {"value": True, "expected": False, "path": place_of(reading, keys[1])}


@_rule(
    "bridge.peft-checkpoint", "PEFT requires a pretrained checkpoint path", severity="warning",
    source="Megatron-Bridge training/config.py validate",
)
def _peft(reading: Reading, case: Case | None) -> Iterator[Values]:
    peft = [key for key, setting in reading.source.settings.items() if key.startswith("peft.") and setting.value is not None]
    in_script = bool(peft) and not is_script(reading.source.settings[peft[0]].file)
    if in_script and reading.source.value("checkpoint.pretrained_checkpoint") is None:
        yield {"value": None, "expected": "a path", "path": place_of(reading, *peft)}


@_rule("bridge.connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: {reason}", severity="warning",
       source="ROCm/Megatron-LM PR 91; megatron/training/arguments.py")
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    variable: Setting | None = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if variable is None or variable.value is None or reading.layout is None:
        return
    layout = reading.layout
    if layout.zero_stage >= 2 and variable.value == "1":
        yield {"value": "1", "expected": "8", "reason": "FSDP requires more than 1, or unset", "path": variable.place}
    elif layout.zero_stage < 2 and max(layout.tensor_parallel, layout.context_parallel) > 1 and differs(variable, "1"):
        yield {"value": variable.value, "expected": "1", "reason": "tensor and context parallelism want 1 below Blackwell",
               "path": variable.place}
