"""accelerate's YAML, and the launch script beside it, as a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.naming import launches
from meshwright.documents.source import Setting, Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.frameworks.accelerate.writing import BACKEND, FSDP, GRID, MESH
from meshwright.frameworks.compose import Values, data_parallel_of, zero_shards
from meshwright.frameworks.deepspeed.json_config import with_shards, without_auto
from meshwright.frameworks.deepspeed.reading import LENGTHS
from meshwright.frameworks.keys import told
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.surface import Surface

FSDP1 = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "HYBRID_SHARD_ZERO2": 2, "NO_SHARD": 0}
"""Strategy of FSDP1, or its number -> ZeRO stage."""
_NUMBERS = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}
ENGINE_OPTIONS = ("fsdp", "parallelism-config", "zero-stage", "use-fsdp", "use-deepspeed", "deepspeed-config-file")


def canonical(source: Source, surface: Surface) -> Source:
    """Keys of ``fsdp_config`` and ``fp8_config`` also with the prefix that accelerate puts in front where it is missing."""
    settings: dict[str, Setting] = {}
    for key, setting in source.settings.items():
        section, _, name = key.partition(".")
        prefix = section.removesuffix("config")
        whole = f"{section}.{prefix}{name}"
        settings[key] = setting
        if section in {"fsdp_config", "fp8_config"} and name and not name.startswith(prefix) and whole in surface.keys:
            settings.setdefault(whole, setting)
    return replace(source, settings=settings)


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A configuration as accelerate understands it."""
    from meshwright.frameworks.accelerate import surface

    values = Values(source=without_auto(canonical(source, surface())), surface=surface(), release=release)
    world = given.num_devices or values.int("num_processes") or source.devices
    engine = values.text("distributed_type")
    _refuse(values, engine, world)
    tp, cp = told(GRID, values, "tensor_parallel"), told(GRID, values, "context_parallel")
    dp = data_parallel_of(values, world, tp * cp) if world else None
    mb, steps = values.int("--per_device_train_batch_size"), _steps(values)
    total = None
    if mb and dp:
        steps = steps or (given.global_batch_sequences // (mb * dp) if given.global_batch_sequences else None) or 1
        total = mb * steps * dp
    elif dp:
        values.refuse(
            "accelerate.microbatch", "the micro-batch is the training program's: give its launch script with "
            "--per_device_train_batch_size as well",
        )
    layout = None
    if dp and mb and steps:
        stage = stage_of(values, engine)
        checkpointing = values.bool(f"{FSDP}activation_checkpointing") if engine == "FSDP" else False
        layout = with_shards(Layout(
            tensor_parallel=tp, context_parallel=cp,
            context_kind=told(GRID, values, "context_kind") if cp > 1 else "ring",
            data_parallel=dp, microbatch_sequences=mb, num_microbatches=steps,
            recompute=Full() if checkpointing or values.bool("--gradient_checkpointing") else NoRecompute(),
            offload=("optimizer",) if engine == "FSDP" and values.bool(f"{FSDP}offload_params") else (),
            compiled=True if values.text(BACKEND, "NO").upper() not in {"", "NO"} else None,
            overlap=Overlap(gradient_reduce=True, parameter_gather=stage >= 2, tensor=False, point_to_point=False, expert=False),
        ), shards_of(values, stage, dp, cp, given))
    length = values.first(LENGTHS)
    said = Said(
        devices=world, global_batch_sequences=total, sequence_tokens=values.int(length) if length else None,
        precision={"bf16": "bf16", "fp16": "fp16"}.get(values.text("mixed_precision")),
    )
    return Reading(
        framework="accelerate", version=release, source=values.source, said=said, layout=None if values.messages else layout,
        messages=tuple(values.messages),
    )


def _refuse(values: Values, engine: str, world: int | None) -> None:
    """What makes a layout impossible here."""
    if world is None:
        values.refuse(
            "import.devices", "the files do not say how many devices there are (num_processes): give --devices, or --cluster"
        )
    if engine == "DEEPSPEED":
        values.refuse(
            "accelerate.deepspeed", "the engine is DeepSpeed, not FSDP: read its JSON and the launch script with --from deepspeed"
        )
    elif not engine:
        values.refuse(
            "accelerate.engine-open", "neither a configuration file nor the launch says distributed_type: give the file that "
            "accelerate config wrote"
        )
    elif engine not in {"FSDP", "NO"} and not engine.startswith("MULTI_"):
        values.refuse(
            "accelerate.engine", "distributed_type {engine} is no training on accelerators that is known here", engine=engine
        )
    refuse_options(values)


def refuse_options(values: Values) -> None:
    """Options of the launcher that say what its file says."""
    for launch in launches(values.source):
        options = [name for name in launch.shell.launch.launcher_options if name.startswith(ENGINE_OPTIONS)]
        if options:
            values.refuse(
                "accelerate.options", "options of accelerate launch are not read, give them in the configuration "
                                      "file: {options}",
                options=", ".join(f"--{name}" for name in options),
            )


def _steps(values: Values) -> int | None:
    """Accumulated micro-batches."""
    return values.int("--gradient_accumulation_steps") or values.int("deepspeed_config.gradient_accumulation_steps")


def fsdp_version(values: Values) -> int:
    """1 where it is not said."""
    return values.int(f"{FSDP}version", 1) or 1


def detect(source: Source) -> str | None:
    """FSDP1 where a file asks for FSDP and not for its second version."""
    from meshwright.frameworks.accelerate import surface

    values = canonical(source, surface())
    second = str(values.value(f"{FSDP}version", 1)) == "2"
    return "fsdp1" if values.value("distributed_type") == "FSDP" and not second else None


def strategy(values: Values) -> str:
    """The strategy of FSDP1 by name."""
    said = str(values.source.value(f"{FSDP}sharding_strategy", "FULL_SHARD")).upper()
    return _NUMBERS.get(said, said)


def stage_of(values: Values, engine: str) -> int:
    """The ZeRO stage of an engine: none without FSDP; FSDP2 by its switch, FSDP1 by its strategy."""
    if engine != "FSDP":
        return 0
    if fsdp_version(values) == 2:
        return 2 if str(values.source.value(f"{FSDP}reshard_after_forward", True)).lower() in {"false", "0", "no"} else 3
    return FSDP1.get(strategy(values), 3)


def shards_of(values: Values, stage: int, dp: int, cp: int, given: Given) -> Mapping[str, int]:
    """The shard group: that of the mesh, a node for the hybrid strategies of FSDP1, else all ranks."""
    group = dp * cp
    if any(values.has(f"{MESH}{name}") for name in ("dp_replicate_size", "dp_shard_size")):
        group = values.degree(f"{MESH}dp_shard_size") * cp
    elif fsdp_version(values) == 1 and strategy(values).startswith("HYBRID"):
        machines = values.int("num_machines", 1) or 1
        node = dp // machines if machines > 1 and dp % machines == 0 else given.devices_per_node or dp
        group = node if dp % node == 0 else dp
    return zero_shards(stage, group)
