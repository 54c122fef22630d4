"""torchtitan's TOML and flags as a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.documents.source import Setting, Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap
from meshwright.errors import Message
from meshwright.frameworks.compose import Values, world_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.settings import Given, Reading, Said
from meshwright.frameworks.surface import typed
from meshwright.frameworks.torchtitan.layout_keys import COMPILED, DEGREES, PER_OPERATOR, SCHEDULES, TENSOR, counts_of
from meshwright.frameworks.torchtitan.models import configured, flavours
from meshwright.frameworks.torchtitan.stages import SINGLE, by_chunk, generated, layers_of
from meshwright.frameworks.torchtitan.surfaces import surface

if TYPE_CHECKING:
    from meshwright.domain.layout import Recompute, Schedule
    from meshwright.frameworks.torchtitan.models import Configuration, Flavour
    from meshwright.frameworks.torchtitan.stages import Split

_P, _T = "parallelism.", "training."
_NAMES = ("hidden", "layers", "vocabulary", "heads", "key_value_heads", "head_dim", "experts")


class _File(Struct, kw_only=True):
    """What is being read: values with the registered configuration's defaults behind them."""

    values: Values
    given: Given
    release: str
    flavour: Flavour | None
    notes: list[Message] = field(default_factory=list)
    """What a user should know although there is a layout."""

    def degree(self, name: str) -> int:
        """A degree of parallelism."""
        return self.values.degree(_P + name)

    def number(self, key: str) -> int:
        """A whole number, or the default of its key."""
        known = surface().find(key, self.release)
        value = self.values.int(key, int(known.default) if known is not None and known.default not in {"", "null"} else 1)
        return 1 if value is None else value

    @property
    def layers(self) -> int | None:
        """Layers of the model, where they are known."""
        if self.given.model is not None:
            return self.given.model.num_layers
        return self.flavour.layers if self.flavour is not None else None

    @property
    def is_moe(self) -> bool:
        """Whether the model is known to have experts."""
        return self.given.model.is_moe if self.given.model is not None else self.flavour is not None and self.flavour.figures[6] > 0


def detect(source: Source) -> str | None:
    """The release that files are for: TOML is 0.2, a batch in tokens is main, a registered configuration 0.3."""
    if any(key in source.settings for key in (_T + "num_tokens_per_microbatch_per_dp_rank", _T + "num_tokens_per_train_step",
                                              _T + "max_context_length", _P + "num_pp_microbatches")):
        return "main"
    if "module" in source.settings or "config" in source.settings:
        return "0.3"
    toml = any(document.path.endswith(".toml") for document in source.documents)
    return "0.2" if toml or "job.config_file" in source.settings else None


def interpret(source: Source, given: Given, release: str) -> Reading:
    """Files as torchtitan understands them."""
    registered = configured(source, release)
    merged = replace(source, settings={**_defaults(registered, release), **source.settings})
    values = Values(source=merged, surface=surface(), release=release, strict=True)
    file = _File(values=values, given=given, release=release, flavour=_flavour(source, registered, release))
    layout, batch = _layout(file)
    sequence = file.number(_T + ("max_context_length" if release == "main" else "seq_len"))
    fatal = bool(values.messages)
    said = Said(
        devices=layout.world if not fatal else given.num_devices or source.devices,
        global_batch_sequences=batch, sequence_tokens=sequence, precision=_precision(file, source),
        gradient_dtype="fp32" if values.text(_T + "mixed_precision_reduce", "float32") == "float32" else None,
        optimizer="adamw" if values.text("optimizer.name", "AdamW") == "AdamW" else None,
        task="sft" if registered is not None and registered.task == "sft" else "pretrain", figures=_figures(file),
        launch=None if values.text("optimizer.implementation", "fused").startswith("fused") else "optimizer=plain",
    )
    return Reading(
        framework="torchtitan", version=release, source=source, said=said, layout=None if fatal else layout,
        messages=(*values.messages, *file.notes),
    )


def _defaults(registered: Configuration | None, release: str) -> dict[str, Setting]:
    """What a registered configuration sets, as settings without a place."""
    found = {}
    for key, text in (registered.defaults if registered is not None else {}).items():
        known = surface().find(key, release)
        assert known is not None, f"{key} of a registered configuration is in no surface"
        value = text.split(",") if known.kind == "list" else typed(known, text)
        found[key] = Setting(key=key, value=value)
    return found


def _flavour(source: Source, registered: Configuration | None, release: str) -> Flavour | None:
    """The model's flavour: named in TOML, or that of the configuration's function."""
    known = flavours(release)
    if release == "0.2":
        return known.get((str(source.value("model.name", "llama3")), str(source.value("model.flavor", "debugmodel"))))
    if registered is not None:
        return known.get((registered.module, registered.flavour))
    name = str(source.value("config", ""))
    return next((each for each in known.values() if each.function == name), None)


def _layout(file: _File) -> tuple[Layout, int | None]:
    """The layout and the global batch in sequences; what is wrong is noted, and such a layout is not to be used."""
    values, release = file.values, file.release
    tp, cp, pp, ep = (told(DEGREES, values, f"{name}_parallel") for name in ("tensor", "context", "pipeline", "expert"))
    replicate, shard = _data_parallel(file, tp * cp * pp)
    dp = replicate * shard
    mb, many, batch = _batch(file, dp, pp)
    schedule, split, vp = _pipeline(file, pp)
    shards = shard * cp
    resharded = _resharded(values.text(_P + "fsdp_reshard_after_forward", "default"), pp)
    sequence = tp > 1 and (release == "0.2" or values.bool(_P + "enable_sequence_parallel", default=True))
    overlapped = (
        told(TENSOR, values, "overlap.tensor") if release == "0.2" else values.bool("compile.enable_async_tensor_parallel")
    )
    expert_overlap = (
        release == "0.2"
        and schedule == "dualpipev"
        and ep > 1
        and values.bool(_P + "pipeline_parallel_expert_parallel_overlap", default=True)
    )
    layout = Layout(
        tensor_parallel=tp, sequence_parallel=sequence, context_parallel=cp,
        context_kind=told(TENSOR, values, "context_kind") if cp > 1 else "ring", pipeline_parallel=pp, virtual_stages=vp,
        expert_parallel=ep, expert_tensor_parallel=_expert_tensor(file, tp, ep), data_parallel=dp, optimizer_shards=shards,
        gradient_shards=shards, parameter_shards=shards if resharded else 1, microbatch_sequences=mb, num_microbatches=many,
        recompute=_recompute(file, split), schedule=schedule, stage_layers=split,
        offload=("optimizer",) if values.bool(_T + "enable_cpu_offload") else (),
        compiled=None if _compiled(values) else False,
        overlap=Overlap(
            gradient_reduce=True, parameter_gather=True, tensor=sequence and overlapped, point_to_point=False, expert=expert_overlap
        ),
    )
    return layout, batch


def _compiled(values: Values) -> bool:
    """Whether the model goes through torch.compile, which is off where nobody switches it on."""
    components = values.source.value("compile.components", ["model"])
    return values.bool(COMPILED) and isinstance(components, (list, tuple)) and "model" in components


def _data_parallel(file: _File, replica: int) -> tuple[int, int]:
    """Replicate and shard degree; -1 is what the other degrees leave of the world."""
    values = file.values
    replicate, shard = file.degree("data_parallel_replicate_degree"), file.number(_P + "data_parallel_shard_degree")
    world = file.given.num_devices or values.source.devices
    if shard < 1:
        world = world_of(values, file.given)
        if world is None:
            return replicate, 1
        shard = max(1, world // (replicate * replica))
    if world is not None and replicate * shard * replica != world:
        tp, cp, pp = (told(DEGREES, values, f"{name}_parallel") for name in ("tensor", "context", "pipeline"))
        values.refuse(
            "torchtitan.world",
            "Invalid parallel dims: dp_replicate({replicate}) * dp_shard({shard}) * cp({cp}) * tp({tp}) * pp({pp}) != "
                "WORLD_SIZE({world})",
            replicate=replicate, shard=shard, cp=cp, tp=tp, pp=pp, world=world,
        )
    return replicate, shard


def _batch(file: _File, dp: int, pp: int) -> tuple[int, int, int | None]:
    """Sequences of a micro-batch, micro-batches of a step, sequences of the global batch (None: it is not determined)."""
    if file.release == "main":
        return _batch_in_tokens(file, dp, pp)
    values = file.values
    local, batch = max(1, file.number(_T + "local_batch_size")), file.number(_T + "global_batch_size")
    mb = file.degree("pipeline_parallel_microbatch_size") if pp > 1 else local
    if local % mb:
        values.refuse("torchtitan.pipeline-batch",
                      "Batch size {local} must be divisible by microbatch_size {mb}. Update the config arguments for either "
                          "batch_size or pipeline_parallel_microbatch_size.", local=local, mb=mb)
        return mb, 1, None
    if batch < 0:
        batch = local * dp
    if batch == 0 or batch % (local * dp):
        values.refuse(
            "torchtitan.batch", "global batch size must be multiple of local batch size times data-parallel degree ({batch} % "
                "({local} * {dp}) != 0)",
            batch=batch, local=local, dp=dp,
        )
        return mb, 1, batch
    _note_passes(file, batch // (local * dp), pp)
    return mb, batch // (mb * dp), batch


def _batch_in_tokens(file: _File, dp: int, pp: int) -> tuple[int, int, int | None]:
    """The same where the batch is in tokens: a micro-batch is taken for whole sequences of the context length."""
    values = file.values
    tokens, context = file.number(_T + "num_tokens_per_microbatch_per_dp_rank"), max(1, file.number(_T + "max_context_length"))
    many = file.degree("num_pp_microbatches") if pp > 1 else 1
    step = file.number(_T + "num_tokens_per_train_step")
    if tokens < 1 or tokens % context:
        values.refuse("torchtitan.context", "a micro-batch of {tokens} tokens is no whole number of sequences of {context} tokens",
                      tokens=tokens, context=context)
        return 1, 1, None
    unit = tokens * many * dp
    if step < 0:
        step = unit
    if step == 0 or step % unit:
        values.refuse(
            "torchtitan.batch",
            "training.num_tokens_per_train_step ({step}) must be divisible by the number of tokens processed globally in one "
                "gradient accumulation iteration ({unit}).", step=step, unit=unit,
        )
        return tokens // context, 1, None
    _note_passes(file, step // unit, pp)
    return tokens // context, step // (tokens * dp), step // context


def _note_passes(file: _File, passes: int, pp: int) -> None:
    """A pipeline that drains several times a step is slower than one with all micro-batches."""
    if pp > 1 and passes > 1:
        file.notes.append(Message(
            "torchtitan.passes", "the pipeline drains {passes} times in a step (gradient accumulation); it is taken for one "
                "schedule over all micro-batches", {"passes": passes},
        ))


def _resharded(policy: str, pp: int) -> bool:
    """Whether parameters are given up after forward."""
    return policy == "always" or (policy != "never" and pp == 1)


def _expert_tensor(file: _File, tp: int, ep: int) -> int:
    """Ranks that cut an expert: all of tp without expert parallelism; with it, as 0.2 says, and none from 0.3 on."""
    if ep == 1:
        return tp if file.is_moe else 1
    return int(told(TENSOR, file.values, "expert_tensor_parallel")) if file.release == "0.2" else 1


def _pipeline(file: _File, pp: int) -> tuple[Schedule, Split | None, int]:
    """Schedule, layers by chunk and stage, and stages of a rank."""
    if pp == 1:
        return "1f1b", None, 1
    values = file.values
    word = values.text(_P + "pipeline_parallel_schedule", "1F1B")
    schedule = next((name for name, spelling in SCHEDULES.items() if spelling.lower() == word.lower()), None)
    if values.text(_P + "pipeline_parallel_schedule_csv") or schedule is None:
        told = values.text(_P + "pipeline_parallel_schedule_csv") or word
        values.refuse("torchtitan.schedule-unknown", "the schedule {schedule} has no model here", schedule=told)
        return "1f1b", None, 1
    counts = _counts(file, pp, schedule)
    if counts is None:
        return schedule, None, 1 if schedule in SINGLE else 2
    if len(counts) % pp:
        values.refuse(
            "torchtitan.parts", "num_stages {stages} must be evenly divisible by pp_degree {pp}", stages=len(counts), pp=pp
        )
        return schedule, None, 1
    vp = len(counts) // pp
    if schedule == "zb1p" and vp > 1:
        values.refuse(
            "torchtitan.schedule-unknown",
            "the schedule {schedule} has no model here",
            schedule=f"{word} with {vp} stages on a rank",
        )
    return schedule, by_chunk(counts, pp, schedule), vp


def _counts(file: _File, pp: int, schedule: Schedule) -> list[int] | None:
    """Layers of each part in the model's order; None where the model's are not known."""
    values = file.values
    parts = values.get(_P + "module_fqns_per_model_part")
    if isinstance(parts, (list, tuple)):
        named = [layers_of(part) for part in parts]
        if not named or any(part is None for part in named):
            values.refuse("torchtitan.parts-odd", "module_fqns_per_model_part is no list of lists of module names")
            return None
        return [len(part or ()) for part in named]
    first, last = (file.number(f"{_P}pipeline_parallel_{end}_stage_less_layers") for end in ("first", "last"))
    per_stage, layers = values.int(_P + "pipeline_parallel_layers_per_stage"), file.layers
    if layers is None:
        file.notes.append(
            Message("torchtitan.layers", "the model's layers are not known, so it is not known where they stand: give --model", {})
        )
        if per_stage is not None and schedule not in SINGLE:
            values.refuse("torchtitan.per-stage", "pipeline_parallel_layers_per_stage gives the stages of a rank only with the "
                "model's layers: give --model")
        return None
    places = pp * (1 if schedule in SINGLE else 2)
    if per_stage is not None:
        places = -(-(layers + first + last) // max(1, per_stage))
        if places % pp:
            values.refuse("torchtitan.virtual-stages", "Number of virtual stages ({places}) must be divisible by pipeline "
                "parallel size ({pp}).",
                          places=places, pp=pp)
            return None
    counts = generated(places, layers, first, last)
    if counts is None:
        values.refuse(
            "torchtitan.empty-stages", "Configuration would result in empty stages. With {places} stages and {layers} layers, and "
                "{first} and {last} fewer on the first and the last", places=places, layers=layers, first=first, last=last,
        )
    return counts


def _recompute(file: _File, split: Split | None) -> Recompute:
    """Activation checkpointing; of every Nth layer (0.2) as counts for each part."""
    values = file.values
    if file.release == "0.2":
        mode = values.text("activation_checkpoint.mode", "selective")
        option = values.text("activation_checkpoint.selective_ac_option", "2")
    else:
        mode, option = values.text("activation_checkpoint", "selective"), "op"
    match mode:
        case "none":
            return NoRecompute()
        case "full":
            return Full()
        case "selective" if option == "op":
            return PER_OPERATOR
        case "selective" if option.isdecimal() and int(option) > 0:
            layers = split or (((file.layers,),) if file.layers is not None else None)
            if layers is None:
                values.refuse("torchtitan.every", "every {every}th layer is recomputed, of a model whose layers are not "
                    "known: give --model",
                              every=option)
                return NoRecompute()
            return Full(layers=counts_of(layers, int(option)))
    values.refuse(
        "torchtitan.recompute",
        "activation checkpointing {mode} has no model here",
        mode=f"{mode} {option}" if mode == "selective" else mode,
    )
    return NoRecompute()


def _precision(file: _File, source: Source) -> str | None:
    """A precision of the catalogue, where it has the recipe."""
    values = file.values
    converters = [str(each) for each in values.words("model.converters")] if file.release == "0.2" else []
    converters = [name for name in converters if name]
    if any("float8" in name for name in converters):
        tensorwise = (source.value("quantize.linear.float8.recipe_name") or "tensorwise") == "tensorwise"
        return "fp8-torchao" if tensorwise else None
    if any("mx" in name for name in converters):
        return "fp8-mx"
    config = str(source.value("config", ""))
    if "mxfp8" in config:
        return "fp8-mx"
    odd = ("float8", "nvfp4", "405b")  # rowwise FP8 and mixed NVFP4 are in no catalogue
    if file.release != "0.2" and any(word in config for word in odd) and not _is_own(source):
        return None
    return "bf16" if values.text(_T + "mixed_precision_param", "bfloat16") == "bfloat16" else None


def _is_own(source: Source) -> bool:
    """Whether the configuration is one that Meshwright wrote, in BF16."""
    from meshwright.frameworks.torchtitan.models import OWN_MODULE

    return source.value("module") == OWN_MODULE


def _figures(file: _File) -> dict[str, object]:
    """The model's figures by its flavour."""
    if file.flavour is None:
        return {}
    *numbers, width, tied = file.flavour.figures
    figures: dict[str, object] = {name: number for name, number in zip(_NAMES, numbers, strict=True) if number}
    return figures | {"expert_ffn" if file.flavour.figures[6] else "ffn": width, "tied_embeddings": bool(tied)}
