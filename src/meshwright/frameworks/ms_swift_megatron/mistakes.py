"""What ms-swift refuses of settings for Megatron, in its own words, and what it takes although it means something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, equal, other_than
from meshwright.frameworks.compose import Values
from meshwright.frameworks.megatron.mistakes import CHECKS as MEGATRON_CHECKS
from meshwright.frameworks.ms_swift_megatron.generation import GENERATION
from meshwright.frameworks.ms_swift_megatron.names import CORE, NAME, in_its_words, own_id
from meshwright.frameworks.ms_swift_megatron.reading import as_flags, surface
from meshwright.frameworks.rules import At, Mistake, checks, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Check
    from meshwright.frameworks.base import Values as Found
    from meshwright.frameworks.settings import Reading, Severity

_ARGUMENTS = "swift/megatron/arguments/megatron_args.py"
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_BEFORE = {
    "train_type": "tuner_type", "max_epochs": "num_train_epochs", "log_interval": "logging_steps", "eval_interval": "eval_steps",
    "save_interval": "save_steps", "save": "output_dir", "load": "mcore_model", "adapter_load": "mcore_adapter",
    "load_safetensors": "nothing: --model is always read", "no_initialization": "perform_initialization",
    "num_workers": "dataloader_num_workers", "seq_length": "max_length",
    "num_layers_per_virtual_pipeline_stage": "virtual_pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion false", "use_flash_attn": "attention_backend flash",
    "overlap_cpu_optimizer_d2h_h2d": "nothing", "lora_modules": "target_modules",
    "gradient_accumulation_steps": "global_batch_size", "per_device_train_batch_size": "micro_batch_size",
    "deepspeed": "nothing: swift sft has it",
}
"""Name that is none -> what is meant by it: of ms-swift 3 and of Megatron-LM, whose flags these were, or of ``swift sft``."""
_WHOLE = ("recompute_method", "recompute_num_layers", "recompute_modules")


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """The pipeline stops at words that are left; what an earlier version called something is told."""
    if key in _BEFORE:
        return "error", f"remaining_argv: ['--{{key}}'] (here it is {_BEFORE[key]})"
    return "error", "remaining_argv: ['--{key}']"


def asked(reading: Reading) -> Values:
    """The settings of a reading by their types."""
    return Values(source=reading.source, surface=surface(), release=reading.version)


def _is_selective(reading: Reading) -> bool:
    return asked(reading).text("recompute_granularity", "selective") == "selective"


def _is_full(reading: Reading) -> bool:
    return asked(reading).text("recompute_granularity", "selective") == "full"


def _is_off(reading: Reading) -> bool:
    return asked(reading).text("recompute_granularity", "selective") == "none"


def _alone(key: str) -> Callable[[Reading], bool]:
    """Whether a degree is 1, written or not."""
    return lambda reading: asked(reading).int(key, 1) == 1


def _staged(reading: Reading) -> bool:
    return (asked(reading).int("pipeline_model_parallel_size") or 1) > 1


def _not_padded(reading: Reading) -> bool:
    values = asked(reading)
    return values.bool("packing") or values.bool("padding_free", True)


def _unpacked(reading: Reading) -> bool:
    return asked(reading).text("attention_backend", "flash") in {"unfused", "local"}


def _by_bridge(reading: Reading) -> bool:
    return asked(reading).text("tuner_type", "full") != "full"


def _one_queue(reading: Reading, case: Case | None) -> Iterator[Found]:
    """Megatron-FSDP under the one queue that ms-swift sets where nothing is set."""
    setting = reading.source.environment.get(_CONNECTIONS)
    if asked(reading).bool("use_megatron_fsdp") and (setting is None or setting.value in {None, "1"}):
        yield at(setting or reading.source.settings.get("use_megatron_fsdp"), f"export {_CONNECTIONS}=32",
                 said="is 1" if setting is not None and setting.value == "1" else "is not set, so ms-swift sets 1")


def _many_queues(reading: Reading) -> bool:
    values = asked(reading)
    return (values.int("tensor_model_parallel_size") or 1) > 1 and not values.bool("use_megatron_fsdp")


def _is_muon(reading: Reading) -> bool:
    return asked(reading).text("optimizer", "adam") == "muon"


def _other_precision(reading: Reading) -> bool:
    return not asked(reading).bool("bf16")


def _no_length(reading: Reading, case: Case | None) -> Iterator[Found]:
    if reading.layout is not None and not any(reading.source.value(key) is not None for key in ("max_length", "packing_length")):
        yield at(None, "max_length")


def _streams(reading: Reading) -> bool:
    return asked(reading).bool("streaming")


def _mtp(reading: Reading, case: Case | None) -> Iterator[Found]:
    """Layers of multi-token prediction that the model has and the run leaves out."""
    if case is not None and case.model.num_mtp_layers and reading.source.value("mtp_num_layers") is None:
        yield at(None, f"mtp_num_layers {case.model.mtp_passes}", count=case.model.num_mtp_layers)


def _freezes(reading: Reading) -> bool:
    return 0 < (asked(reading).number("freeze_parameters_ratio") or 0) < 1 and _staged(reading)


def _few(reading: Reading) -> Found | None:
    limit = asked(reading).int("save_total_limit")
    return values_if(limit is not None and limit < 2)


_MISTAKES = (
    Mistake("recompute-method", "recompute method is not yet supported for selective recomputing granularity",
            At("recompute_method", "recompute_granularity full", when=_is_selective)),
    Mistake("recompute-modules", "{key} has no effect: recompute_granularity is not selective",
            At("recompute_modules", "recompute_granularity selective", when=lambda reading: not _is_selective(reading)), "warning"),
    Mistake("recompute-none", "{key} has no effect with recompute_granularity none: nothing is recomputed",
            tuple(At(key, "recompute_granularity full", when=_is_off) for key in _WHOLE[:2]), "warning"),
    Mistake("recompute-count", "When using recompute_granularity: selective recompute_num_layers must be None.",
            At("recompute_num_layers", "recompute_granularity full", when=_is_selective)),
    Mistake("recompute-full", "When using recompute_granularity: full recompute_num_layers must be between 1 and "
            "num_layers_per_pipeline_rank", At("recompute_granularity", "recompute_num_layers 1", when=_is_full,
                                               without=("recompute_num_layers",))),
    Mistake("group-by-length", "group_by_length is not compatible with padding_free.",
            At("group_by_length", "padding_free false", other_than(False, "false"), when=_not_padded)),
    Mistake("decoder-layers", "pipeline_model_parallel_size must be greater than 1 if you want to set "
            "decoder_first_pipeline_num_layers or decoder_last_pipeline_num_layers.",
            tuple(At(f"decoder_{end}_pipeline_num_layers", "pipeline_model_parallel_size",
                     when=lambda reading: not _staged(reading)) for end in ("first", "last"))),
    Mistake("tensor-overlap-alone", "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is "
            "enabled", At("tp_comm_overlap", "no tp_comm_overlap", other_than(False, "false"),
               when=_alone("tensor_model_parallel_size"))),
    Mistake("sequence-parallel-alone", "sequence_parallel is off without tensor parallelism: it is set to False without a word",
            At("sequence_parallel", "tensor_model_parallel_size", other_than(False, "false"),
               when=_alone("tensor_model_parallel_size")), "advice"),
    Mistake("virtual-alone", "virtual_pipeline_model_parallel_size 1 is read as None: nothing is interleaved",
            At("virtual_pipeline_model_parallel_size", "2", when=_alone("virtual_pipeline_model_parallel_size")),
            "advice"),
    Mistake("freeze-ratio", "`freeze_parameters_ratio` is not supported when `pipeline_model_parallel_size` > 1",
            At("freeze_parameters_ratio", "freeze_parameters", when=_freezes)),
    Mistake("adapter-bridge", 'LoRA training is not yet supported with bridge_backend="megatron-bridge". Please use '
            'bridge_backend="mcore-bridge" for LoRA, or set tuner_type="full".',
            At("bridge_backend", "mcore-bridge", equal("megatron-bridge"), when=_by_bridge)),
    # Sharding and the optimizer.
    Mistake("connections-fsdp", "Megatron-FSDP requires `CUDA_DEVICE_MAX_CONNECTIONS > 1`, for example you can set "
            "`CUDA_DEVICE_MAX_CONNECTIONS=32`: it {said}", _one_queue),
    Mistake("connections", "several queues let collectives start behind the GEMMs that they should stand before: ms-swift sets 1 "
            "where nothing is set", At(f"${_CONNECTIONS}", "1", other_than("1", None, UNKNOWN), when=_many_queues), "advice"),
    Mistake("fsdp-distributed", "Megatron-FSDP is only compatible with use_distributed_optimizer=True; setting it to True.",
            At("use_distributed_optimizer", "true", when=lambda reading: asked(reading).bool("use_megatron_fsdp")
               and not asked(reading).bool("use_distributed_optimizer", True)), "advice"),
    Mistake("fsdp-optimizer", 'Megatron-FSDP does not support the "{value}" optimizer yet.',
            At("optimizer", "adam", other_than("adam", "sgd"), when=lambda reading: asked(reading).bool("use_megatron_fsdp"))),
    Mistake("strategy-alone", "data_parallel_sharding_strategy does nothing without use_megatron_fsdp",
            At("data_parallel_sharding_strategy", "use_megatron_fsdp true",
               when=lambda reading: not asked(reading).bool("use_megatron_fsdp")), "warning"),
    Mistake("muon-overlap", "Muon optimizer does not support overlap {what}. Use dist_muon instead.",
            tuple(At(key, "dist_muon", other_than(False, "false"), when=_is_muon, values={"what": what})
                  for key, what in (("overlap_grad_reduce", "grad reduce"), ("overlap_param_gather", "param gather")))),
    Mistake("muon-sharding", "with {value} use_distributed_optimizer is switched off without a word: every rank holds all state",
            At("optimizer", "adam", other_than("adam", "sgd"),
               when=lambda reading: asked(reading).bool("use_distributed_optimizer", True)), "warning"),
    Mistake("gather-alone", "overlap_param_gather without overlap_grad_reduce: taken in silence, although Megatron-LM's own flags "
            "refuse it", At("overlap_param_gather", "overlap_grad_reduce true", other_than(False, "false"),
                            when=lambda reading: not asked(reading).bool("overlap_grad_reduce")
                            and asked(reading).bool("overlap_param_gather")), "warning"),
    Mistake("moment-types", "{key} is read with use_precision_aware_optimizer alone: state stays FP32",
            tuple(At(key, "use_precision_aware_optimizer true", other_than("fp32"),
                     when=lambda reading: not asked(reading).bool("use_precision_aware_optimizer"))
                  for key in ("exp_avg_dtype", "exp_avg_sq_dtype", "main_params_dtype")), "warning"),
    # Numbers, data, lengths.
    Mistake("float32", "torch_dtype float32 means fp16 true: nothing here trains in FP32",
            At("torch_dtype", "bfloat16", equal("float32"), when=_other_precision), "warning",
            "swift/arguments/base_args/model_args.py"),
    Mistake("padding", "packing sets padding_free to True, whatever is said",
            At("padding_free", "true", when=lambda reading: asked(reading).bool("packing")
               and not asked(reading).bool("padding_free", True)), "warning", "swift/megatron/arguments/megatron_base_args.py"),
    Mistake("unfused", 'Attention backend "{value}" is not supported in padding-free mode. Setting args.padding_free to False.',
            At("attention_backend", "flash", when=lambda reading: _unpacked(reading) and _not_padded(reading)), "warning",
            "swift/megatron/model/utils.py"),
    Mistake("lazy", "{what} and lazy_tokenize are incompatible.",
            tuple(At("lazy_tokenize", "no lazy_tokenize", other_than(False, "false"), beside=(key,), values={"what": what})
                  for key, what in (("packing", "Packing"), ("streaming", "Streaming"))), source="swift/arguments/base_args"),
    Mistake("streaming", "You are using a streaming training dataset. Please explicitly specify `--train_iters`.",
            At("streaming", "train_iters", without=("train_iters",), when=_streams)),
    Mistake("streaming-epoch", "streaming dataset is not supported with `--save_strategy epoch`.",
            At("save_strategy", "steps", equal("epoch"), when=_streams)),
    Mistake("split", "truncation_strategy split is of megatron pt alone", At("truncation_strategy", "delete", equal("split"),
            when=lambda reading: reading.source.program.endswith(("sft", "rlhf"))), "warning",
            "swift/arguments/base_args/template_args.py"),
    Mistake("length", "max_length is not given: it is the longest that the model takes", _no_length, "warning",
            "swift/arguments/base_args/base_args.py"),
    Mistake("mtp", "the {count} layers of multi-token prediction are left out: mtp_num_layers is never read from config.json", _mtp,
            "advice", "ms-swift, Megatron-SWIFT, Command-line-parameters: mtp_num_layers"),
    Mistake("deepep-alone", "moe_enable_deepep only works with flex token dispatcher: tokens travel by all-to-all",
            At("moe_enable_deepep", "moe_token_dispatcher_type flex", other_than(False, "false"),
               when=lambda reading: asked(reading).text("moe_token_dispatcher_type", "alltoall") != "flex"), "warning"),
    Mistake("saves", "save_total_limit must be greater than or equal to 2.", At("save_total_limit", "2", when=_few)),
    Mistake("async-saves", "async_save is not supported with save_total_limit.",
            At("async_save", "no save_total_limit", other_than(False, "false"), beside=("save_total_limit",))),
    *GENERATION,
)
_BELOW = frozenset({
    "context-sizes", "group-size", "offload-precision-aware", "precision-aware-alone", "parameter-gather-alone",
    "two-precisions", "fp8-and-fp4", "nccl-debug", "nccl-off", "blocking", "segments", "allocator-split", "set-twice",
})
"""Checks of Megatron-LM's flags that hold for what becomes of these settings."""


def _of_core(found: Iterable[Check]) -> Iterator[Check]:
    """Megatron-Core's checks, asked of the flags that say the same."""

    def scoped(check: Check) -> Check:
        def find(reading: Reading, case: Case | None) -> Iterator[Found]:
            below = replace(reading, source=as_flags(asked(reading)), version=CORE)
            for values in check.find(below, case):
                yield {key: in_its_words(value) if isinstance(value, str) and key != "path" else value
                       for key, value in values.items()}

        return structs.replace(check, id=own_id(check.id), words=in_its_words(check.words), find=find)

    yield from (scoped(check) for check in found if check.id.removeprefix("megatron.") in _BELOW)


CHECKS = (*checks(NAME, _MISTAKES, source=_ARGUMENTS), *_of_core(MEGATRON_CHECKS))
