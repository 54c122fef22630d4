"""What torchtitan takes although it is wrong, and what its launch lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from meshwright.documents.source import UNKNOWN
from meshwright.frameworks.asking import at, count_of
from meshwright.frameworks.base import Check
from meshwright.frameworks.torchtitan.models import OWN_MODULE, RELEASES, configurations, flavours
from meshwright.frameworks.torchtitan.stages import layers_of

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading, Severity

Finder: TypeAlias = "Callable[[Reading, Case | None], Iterator[Values]]"
_FOUND: dict[str, list[Check]] = {release: [] for release in RELEASES}
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


def _rule(
    name: str, words: str, *, source: str, severity: Severity = "error", releases: tuple[str, ...] = RELEASES
) -> Callable[[Finder], Finder]:
    """A decorator that adds a check to some releases."""

    def add(find: Finder) -> Finder:
        for release in releases:
            _FOUND[release].append(Check(id=f"torchtitan.{name}", words=words, severity=severity, source=source, find=find))
        return find

    return add


def _setting(reading: Reading, key: str) -> Setting | None:
    return reading.source.settings.get(key)


@_rule("expert-parallel-silent", "expert_parallel_degree {value} does not divide dp_shard * cp * tp ({ranks}): it is "
       "accepted, and experts are misplaced",
       source="distributed/parallel_dims.py, ParallelDims._validate (checked on main)", releases=("0.2", "0.3"))
def _expert_parallel(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting, layout = _setting(reading, _P + "expert_parallel_degree"), reading.layout
    if setting is None or layout is None:
        return
    ranks = layout.optimizer_shards * layout.tensor_parallel
    ways = layout.expert_parallel * (layout.expert_tensor_parallel if layout.expert_parallel > 1 else 1)
    if ranks % ways:
        yield at(setting, ranks, ranks=ranks)


@_rule("parts-incomplete", "module_fqns_per_model_part names {value} layers, once each, of {layers}: the others are left out "
       "without a word",
       source="distributed/pipeline_parallel.py, _split_module")
def _parts(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, _P + "module_fqns_per_model_part")
    if setting is None or not isinstance(setting.value, (list, tuple)):
        return
    named = [layer for part in setting.value for layer in layers_of(part) or ()]
    layers = case.model.num_layers if case is not None else reading.said.figures.get("layers", len(set(named)))
    if isinstance(layers, int) and sorted(named) != list(range(layers)):
        yield at(setting, layers, layers=layers, value=len(set(named)))


@_rule("parts-and-layers", "{value} layers per stage are not used beside module_fqns_per_model_part", severity="warning",
       source="distributed/pipeline_parallel.py, pipeline_llm")
def _parts_and_layers(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, _P + "pipeline_parallel_layers_per_stage")
    if setting and setting.value is not None and reading.source.value(_P + "module_fqns_per_model_part"):
        yield at(setting, None)


@_rule("cuda-graphs", "CUDA graphs do not support pipeline parallelism yet. Set --training.disable_cuda_graphs.",
       source="trainer.py, Trainer.Config._validate_cuda_graphs", releases=NEW)
def _cuda_graphs(reading: Reading, case: Case | None) -> Iterator[Values]:
    degree = _setting(reading, _P + "pipeline_parallel_degree")
    if degree and count_of(reading, degree.key, 1) > 1 and not _registered(reading, "disable_cuda_graphs"):
        yield at(degree, "--training.disable-cuda-graphs")


@_rule("cuda-graphs-experts", "CUDA graphs support only expert parallel token dispatcher configurations without CPU "
       "synchronization.",
       source="trainer.py, Trainer.Config._validate_cuda_graphs", releases=NEW)
def _cuda_graphs_experts(reading: Reading, case: Case | None) -> Iterator[Values]:
    degree, config = _setting(reading, _P + "expert_parallel_degree"), str(reading.source.value("config", ""))
    if (
        degree
        and count_of(reading, degree.key, 1) > 1
        and not _registered(reading, "disable_cuda_graphs")
        and not config.endswith("ep")
    ):
        yield at(degree, "--training.disable-cuda-graphs")


def _registered(reading: Reading, name: str) -> bool:
    """Whether a switch of the training section is on, by a flag or by the registered configuration."""
    key = _T + name
    known = configurations(reading.version).get(str(reading.source.value("config", "")))
    return reading.source.value(key) is True or (
        key not in reading.source.settings and known is not None and known.defaults.get(key) == "true"
    )


def _compiled(reading: Reading) -> bool:
    """Whether the model is compiled, by the files or by the registered configuration."""
    known = configurations(reading.version).get(str(reading.source.value("config", "")))
    defaults = known.defaults if known is not None else {}
    components = reading.source.value("compile.components", defaults.get("compile.components", "model").split(","))
    enabled = reading.source.value("compile.enable", defaults.get("compile.enable") == "true")
    return enabled is True and isinstance(components, (list, tuple)) and "model" in components


@_rule("async-eager", "Async TP requires 'model' in --compile.components and --compile.enable", source="config, CompileConfig")
def _async_eager(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in (_P + "enable_async_tensor_parallel", "compile.enable_async_tensor_parallel"):
        setting = _setting(reading, key)
        if setting and setting.value is True and not _compiled(reading):
            yield at(setting, "compile.enable")


@_rule("budget-eager", "Memory budget activation checkpointing requires the model to be compiled: set --compile.enable",
       source="trainer.py, Trainer.Config")
def _budget_eager(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in ("activation_checkpoint.mode", "activation_checkpoint"):
        setting = _setting(reading, key)
        if setting and str(setting.value).replace("_", "-") == "memory-budget" and not _compiled(reading):
            yield at(setting, "compile.enable")


@_rule("float8-eager", "float8 without torch.compile casts in kernels of its own, which costs more than it "
       "saves", severity="warning",
       source="components/quantization/float8.py", releases=OLD)
def _float8_eager(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, "model.converters")
    if (
        setting
        and isinstance(setting.value, (list, tuple))
        and any("float8" in str(each) for each in setting.value)
        and not _compiled(reading)
    ):
        yield at(setting, "compile.enable")


@_rule(
    "converter",
    "model.converters {value} is not registered: since 0.2 it is {expected}",
    source="protocols/model_converter.py",
    releases=OLD,
)
def _converter(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, "model.converters")
    names = {"float8": "quantize.linear.float8", "mx": "quantize.linear.mx"}
    if setting and isinstance(setting.value, (list, tuple)):
        for each in setting.value:
            if str(each) in names:
                yield at(setting, names[str(each)], value=each)


@_rule("renamed", "{key} is {expected} since 0.2", source="config/job_config.py")
def _renamed(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key, now in RENAMED.items():
        if setting := _setting(reading, key):
            yield at(setting, now, key=key)


@_rule(
    "tokenizer-path",
    "model.tokenizer_path is deprecated: use model.hf_assets_path",
    severity="warning",
    source="config/job_config.py",
    releases=OLD,
)
def _tokenizer_path(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, "model.tokenizer_path")
    if setting and setting.value:
        yield at(setting, "model.hf_assets_path")


@_rule("connections", "CUDA_DEVICE_MAX_CONNECTIONS={value} makes FSDP's collectives wait for tensor parallelism's: "
       "set 16 or 32", severity="warning",
       source="torchtitan#1147, PR 4508")
def _connections(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    layout = reading.layout
    both = layout is not None and layout.tensor_parallel > 1 and layout.optimizer_shards > 1
    if both and setting is not None and setting.value is not UNKNOWN and str(setting.value) in {str(few) for few in range(1, 8)}:
        yield at(setting, "32")


@_rule("allocator", "PYTORCH_ALLOC_CONF is not set: expandable_segments:True avoids fragmentation, as "
       "run_train.sh does", severity="advice",
       source="run_train.sh")
def _allocator(reading: Reading, case: Case | None) -> Iterator[Values]:
    source = reading.source
    own = source.program.endswith("run_train.sh")
    if source.program and not own and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(source.environment):
        yield {"value": None, "expected": "expandable_segments:True"}


@_rule("pure-bfloat16", "training.dtype {value}: parameters, gradients and optimizer states are BF16, without an "
       "FP32 copy", severity="warning",
       source="config, training.dtype")
def _pure_bfloat16(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _setting(reading, _T + "dtype")
    if setting and setting.value == "bfloat16":
        yield at(setting, "float32")


@_rule("flavour", "{value} is no flavour of {module}: {known}", source="protocols/train_spec.py", releases=OLD)
def _flavour(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting, module = _setting(reading, "model.flavor"), str(reading.source.value("model.name", "llama3"))
    known = [name for where, name in flavours("0.2") if where == module]
    special = ("_flex", "_varlen", "_irope", "_attn")
    if setting and known and not str(setting.value).endswith(special) and setting.value not in known:
        yield at(setting, known[-1], module=module, known=", ".join(known))


@_rule(
    "module", "--{key} is required. Example: --module llama3 --config llama3_debugmodel", source="config/manager.py", releases=NEW
)
def _module(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key in ("module", "config"):
        if reading.source.program and key not in reading.source.settings and not reading.source.program.endswith("run_train.sh"):
            yield {"key": key, "expected": f"--{key}"}


@_rule(
    "config",
    "Config function '{value}' not found in torchtitan.models.{module}.config_registry.",
    source="config/manager.py",
    releases=NEW,
)
def _config(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting, module = _setting(reading, "config"), reading.source.value("module")
    known = configurations(reading.version)
    listed = any(each.module == module for each in known.values())  # others are not in our table
    special = ("float8", "mxfp8", "nvfp4", "lora")
    if (
        setting
        and listed
        and module != OWN_MODULE
        and setting.value not in known
        and not any(word in str(setting.value) for word in special)
    ):
        yield at(setting, ", ".join(name for name, each in known.items() if each.module == module), module=module)


CHECKS: dict[str, tuple[Check, ...]] = {release: tuple(found) for release, found in _FOUND.items()}
