"""What Megatron-Bridge takes although it is wrong, and what its files contradict themselves in (0.3 and main)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.frameworks.asking import above, at, differs, is_true, place_of
from meshwright.frameworks.bridge.called import call_of
from meshwright.frameworks.bridge.launch_mistakes import RUN_RECIPE, is_packed
from meshwright.frameworks.bridge.teacher import DISTILLATION
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

_STAGES, _CHUNKS = "model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size"
_MISTAKES = "docs/sources.md#accepted-although-wrong"
_CLI = {
    "model.decoder_first_pipeline_num_layers": "model.num_layers_in_first_pipeline_stage",
    "model.decoder_last_pipeline_num_layers": "model.num_layers_in_last_pipeline_stage",
    "model.num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "model.num_experts": "model.num_moe_experts", "model.micro_batch_size": "train.micro_batch_size",
    "model.global_batch_size": "train.global_batch_size",
}
"""Names of Megatron-LM's command line -> Bridge's."""


def _is_text(value: object) -> bool:
    """A kernel's name where a member of Megatron-Core's enumeration should stand."""
    return isinstance(value, str) and "." not in value


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """A recipe's model may have fields of its own; else Hydra refuses a word, and YAML and Python pass in silence."""
    if key.startswith("-") or "." not in key:
        return None
    if key in _CLI:
        return "error", "Key '{key}' in overrides not found in config object. Skipping. " + f"Bridge's name is {_CLI[key]}"
    return "warning", "Key '{key}' in overrides not found in config object. Skipping."


def _parameter_overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
    for section in ("ddp", "comm_overlap"):
        gather, reduce = f"{section}.overlap_param_gather", f"{section}.overlap_grad_reduce"
        told = section == "ddp" or reading.source.setting(reduce) is not None
        if reading.source.value(gather) is True and told and reading.source.value(reduce) is not True:
            yield {"value": True, "expected": False, "path": place_of(reading, gather)}


def _other_length(key: str) -> Callable[[Reading], Values | None]:
    """Whether a length of the data set is another one than the model's: values ``model`` and ``data``."""

    def differ(reading: Reading) -> Values | None:
        call = call_of(reading.source, reading.version)
        if call is not None and call.by_words and reading.version == "main":
            return None  # run_recipe gives the model the length of the data set
        model, data = reading.source.value("model.seq_length"), reading.source.value(key)
        both = isinstance(model, int) and isinstance(data, int)
        return values_if(both and model != data, model=model, data=data, expected=model)

    return differ


def _cut_experts(reading: Reading, case: Case | None) -> Iterator[Values]:
    tp, ep = (reading.source.value(f"model.{name}_model_parallel_size") for name in ("tensor", "expert"))
    etp = reading.source.value("model.expert_tensor_parallel_size")
    cut = reading.version != "main"  # main leaves experts whole by itself
    own = {"tensor_model_parallel_size", "expert_model_parallel_size"} & {key.rpartition(".")[2] for key in reading.source.settings}
    if cut and own and isinstance(tp, int) and isinstance(ep, int) and tp > 1 and ep > 1 and etp is None:
        yield {"tp": tp, "value": None, "expected": 1, "path": place_of(reading, "model.expert_model_parallel_size")}


def _is_one(value: object) -> bool:
    return value == 1


def _is_off(value: object) -> bool:
    return value is False


def _several_stages(reading: Reading) -> Values | None:
    pp = reading.source.value(_STAGES)
    return values_if(isinstance(pp, int) and pp > 1, pp=pp)


def _layout_twice(reading: Reading) -> Values | None:
    told, layout = reading.source.value(_CHUNKS), reading.source.value("model.pipeline_model_parallel_layout")
    if reading.layout is None or layout is None or not isinstance(told, int):
        return None
    found = reading.layout.virtual_stages
    return values_if(told != found, told=told, found=found, expected=found)


def _is_fsdp(reading: Reading) -> bool:
    return True in (reading.source.value("ddp.use_megatron_fsdp"), reading.source.value("dist.use_megatron_fsdp"))


def _fsdp_checkpoint(reading: Reading, case: Case | None) -> Iterator[Values]:
    saved = [key for key in ("checkpoint.save", "checkpoint.load") if reading.source.value(key) is not None]
    kind = reading.source.value("checkpoint.ckpt_format")
    if _is_fsdp(reading) and saved and kind != "fsdp_dtensor":
        yield {"value": kind, "expected": "fsdp_dtensor", "path": place_of(reading, "checkpoint.ckpt_format", *saved)}


def _fsdp_strategy(reading: Reading, case: Case | None) -> Iterator[Values]:
    key = "ddp.data_parallel_sharding_strategy"
    strategy = reading.source.value(key)
    if _is_fsdp(reading) and strategy in (None, "no_shard"):
        place = place_of(reading, key, "ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")
        yield {"value": strategy or "no_shard", "expected": "optim_grads_params", "path": place}


def _recomputed(reading: Reading) -> bool:
    return reading.source.value("model.recompute_granularity") == "full"


def _no_method(reading: Reading) -> bool:
    """Whether nothing says how full recomputation goes: a word of a command line may leave that to a recipe that is not known."""
    method, told = (reading.source.setting(f"model.recompute_{name}") for name in ("method", "granularity"))
    left = told is not None and is_script(told.file) and not reading.source.beneath
    return method.value is None if method is not None else not left


def _no_experts(reading: Reading) -> bool:
    return reading.source.value("model.expert_model_parallel_size", 1) == 1


_SPLITS = ("model.account_for_embedding_in_pipeline_split", "model.account_for_loss_in_pipeline_split",
           "model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage")


def _beside_layout(reading: Reading) -> bool:
    return reading.source.value("model.pipeline_model_parallel_layout") is not None


def _peft(reading: Reading, case: Case | None) -> Iterator[Values]:
    scripts = any(is_script(document.path) for document in reading.source.documents)
    there = reading.source.settings if scripts else {**reading.source.beneath, **reading.source.settings}
    peft = [key for key, setting in there.items() if key.startswith("peft.") and setting.value is not None]
    in_script = bool(peft) and (not scripts or not is_script(there[peft[0]].file))
    if in_script and reading.source.value("checkpoint.pretrained_checkpoint") is None:
        yield {"value": None, "expected": "a path", "path": place_of(reading, *peft)}


def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    variable: Setting | None = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if variable is None or variable.value is None or reading.layout is None:
        return
    layout = reading.layout
    if layout.zero_stage >= 2 and variable.value == "1":
        yield at(variable, "8", reason="FSDP requires more than 1, or unset")
    elif layout.zero_stage < 2 and max(layout.tensor_parallel, layout.context_parallel) > 1 and differs(variable, "1"):
        yield at(variable, "1", reason="tensor and context parallelism want 1 below Blackwell")


CHECKS = checks("bridge", (
    Mistake("parameter-overlap-key", "overlap_param_gather without overlap_grad_reduce is accepted in silence: Megatron-LM's flags "
            "refuse the same", _parameter_overlap, "warning",
            f"Megatron-Bridge training/config.py ConfigContainer.validate; {_MISTAKES}"),
    Mistake("sequence-length", "Please ensure sequence length configuration in model config and dataset config match. Sequence "
            "length in model config: {model}, Sequence length in dataset config: {data}",
            tuple(At(key, when=_other_length(key)) for key in ("dataset.sequence_length", "dataset.seq_length")),
            source="Megatron-Bridge training/config.py validate"),
    Mistake("sequence-parallel-key", "Cannot use sequence parallelism without tensor parallelism",
            At("model.sequence_parallel", False, is_true, beside={"model.tensor_model_parallel_size": _is_one}),
            source="megatron/core/model_parallel_config.py __post_init__"),
    Mistake("expert-tensor-parallel", "expert_tensor_parallel_size is not set, so Megatron-Core takes that of the dense layers, "
            "{tp}", _cut_experts, "warning", "NeMo Speech#14838, Megatron-Bridge#546"),
    Mistake("pipeline-dtype", "pipeline_dtype is not set with {pp} pipeline stages and no mixed_precision",
            At("model.pipeline_dtype", "torch.bfloat16", lambda value: value is None, without=("mixed_precision",),
               when=_several_stages), "warning", "Megatron-LM PR 5768 (the usual eight)"),
    Mistake("virtual-alone", "virtual_pipeline_model_parallel_size {value} with one pipeline stage",
            At(_CHUNKS, None, above(1), beside={_STAGES: _is_one}), source="megatron/core"),
    Mistake("layout-twice", "virtual_pipeline_model_parallel_size conflicts with pipeline_model_parallel_layout: {told} is told, "
            "the layout has {found}", At(_CHUNKS, when=_layout_twice),
            source="megatron/core/transformer/transformer_config.py __post_init__"),
    Mistake("fsdp-checkpoint", "Megatron FSDP only supports fsdp_dtensor checkpoint format", _fsdp_checkpoint,
            source="Megatron-Bridge training/config.py validate"),
    Mistake("fsdp-strategy", "Megatron-FSDP with data_parallel_sharding_strategy {value} shards nothing", _fsdp_strategy, "warning",
            "megatron/core/distributed/distributed_data_parallel_config.py"),
    Mistake("two-fsdp", "Using use_megatron_fsdp and use_torch_fsdp2 at the same time is not supported.",
            At("dist.use_torch_fsdp2", False, is_true, beside={"dist.use_megatron_fsdp": is_true}),
            source="Megatron-Bridge training/config.py validate"),
    Mistake("packed-microbatch", "Micro batch size should be 1 when training with packed sequence, but your micro batch size is "
            "{value}.", At("train.micro_batch_size", 1, above(1), when=is_packed),
            source="Megatron-Bridge training/config.py validate"),
    Mistake("layout-split", "pipeline_model_parallel_layout cannot be set with other pipeline layout arguments: {key} is {value}",
            tuple(At(key, test=bool, when=_beside_layout) for key in _SPLITS),
            source="megatron/core/transformer/transformer_config.py __post_init__"),
    Mistake("recompute-graphs", "full recompute is only supported with full iteration CUDA graph: cuda_graph_impl is {value}",
            At("model.cuda_graph_impl", "none", lambda value: value not in (None, "none", "full_iteration"), when=_recomputed),
            source="megatron/core/transformer/transformer_config.py __post_init__"),
    Mistake("recompute-method", 'Using recompute_granularity: full so recompute_method must be "block" or "uniform"',
            At("model.recompute_granularity", "selective", lambda value: value == "full", when=_no_method),
            source="megatron/core/transformer/transformer_config.py __post_init__"),
    Mistake("expert-overlap-alone", "overlap_moe_expert_parallel_comm is only supported with expert model parallelism",
            At("model.overlap_moe_expert_parallel_comm", False, is_true, when=_no_experts),
            source="megatron/core/transformer/transformer_config.py __post_init__"),
    Mistake("precision-aware", "--use-precision-aware-optimizer only supported with distributed optimizer",
            At("optimizer.use_precision_aware_optimizer", False, is_true,
               beside={"optimizer.use_distributed_optimizer": _is_off, "ddp.use_distributed_optimizer": _is_off}),
            source="megatron/core/optimizer/optimizer_config.py __post_init__"),
    Mistake("attention-text", "attention_backend is the text {value!r}: it does not become a member of AttnBackend, no comparison "
            "holds, and Transformer Engine chooses; say it in Python", At("model.attention_backend", test=_is_text), "warning",
            "Megatron-Bridge training/utils/omegaconf_utils.py _apply_overrides; megatron/core/models/common/language_module"),
    Mistake("two-packings", "in-batch and offline packing exclude each other",
            At("dataset.enable_in_batch_packing", False, is_true, beside={"dataset.enable_offline_packing": is_true}),
            source="Megatron-Bridge src/megatron/bridge/training/config.py ConfigContainer.validate"),
    Mistake("peft-checkpoint", "PEFT requires a pretrained checkpoint path", _peft, "warning", "Megatron-Bridge training/config.py "
            "validate"),
    *RUN_RECIPE,
    *DISTILLATION,
    Mistake("connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: {reason}", _connections, "warning", "ROCm/Megatron-LM PR 91; "
            "megatron/training/arguments.py"),
))
