"""LLaMA-Factory's training YAML, and the engine's file and launch script beside it, as a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.naming import launches, name_of
from meshwright.documents.source import UNKNOWN
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.domain.training import Lora
from meshwright.frameworks.accelerate import reading as accelerate
from meshwright.frameworks.accelerate.writing import FSDP, MESH
from meshwright.frameworks.adapters import HUB_PROJECTIONS, adapters_of
from meshwright.frameworks.compose import Values, data_parallel_of, zero_shards
from meshwright.frameworks.deepspeed import reading as deepspeed
from meshwright.frameworks.deepspeed.json_config import (
    AUTO,
    gradient_dtype_of,
    offload_of,
    shards_of,
    stage_of,
    with_shards,
)
from meshwright.frameworks.llama_factory_hf.sources import ACCELERATE, DEEPSPEED, engine_part, names_configuration
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.documents.source import Source
    from meshwright.domain.training import Task

NAME = "llama-factory-hf"
CUTOFF_TOKENS, MICROBATCH, RANK = 2048, 8, 8
"""``cutoff_len``, ``per_device_train_batch_size`` and ``lora_rank`` where they are not said."""
MEGATRON = {
    "USE_MCA": " through mcore_adapter, whose keys are not read",
    "USE_MEGATRON_BRIDGE": ": read it with --from llama-factory-megatron",
}
"""Variable that hands the training to Megatron -> what to do."""
_TRUE = {"true", "1", "y", "yes", "on"}
_OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw_apex_fused": "adamw",
    "adamw_8bit": "adamw-8bit", "adamw_bnb_8bit": "adamw-8bit", "paged_adamw_8bit": "adamw-8bit", "sgd": "sgd",
}
"""``optim`` -> optimizer of the catalogue."""
_OTHER_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")


class Sharding(Struct, frozen=True, kw_only=True):
    """What an engine's file says."""

    tensor_parallel: int
    shards: Mapping[str, int]
    offload: tuple[str, ...] = ()
    overlap: Overlap
    recomputes: bool = False
    gradient_dtype: str | None = None


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as LLaMA-Factory understands it: replicas follow from the devices."""
    from meshwright.frameworks.llama_factory_hf.surfaces import surface

    missing = names_configuration(source)
    if missing is not None:  # no default is passed off as theirs
        said = Said(devices=given.num_devices or source.devices)
        return Reading(framework=NAME, version=release, source=source, said=said, messages=(missing,))
    source = _filled_in(source)
    values = Values(source=source, surface=surface(), release=release)
    json, yaml = json_values(source), yaml_values(source)
    world = given.num_devices or yaml.int("num_processes") or source.devices
    _refuse(values, yaml, world)
    mb, steps = values.degree("per_device_train_batch_size", MICROBATCH), values.degree("gradient_accumulation_steps")
    tp = max(1, json.int("tensor_parallel.autotp_size") or 1) if json.source.settings else 1
    dp = data_parallel_of(values, world, tp)
    layout = total = None
    sharding = None if dp is None else _sharding(json, yaml, dp, tp, given)
    if dp is not None and sharding is not None:
        total = mb * steps * dp
        layout = with_shards(Layout(
            tensor_parallel=tp, data_parallel=dp, microbatch_sequences=mb, num_microbatches=steps, offload=sharding.offload,
            recompute=Full() if sharding.recomputes or not values.bool("disable_gradient_checkpointing") else NoRecompute(),
            compiled=True if _compiles(values) else None, overlap=sharding.overlap,
            attention="math" if values.text("flash_attn") == "disabled" else None,
        ), sharding.shards)
    said = Said(
        devices=world, global_batch_sequences=total, sequence_tokens=values.int("cutoff_len", CUTOFF_TOKENS),
        precision=_precision(values), optimizer=_optimizer(values), task=task_of(values),
        gradient_dtype=sharding.gradient_dtype if sharding is not None else None,
    )
    broken = bool(values.messages or json.messages or yaml.messages)
    said = replace(said, lora=lora_of(values, given))  # adapters that nobody knows change no layout
    return Reading(
        framework=NAME, version=release, source=source, said=said, layout=None if broken else layout,
        messages=(*values.messages, *json.messages, *yaml.messages),
    )


def _filled_in(source: Source) -> Source:
    """The source with ``auto`` in DeepSpeed's settings as what it is: filled in when the job runs."""
    settings = {
        key: replace(setting, value=UNKNOWN) if setting.value == AUTO and key.startswith(DEEPSPEED) else setting
        for key, setting in source.settings.items()
    }
    return replace(source, settings=settings)


def json_values(source: Source) -> Values:
    """DeepSpeed's settings, where LLaMA-Factory is told to use them."""
    from meshwright.frameworks.deepspeed import DEEPSPEED as ENGINE
    from meshwright.frameworks.deepspeed import surface

    return Values(source=engine_part(source, DEEPSPEED), surface=surface(), release=ENGINE.version)


def yaml_values(source: Source) -> Values:
    """accelerate's settings."""
    from meshwright.frameworks.accelerate import ACCELERATE as ENGINE
    from meshwright.frameworks.accelerate import surface

    part = accelerate.canonical(engine_part(source, ACCELERATE), surface())
    return Values(source=part, surface=surface(), release=ENGINE.version)


def stage(source: Source) -> int:
    """The ZeRO stage of DeepSpeed's settings; 0 without them."""
    return stage_of(json_values(source))


def task_of(values: Values) -> Task | None:
    """What is trained: LoRA and supervised fine-tuning where nothing is said."""
    if values.text("finetuning_type", "lora") == "lora":
        return "lora"
    return {"pt": "pretrain", "sft": "sft"}.get(values.text("stage", "sft"))  # type: ignore[return-value]


def lora_of(values: Values, given: Given) -> Lora | None:
    """Rank and places of adapters; of a mixture those at attention are all that a plan has at its expert layers."""
    if task_of(values) != "lora":
        return None
    modules = values.text("lora_target", "all").replace(" ", "").split(",")
    lora = adapters_of(values, "lora_target", values.degree("lora_rank", RANK), modules, HUB_PROJECTIONS)
    attends = lora is not None and set(lora.targets) == set(Lora().targets) - {"mlp"}
    return replace(lora, targets=Lora().targets) if lora and attends and given.model and given.model.is_moe else lora


def _sharding(json: Values, yaml: Values, dp: int, tp: int, given: Given) -> Sharding:
    """What shards: DeepSpeed, accelerate's FSDP, or nothing."""
    if json.source.settings:
        return Sharding(
            tensor_parallel=tp, shards=shards_of(json, dp), offload=offload_of(json), overlap=deepspeed.overlap_of(json),
            gradient_dtype=gradient_dtype_of(json),
        )
    engine = yaml.text("distributed_type")
    level = accelerate.stage_of(yaml, engine)
    is_fsdp = engine == "FSDP"
    return Sharding(
        tensor_parallel=1, shards=accelerate.shards_of(yaml, level, dp, 1, given) if is_fsdp else zero_shards(0, dp),
        offload=("optimizer",) if is_fsdp and yaml.bool(f"{FSDP}offload_params") else (),
        overlap=Overlap(gradient_reduce=True, parameter_gather=level >= 2, tensor=False, point_to_point=False, expert=False),
        recomputes=is_fsdp and yaml.bool(f"{FSDP}activation_checkpointing"),
    )


def _refuse(values: Values, yaml: Values, world: int | None) -> None:
    """What makes a layout impossible here."""
    source = values.source
    if world is None:
        values.refuse(
            "import.devices", "the files do not say how many devices there are (NNODES and NPROC_PER_NODE of the launch, "
            "num_processes of accelerate): give --devices, or --cluster",
        )
    for name, how in MEGATRON.items():
        variable = source.environment.get(name)
        if variable is not None and str(variable.value).lower() in _TRUE:
            values.refuse("llama-factory-hf.megatron", "{name} hands the training to Megatron{how}", name=name, how=how)
    if (kind := values.text("stage", "sft")) not in {"pt", "sft"}:
        values.note("stage", "llama-factory-hf.stage", "stage {stage} trains on pairs or on samples of its own: what a step of it "
                    "takes is not predicted", stage=kind)
    if (kind := values.text("finetuning_type", "lora")) not in {"full", "lora"}:
        values.note("finetuning_type", "llama-factory-hf.method", "finetuning_type {method} trains a part of the weights: only "
                    "full and lora are predicted", method=kind)
    _refuse_engines(values, yaml)


def _refuse_engines(values: Values, yaml: Values) -> None:
    """Engines that contradict each other, or that are named without their file."""
    source, engine = values.source, yaml.text("distributed_type")
    named = source.value("deepspeed")
    settled = any(key.startswith(DEEPSPEED) for key in source.settings)
    if named not in (None, "", False) and not settled:
        values.refuse("import.config-file", "{key} names {name}, where the layout stands: give that file as well",
                      key="deepspeed", name="a file that only the run knows" if named is UNKNOWN else named)
    beside = engine_part(source, DEEPSPEED).documents
    if named is None and beside:
        values.refuse("llama-factory-hf.unnamed", "{path} has no effect: nothing names it (deepspeed: {path})", path=beside[0].path)
    for launch in launches(source):
        named_by_launch = launch.shell.launch.launcher_options.get("config-file")
        if launch.shell.launch.launcher == "accelerate" and not engine:
            name = name_of(named_by_launch) if named_by_launch is not None else None
            values.refuse("import.config-file", "{key} names {name}, where the layout stands: give that file as well",
                          key="accelerate launch", name=name or "a file of its own cache")
    accelerate.refuse_options(values)
    if engine and (named is not None or settled):
        values.refuse("llama-factory-hf.engines", "deepspeed and accelerate's {engine} are two engines: leave one out",
                      engine=engine)
    if engine == "DEEPSPEED":
        values.refuse("llama-factory-hf.accelerate-deepspeed", "distributed_type DEEPSPEED: name DeepSpeed's JSON by the key "
                      "deepspeed of the training YAML instead")
    elif engine and engine not in {"FSDP", "NO"} and not engine.startswith("MULTI_"):
        values.refuse("accelerate.engine", "distributed_type {engine} is no training on accelerators that is known here",
                      engine=engine)
    if values.source.value("fsdp"):
        values.note("fsdp", "llama-factory-hf.fsdp", "fsdp of the Trainer is not read: give accelerate's YAML")
    if values.bool("use_hyper_parallel"):
        values.note("use_hyper_parallel", "llama-factory-hf.hyper-parallel", "use_hyper_parallel brings an engine of its own, "
                    "which is not read")
    for key in ("tp_size", "cp_size", "sp_size"):
        if (yaml.int(f"{MESH}{key}") or 1) > 1:
            values.refuse("llama-factory-hf.mesh", "LLaMA-Factory's Trainer knows no {key} of a parallelism_config", key=key)


def _compiles(values: Values) -> bool:
    """torch.compile, which a back end or a mode switches on as well."""
    return values.bool("torch_compile") or bool(values.text("torch_compile_backend") or values.text("torch_compile_mode"))


def _precision(values: Values) -> str | None:
    """bf16 or fp16; None where it is FP32."""
    if values.bool("bf16") or values.bool("pure_bf16"):
        return "bf16"
    return "fp16" if values.bool("fp16") else None


def _optimizer(values: Values) -> str | None:
    """The optimizer of the catalogue; None for those that only LLaMA-Factory has."""
    if any(values.bool(key) for key in _OTHER_OPTIMIZERS):
        return None
    return _OPTIMIZERS.get(values.text("optim", "adamw_torch"))
