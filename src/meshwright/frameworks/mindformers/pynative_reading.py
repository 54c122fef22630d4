"""MindFormers 2.1's PyNative YAML as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshwright.documents.source import Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
from meshwright.errors import Message
from meshwright.frameworks.ascend.stages import Split, plain_split, recompute_of, said_split, within_reason
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.mindformers.models import figures_of
from meshwright.frameworks.mindformers.pynative_writing import BATCH, KEYS, PATHS, SCHEDULES
from meshwright.frameworks.mindformers.ranges import counts_of_ranges, parse_ids, parse_stages, recomputed_counts
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import Recompute, Schedule

NAMES = {name: schedule for schedule, name in SCHEDULES.items()}
UNMAPPED: Final = "{key} has no word in a layout: an estimate counts {what} as kept"


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A YAML as MindFormers' PyNative trainer understands it: data parallelism follows from the devices."""
    from meshwright.frameworks.mindformers import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    tp, cp, pp, vp, ep = (
        told(KEYS, values, knob)
        for knob in ("tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_stages", "expert_parallel")
    )
    figures = figures_of(values, "model")
    layers = figures.get("layers") or (given.model.num_layers if given.model else None)
    mtp = figures.get("mtp_layers") or (given.model.num_mtp_layers if given.model else 0)
    layers, pp, vp = within_reason(values, layers, pp, vp)
    split = _split(values, layers, pp, vp)
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * cp * pp)
    mb = told(BATCH, values, "microbatch_sequences")
    batch = values.int("training.global_batch_size") or given.global_batch_sequences
    m = microbatches_of(values, batch, mb, dp)
    remarks: list[Message] = []
    recompute = _recompute(values, split, layers, mtp, remarks)
    schedule = values.text("parallelism.pipeline_parallel_schedule", "1f1b").lower() or "1f1b"
    name: Schedule = NAMES.get(schedule, "1f1b")  # type: ignore[assignment]
    if schedule not in NAMES:
        values.note(
            "parallelism.pipeline_parallel_schedule",
            "mindformers.schedule-name",
            "Unsupported pipeline_parallel_schedule '{value}'.",
            value=schedule,
        )
    if vp > 1 and name == "1f1b":
        name = "interleaved"
    shards = _shards(values, dp or 1, cp, pp)
    _other(values, remarks)
    layout = None
    if dp is not None and m is not None and not values.messages:
        said = said_split(split, layers, mtp) if split and isinstance(layers, int) and isinstance(mtp, int) else split
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1, context_parallel=cp,
            context_kind=told(BATCH, values, "context_kind") if cp > 1 else "ring",
            pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep,
            data_parallel=dp, **shards, offload=(), microbatch_sequences=mb, num_microbatches=m, recompute=recompute, schedule=name,
            stage_layers=said, attention=None, compiled=None,
            overlap=Overlap(
                gradient_reduce=True, parameter_gather=True, tensor=values.bool("parallelism.enable_mc2") and tp > 1,
                point_to_point=told(KEYS, values, "overlap.point_to_point"), expert=False,
            ),
        )
    return Reading(
        framework="mindformers", version=release, source=source, layout=layout, messages=(*values.messages, *remarks),
        said=Said(
            devices=world, global_batch_sequences=batch, sequence_tokens=values.int("model.seq_length"),
            precision={"bfloat16": "bf16", "float16": "fp16"}.get(values.text("model.compute_dtype")),
            optimizer="adamw" if values.text("optimizer.type", "AdamW") == "AdamW" else None,
            task="lora" if any(key.startswith("lora_config.") for key in source.settings) else None, figures=figures,
        ),
    )


def _split(values: Values, layers: object, stages: int, chunks: int) -> Split | None:
    """The split: ranges of absolute ids, or an even one."""
    key = "parallelism.pipeline_parallel_layers_per_stage"
    value = values.get(key)
    if value in (None, "auto") or stages * chunks == 1:
        return plain_split(layers, 0, stages, chunks) if isinstance(layers, int) and layers >= stages * chunks else None
    ranges = parse_stages(value)
    if ranges is None:
        values.note(
            key,
            "mindformers.range",
            "Invalid layer range format: {value}. Expected format is 'start-end' or 'single_layer'.",
            value=value,
        )
        return None
    split = counts_of_ranges(ranges)
    if split is None:
        values.note(key, "mindformers.range-gap",
                    "the ranges of {key} leave gaps, overlap, or do not follow the pipeline, which MindFormers does "
                    "not check", key=key)
    return split


def _recompute(values: Values, split: Split | None, layers: object, mtp: object, remarks: list[Message]) -> Recompute:
    """Layers by their ids, counted by stage; modules of all layers."""
    mode = values.text("recompute.mode", "None")
    if mode == "full":
        ids = parse_ids(values.get("recompute.full_recompute_layer"))
        if ids is None:
            values.note(
                "recompute.full_recompute_layer",
                "mindformers.full-layers",
                "mode is 'full' but full_recompute_layer is missing or empty",
            )
            return NoRecompute()
        if split is None:
            return Full() if ids else NoRecompute()
        return recompute_of(recomputed_counts(ids, split), split)
    if mode == "select":
        return _modules(values, layers, mtp, remarks)
    return NoRecompute()


def _modules(values: Values, layers: object, mtp: object, remarks: list[Message]) -> Recompute:
    """Modules of selective recomputation; what recomputes other tensors than a module does is remarked."""
    chosen = values.get("recompute.select_module")
    if not isinstance(chosen, dict):
        chosen = {
            key.removeprefix("recompute.select_module."): setting.value
            for key, setting in values.source.settings.items() if key.startswith("recompute.select_module.")
        }
    total = layers + (mtp if isinstance(mtp, int) else 0) if isinstance(layers, int) else None
    whole = set()
    for path, ranges in chosen.items():
        ids = parse_ids(ranges)
        if ids is not None and layers and ids in (frozenset(range(layers)), frozenset(range(total or 0))):  # type: ignore[call-overload]
            whole.add(str(path))
        else:
            remarks.append(
                Message(
                    "import.select-layers",
                    "{path} is recomputed on some layers only: a layout says modules of all layers",
                    {"path": path},
                    _place(values),
                )
            )
    experts = figures_of(values, "model").get("experts")
    modules = tuple(sorted(
        module for module, paths in PATHS.items() if whole.issuperset(paths) and not (module == "mlp" and experts)
    ))
    known = {path for module in modules for path in PATHS[module]}
    remarks += [
        Message(
            "import.select",
            "no module of a layout recomputes what {path} does: an estimate counts it as kept",
            {"path": path},
            _place(values),
        )
        for path in sorted(whole - known)
    ]
    return Selective(modules=modules) if modules else NoRecompute()


def _place(values: Values) -> str:
    """Where modules are selected."""
    return next((s.place for key, s in values.source.settings.items() if key.startswith("recompute.select_module")), "")


def _shards(values: Values, dp: int, cp: int, pp: int) -> dict[str, int]:
    """FSDP shard groups: parameters stay whole between forward and backward where nothing is resharded."""
    wanted = values.int("parallelism.data_parallel_shard", -1) or -1
    replicas = max(dp // wanted, 1) if wanted > 0 else 1
    size = (dp // replicas) * cp
    if wanted > 0 and replicas * (dp // replicas) != dp:
        values.note(
            "parallelism.data_parallel_shard",
            "mindformers.dims",
            "data_parallel_shard {shard} does not divide data_parallel {dp}",
            shard=wanted,
            dp=dp,
        )
    dense = values.int("parallelism.dense_fsdp_shard_size")
    size = dense if dense and dense > 0 else size
    policy = values.text("parallelism.reshard_after_forward_policy", "default")
    reshards = policy == "always" or (policy == "default" and pp == 1)
    return {"optimizer_shards": size, "gradient_shards": size, "parameter_shards": size if reshards else 1}


def _other(values: Values, remarks: list[Message]) -> None:
    """What changes memory or time and is no part of a layout."""
    for key, what in (
        ("recompute_comm.enable", "communication that is done again"), ("swap.enable", "swapped activations"),
        ("parallelism.cpu_offload", "parameters and states in host memory"),
        ("parallelism.pipeline_parallel_overlap_b_f", "the overlap of forward and backward"),
    ):
        if values.bool(key):
            remarks.append(Message("import.unmapped", UNMAPPED, {"key": key, "what": what}, values.source.settings[key].place))
    if values.has("parallelism.dense_fsdp_shard_size") and figures_of(values, "model").get("experts"):
        key = "parallelism.dense_fsdp_shard_size"
        remarks.append(
            Message(
                "import.dense-shards",
                "{key} cuts dense weights only; experts stay cut over all ranks, a layout has one size for both",
                {"key": key},
                values.source.settings[key].place,
            )
        )
