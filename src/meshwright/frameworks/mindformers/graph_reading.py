"""MindFormers' graph-mode YAML as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from meshwright.domain.layout import Full, Layout, NoRecompute
from meshwright.errors import Message
from meshwright.frameworks.ascend.stages import Split, lists_of, recompute_of, said_split, shape_of, within_reason
from meshwright.frameworks.compose import Values, zero_shards
from meshwright.frameworks.mindformers.graph_writing import ALGORITHMS, OVERLAP
from meshwright.frameworks.mindformers.models import figures_of
from meshwright.frameworks.settings import Given, Reading, Said, Source

if TYPE_CHECKING:
    from meshwright.domain.layout import ContextKind, Recompute, Schedule

KINDS = {algorithm: kind for kind, algorithm in ALGORITHMS.items()}
MODEL = "model.model_config"
OPTIMIZER = "parallel.parallel_optimizer_config"


def interpret(source: Source, given: Given, release: str) -> Reading:
    """A YAML as MindFormers' graph trainer understands it: all degrees stand there, and their product is the world."""
    from meshwright.frameworks.mindformers import surface

    values = Values(source=source, surface=surface(), release=release, strict=True)
    dp, tp, pp, cp, ep = (
        values.degree(f"parallel_config.{name}")
        for name in ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "expert_parallel")
    )
    if source.value("use_parallel") is False:
        dp = tp = pp = cp = ep = 1
    interleaved = values.bool("parallel.pipeline_config.pipeline_interleave")
    vp = values.degree(f"{MODEL}.pp_interleave_num") if interleaved and pp > 1 else 1
    schedule = _schedule(values, pp, vp)
    figures = figures_of(values, MODEL)
    layers = figures.get("layers") or (given.model.num_layers if given.model else None)
    mtp = figures.get("mtp_layers") or (given.model.num_mtp_layers if given.model else 0)
    layers, pp, vp = within_reason(values, layers, pp, vp)
    split = _split(values, layers, mtp if isinstance(mtp, int) else 0, pp, vp)
    remarks: list[Message] = []
    recompute = _recompute(values, split)
    _select(values, remarks)
    world = dp * tp * pp * cp
    devices = given.num_devices or source.devices
    if devices is not None and devices != world:
        values.refuse(
            "mindformers.device-number",
            "The parallel config data_parallel * model_parallel * context_parallel * pipeline_stage should be equal to device_num, "
            "but get dp*mp*sp*pp = {dp}*{mp}*{cp}*{pp} = {world} != device_num({devices})",
            dp=dp, mp=tp, cp=cp, pp=pp, world=world, devices=devices,
        )  # fmt: skip
    copies = values.degree("micro_batch_interleave_num")
    mb = values.degree("runner_config.batch_size") * copies
    m = values.degree("parallel_config.micro_batch_num") if pp > 1 else values.degree("runner_config.gradient_accumulation_steps")
    if copies > 1:
        remarks.append(
            Message(
                "import.copies",
                "micro_batch_interleave_num {copies} runs halves of a micro-batch beside each other; counted as one micro-batch",
                {"copies": copies},
                source.settings["micro_batch_interleave_num"].place,
            )
        )
    layout = None
    if not values.messages:
        kind = KINDS.get(values.text("parallel_config.context_parallel_algo", "colossalai_cp"), "ring") if cp > 1 else "ring"
        said = said_split(split, layers, mtp) if split and isinstance(layers, int) and isinstance(mtp, int) else split
        layout = Layout(
            tensor_parallel=tp, sequence_parallel=values.bool("parallel_config.use_seq_parallel") and tp > 1, context_parallel=cp,
            context_kind=cast("ContextKind", kind), pipeline_parallel=pp, virtual_stages=vp, expert_parallel=ep, data_parallel=dp,
            **_shards(values, dp * cp), microbatch_sequences=mb, num_microbatches=m, recompute=recompute, schedule=schedule,
            stage_layers=said, offload=("optimizer",) if values.source.value("optimizer.swap") is True else (), overlap=OVERLAP,
        )  # fmt: skip
    return Reading(
        framework="mindformers", version=release, source=source, layout=layout, messages=(*values.messages, *remarks),
        said=Said(
            devices=world, global_batch_sequences=dp * mb * m, sequence_tokens=values.int(f"{MODEL}.seq_length"),
            precision={"bfloat16": "bf16", "float16": "fp16"}.get(values.text(f"{MODEL}.compute_dtype")),
            optimizer="adamw" if "adamw" in str(source.value("optimizer.type", "")).lower() else None,
            task="sft" if source.value("run_mode") == "finetune" else None, figures=figures,
        ),
    )  # fmt: skip


def _schedule(values: Values, pp: int, vp: int) -> Schedule:
    """The schedule; those that a layout has no word for make the files undetermined."""
    key = "parallel.pipeline_config.pipeline_scheduler"
    name = values.text(key, "1f1b") or "1f1b"
    if pp > 1 and name not in {"1f1b", "gpipe"}:
        values.note(key, "import.schedule", "no layout has the schedule {name}", name=name)
    if vp > 1:
        return "interleaved"
    return "gpipe" if name == "gpipe" and pp > 1 else "1f1b"


def _split(values: Values, layers: object, mtp: int, stages: int, chunks: int) -> Split | None:
    """The average plus the offsets; the framework broadcasts one row to all chunks.

    Legacy models (DeepSeek-V3 of r1.5) count multi-token-prediction layers among those that are split.
    """
    if not isinstance(layers, int) or layers < 1:
        return None
    average = layers // (stages * chunks)
    even = tuple((average,) * stages for _ in range(chunks))
    key = f"{MODEL}.offset"
    value = values.get(key)
    if value in (None, 0) or stages * chunks == 1:
        if stages * chunks > 1 and layers % (stages * chunks):
            values.refuse(
                "mindformers.offset-sum",
                "The sum of `offset` ({total}) should equal to remainder of `num_layers` ({layers}) % (pp "
                "({pp}) * pp_interleave_num ({vpp})) = {rest}",
                total=0, layers=layers, pp=stages, vpp=chunks, rest=layers % (stages * chunks),
            )  # fmt: skip
        return even if stages * chunks > 1 else ((layers,),)
    lists = lists_of(value)
    shape = shape_of(lists) if lists else None
    if lists is None or shape is None:
        values.note(key, "setting.list", "{key} is {value!r}: a list of counts by stage is expected", key=key, value=value)
        return None
    if shape[1] != stages:
        values.note(
            key,
            "mindformers.offset-shape",
            "offset.shape[-1] should equal to `pp` ({pp}), but got ({shape}). `offset`: {offset}",
            pp=stages,
            shape=shape[1],
            offset=value,
        )
        return None
    if shape[0] == 1:
        lists *= chunks
    if len(lists) != chunks:
        values.note(key, "mindformers.offset-chunks",
                    "offset.shape[-2] should equal to `pp_interleave_num` ({vpp}), but got ({shape}). `offset`: {offset}",
                    vpp=chunks, shape=shape[0], offset=value)  # fmt: skip
        return None
    if mtp and sum(map(sum, lists)) == (layers + mtp) % (stages * chunks) != layers % (stages * chunks):
        average = (layers + mtp) // (stages * chunks)
        *first, last = tuple(tuple(average + extra for extra in row) for row in lists)
        return (*first, (*last[:-1], last[-1] - mtp))
    split = tuple(tuple(average + extra for extra in row) for row in lists)
    total, rest = sum(map(sum, lists)) // (chunks if shape[0] == 1 else 1), layers % (stages * chunks)
    if total != rest or sum(map(sum, split)) != layers:
        values.note(
            key, "mindformers.offset-sum",
            "The sum of `offset` ({total}) should equal to remainder of `num_layers` ({layers}) % (pp "
            "({pp}) * pp_interleave_num ({vpp})) = {rest}",
            total=total, layers=layers, pp=stages, vpp=chunks, rest=rest,
        )  # fmt: skip
    return split


def _recompute(values: Values, split: Split | None) -> Recompute:
    """All layers, none, counts by stage (dealt to the chunks in turn), or counts by chunk and stage."""
    key = "recompute_config.recompute"
    value = values.get(key)
    if value in (None, False, [], ()):
        return NoRecompute()
    if value is True:
        return Full()
    if not isinstance(value, (list, tuple)) or split is None:
        if split is None and (lists := lists_of(value)) is not None:
            return recompute_of(lists, None)
        values.note(key, "mindformers.recompute-list", "Illegal input list for select_recompute: {value}", value=value)
        return NoRecompute()
    counts = _counts(value, split)
    if counts is None:
        values.note(key, "mindformers.recompute-list", "Illegal input list for select_recompute: {value}", value=value)
        return NoRecompute()
    return recompute_of(counts, split)


def _counts(value: list[object] | tuple[object, ...], split: Split) -> Split | None:
    """Counts ``[chunk][stage]`` as ``LayerSetting`` reads a list; truth values are all or none."""
    stages = len(split[0])
    if all(isinstance(item, (bool, int)) for item in value):
        if len(value) > stages:
            return None
        result = [[0] * stages for _ in split]
        for stage, item in enumerate(value):
            whole = sum(row[stage] for row in split)
            left = (whole if item else 0) if isinstance(item, bool) else min(cast("int", item), whole)
            while left > 0:
                for chunk, row in enumerate(split):
                    if left and result[chunk][stage] < row[stage]:
                        result[chunk][stage] += 1
                        left -= 1
        return tuple(map(tuple, result))
    if len(value) != len(split):
        return None
    rows = []
    for item, row in zip(value, split, strict=True):
        if isinstance(item, bool):
            rows.append(row if item else (0,) * stages)
            continue
        if not isinstance(item, (list, tuple)) or len(item) != stages or not all(isinstance(each, (bool, int)) for each in item):
            return None
        rows.append(
            tuple(
                (full if each else 0) if isinstance(each, bool) else min(each, full) for each, full in zip(item, row, strict=True)
            )
        )
    return tuple(rows)


def _select(values: Values, remarks: list[Message]) -> None:
    """Selective recomputation: of the MLP's product and activation, or of named operators; no layout has a word for either."""
    for key, what in (
        ("select_recompute", "the product and activation of the MLP (with flash attention), or the operators that it names"),
        ("select_comm_recompute", "the communication behind the norms, or the operators that it names"),
    ):  # fmt: skip
        for name, setting in values.source.settings.items():
            if (name == f"recompute_config.{key}" or name.startswith(f"recompute_config.{key}.")) and setting.value not in (
                None,
                False,
                [],
                {},
            ):
                remarks.append(
                    Message(
                        "import.select",
                        "{key} recomputes {what}: an estimate counts it as kept",
                        {"key": key, "what": what},
                        setting.place,
                    )
                )
                break
    if values.source.value("swap_config.swap") is True:
        remarks.append(
            Message(
                "import.unmapped",
                "{key} has no word in a layout: an estimate counts {what} as kept",
                {"key": "swap_config.swap", "what": "swapped activations"},
                values.source.settings["swap_config.swap"].place,
            )
        )


def _shards(values: Values, ranks: int) -> dict[str, int]:
    """The parallel optimizer: its level is the ZeRO stage."""
    if not values.bool("parallel.enable_parallel_optimizer"):
        return dict(zero_shards(0, 1))
    size = values.int(f"{OPTIMIZER}.optimizer_weight_shard_size", -1) or -1
    level = values.text(f"{OPTIMIZER}.optimizer_level")
    stage = {"level1": 1, "level2": 2, "level3": 3}.get(level, 2 if values.bool(f"{OPTIMIZER}.gradient_accumulation_shard") else 1)
    return dict(zero_shards(stage, size if 1 < size <= ranks else ranks))
