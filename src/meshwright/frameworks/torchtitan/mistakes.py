"""What torchtitan takes although it is wrong, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import above, at, equal, is_true, other_than
from meshwright.frameworks.rules import At, Mistake, checks, values_if
from meshwright.frameworks.torchtitan.models import OWN_MODULE, RELEASES, configurations, configured, flavours
from meshwright.frameworks.torchtitan.stages import layers_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

OLD, NEW = ("0.2",), ("0.3", "main")
_P, _T = "parallelism.", "training."
RENAMED = {
    "training.batch_size": "training.local_batch_size",
    "training.compile": "compile.enable",
    "training.mode": "activation_checkpoint.mode",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_microbatches": "parallelism.pipeline_parallel_microbatch_size",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "parallelism.pipeline_parallel_split_points": "parallelism.module_fqns_per_model_part",
    "parallelism.pipeline_parallel_microbatches": "parallelism.pipeline_parallel_microbatch_size",
    "float8.enable_float8_linear": "model.converters",
    "float8.enable_fsdp_float8_all_gather": "quantize.linear.float8.enable_fsdp_float8_all_gather",
}
"""Keys of releases before 0.2 -> where their meaning went."""


def unknown_key(key: str, release: str) -> tuple[Severity, str] | None:
    """TOML sections are dataclasses, flags are tyro's: both refuse."""
    if release == "0.2":
        return "error", "Invalid field names in job_config.py: {key}. Please modify your .toml config file"
    return "error", "Unrecognized options: --{key}"


def _registered(reading: Reading, name: str) -> bool:
    """Whether a switch of the training section is on, by a flag or by the registered configuration."""
    key = _T + name
    known = configured(reading.source, reading.version)
    return reading.source.value(key) is True or (
        key not in reading.source.settings and known is not None and known.defaults.get(key) == "true"
    )


def _compiled(reading: Reading) -> bool:
    """Whether the model is compiled, by the files or by the registered configuration."""
    known = configured(reading.source, reading.version)
    defaults = known.defaults if known is not None else {}
    components = reading.source.value("compile.components", defaults.get("compile.components", "model").split(","))
    enabled = reading.source.value("compile.enable", defaults.get("compile.enable") == "true")
    return enabled is True and isinstance(components, (list, tuple)) and "model" in components


def _is_eager(reading: Reading) -> bool:
    return not _compiled(reading)


def _misplaced_experts(reading: Reading) -> Values | None:
    layout = reading.layout
    if layout is None:
        return None
    ranks = layout.optimizer_shards * layout.tensor_parallel
    ways = layout.expert_parallel * (layout.expert_tensor_parallel if layout.expert_parallel > 1 else 1)
    return values_if(ranks % ways, ranks=ranks, expected=ranks)


def _parts(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get(_P + "module_fqns_per_model_part")
    if setting is None or not isinstance(setting.value, (list, tuple)):
        return
    named = [layer for part in setting.value for layer in layers_of(part) or ()]
    layers = case.model.num_layers if case is not None else reading.said.figures.get("layers", len(set(named)))
    if isinstance(layers, int) and sorted(named) != list(range(layers)):
        yield at(setting, layers, layers=layers, value=len(set(named)))


def _has_graphs(reading: Reading) -> bool:
    return not _registered(reading, "disable_cuda_graphs")


def _has_expert_graphs(reading: Reading) -> bool:
    return _has_graphs(reading) and not str(reading.source.value("config", "")).endswith("ep")


def _is_budget(value: object) -> bool:
    return str(value).replace("_", "-") == "memory-budget"


def _is_float8(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any("float8" in str(each) for each in value)


def _converter(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.settings.get("model.converters")
    names = {"float8": "quantize.linear.float8", "mx": "quantize.linear.mx"}
    if setting and isinstance(setting.value, (list, tuple)):
        for each in setting.value:
            if str(each) in names:
                yield at(setting, names[str(each)], value=each)


def _is_sharded_tensor(reading: Reading) -> bool:
    layout = reading.layout
    return layout is not None and layout.tensor_parallel > 1 and layout.optimizer_shards > 1


def _is_few(value: object) -> bool:
    return value is not UNKNOWN and str(value) in {str(few) for few in range(1, 8)}


def _own_script(reading: Reading) -> bool:
    """Whether torchtitan's own script launches, or nothing does that is known."""
    return not reading.source.program or reading.source.program.endswith("run_train.sh")


def _flavour(reading: Reading) -> Values | None:
    name, module = reading.source.value("model.flavor"), str(reading.source.value("model.name", "llama3"))
    known = [name for where, name in flavours("0.2") if where == module]
    odd = known and not str(name).endswith(("_flex", "_varlen", "_irope", "_attn")) and name not in known
    return values_if(odd, expected=known[-1] if known else None, module=module, known=", ".join(known))


def _module(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in ("module", "config"):
        if key not in reading.source.settings and not _own_script(reading):
            yield {"key": key, "expected": f"--{key}"}


def _config(reading: Reading) -> Values | None:
    name, module, known = reading.source.value("config"), reading.source.value("module"), configurations(reading.version)
    listed = [each for each, registered in known.items() if registered.module == module]  # others are not in our table
    special = any(word in str(name) for word in ("float8", "mxfp8", "nvfp4", "lora"))
    odd = listed and module != OWN_MODULE and name not in known and not special
    return values_if(odd, expected=", ".join(listed), module=module)


_GRAPHS = "trainer.py, Trainer.Config._validate_cuda_graphs"
_ASYNC = (_P + "enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
_MISTAKES = (
    Mistake("expert-parallel-silent", "expert_parallel_degree {value} does not divide dp_shard * cp * tp ({ranks}): it is "
            "accepted, and experts are misplaced", At(_P + "expert_parallel_degree", when=_misplaced_experts),
            source="distributed/parallel_dims.py, ParallelDims._validate (checked on main)", releases=("0.2", "0.3")),
    Mistake("parts-incomplete", "module_fqns_per_model_part names {value} layers, once each, of {layers}: the others are left out "
            "without a word", _parts, source="distributed/pipeline_parallel.py, _split_module"),
    Mistake("parts-and-layers", "{value} layers per stage are not used beside module_fqns_per_model_part",
            At(_P + "pipeline_parallel_layers_per_stage", None, other_than(None), beside={_P + "module_fqns_per_model_part": bool}),
            "warning", "distributed/pipeline_parallel.py, pipeline_llm"),
    Mistake("cuda-graphs", "CUDA graphs do not support pipeline parallelism yet. Set --training.disable_cuda_graphs.",
            At(_P + "pipeline_parallel_degree", "--training.disable-cuda-graphs", above(1), when=_has_graphs), source=_GRAPHS,
            releases=NEW),
    Mistake("cuda-graphs-experts", "CUDA graphs support only expert parallel token dispatcher configurations without CPU "
            "synchronization.",
            At(_P + "expert_parallel_degree", "--training.disable-cuda-graphs", above(1), when=_has_expert_graphs), source=_GRAPHS,
            releases=NEW),
    Mistake("async-eager", "Async TP requires 'model' in --compile.components and --compile.enable",
            tuple(At(key, "compile.enable", is_true, when=_is_eager) for key in _ASYNC), source="config, CompileConfig"),
    Mistake("budget-eager", "Memory budget activation checkpointing requires the model to be compiled: set --compile.enable",
            tuple(At(key, "compile.enable", _is_budget, when=_is_eager)
                  for key in ("activation_checkpoint.mode", "activation_checkpoint")), source="trainer.py, Trainer.Config"),
    Mistake("float8-eager", "float8 without torch.compile casts in kernels of its own, which costs more than it saves",
            At("model.converters", "compile.enable", _is_float8, when=_is_eager), "warning", "components/quantization/float8.py",
            releases=OLD),
    Mistake("converter", "model.converters {value} is not registered: since 0.2 it is {expected}", _converter,
            source="protocols/model_converter.py", releases=OLD),
    Mistake("renamed", "{key} is {expected} since 0.2", tuple(At(key, now) for key, now in RENAMED.items()),
            source="config/job_config.py"),
    Mistake("tokenizer-path", "model.tokenizer_path is deprecated: use model.hf_assets_path",
            At("model.tokenizer_path", "model.hf_assets_path", bool), "warning", "config/job_config.py", releases=OLD),
    Mistake("connections", "CUDA_DEVICE_MAX_CONNECTIONS={value} makes FSDP's collectives wait for tensor parallelism's: set 16 or "
            "32", At("$CUDA_DEVICE_MAX_CONNECTIONS", "32", _is_few, when=_is_sharded_tensor), "warning", "torchtitan#1147, PR "
            "4508"),
    Mistake("allocator", "PYTORCH_ALLOC_CONF is not set: expandable_segments:True avoids fragmentation, as run_train.sh does",
            At("", "expandable_segments:True", without=("$PYTORCH_ALLOC_CONF", "$PYTORCH_CUDA_ALLOC_CONF"),
               when=lambda reading: not _own_script(reading)), "advice", "run_train.sh"),
    Mistake("pure-bfloat16", "training.dtype {value}: parameters, gradients and optimizer states are BF16, without an FP32 copy",
            At(_T + "dtype", "float32", equal("bfloat16")), "warning", "config, training.dtype"),
    Mistake("flavour", "{value} is no flavour of {module}: {known}", At("model.flavor", when=_flavour),
            source="protocols/train_spec.py", releases=OLD),
    Mistake("module", "--{key} is required. Example: --module llama3 --config llama3_debugmodel", _module,
            source="config/manager.py", releases=NEW),
    Mistake("config", "Config function '{value}' not found in torchtitan.models.{module}.config_registry.",
            At("config", when=_config), source="config/manager.py", releases=NEW),
)
CHECKS = {release: checks("torchtitan", _MISTAKES, release=release) for release in RELEASES}
