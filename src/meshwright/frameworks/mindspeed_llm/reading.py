"""MindSpeed-LLM's launch script as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import Source
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
from meshwright.errors import Message
from meshwright.frameworks.adapters import adapters_of
from meshwright.frameworks.ascend.recompute_lists import recompute_of_lists
from meshwright.frameworks.ascend.stages import Split, counts_of, plain_split, recompute_of, said_split, within_reason
from meshwright.frameworks.bridge.adapters import PROJECTIONS
from meshwright.frameworks.compose import Values, data_parallel_of, microbatches_of, world_of
from meshwright.frameworks.keys import told
from meshwright.frameworks.megatron.figures import gradient_dtype
from meshwright.frameworks.mindspeed_llm.layouts import parse_counts, parse_layout_text, parse_rank_lists, without_noops
from meshwright.frameworks.mindspeed_llm.model_flags import figures_of
from meshwright.frameworks.mindspeed_llm.writing import ACTIVATION, KEYS, NORM, behind
from meshwright.frameworks.settings import Given, Reading, Said

if TYPE_CHECKING:
    from meshwright.domain.layout import Recompute
    from meshwright.domain.training import Lora, Task

RANK = 16
"""``--lora-r`` where it is not said."""
PLACES = ("--num-layer-list", "--pipeline-num-transformer-layers", "--pipeline-model-parallel-layout")
UNMAPPED = {
    "--recompute-in-bubble": "recomputes in the pipeline's bubbles",
    "--recompute-in-advance": "recomputes ahead of the backward pass",
    "--enable-recompute-layers-per-pp-rank": "counts recomputed layers for each pipeline rank, not for each chunk",
    "--swap-attention": "swaps activations of attention to the host",
    "--smart-swap": "swaps activations to the host",
    "--moe-fb-overlap": "hides the experts' exchange behind another micro-batch",
    "--use-custom-fsdp": "shards parameters", "--use-torch-fsdp2": "shards parameters", "--tp-2d": "cuts tensors in two dimensions",
}
"""Flags that change memory or time and that no layout has a word for."""


def interpret(source: Source, given: Given, release: str, *, framework: str = "mindspeed-llm") -> Reading:
    """Flags as MindSpeed-LLM understands them: data parallelism and micro-batches follow from devices and batch."""
    from meshwright.frameworks.mindspeed_llm import surface_of

    values = Values(source=source, surface=surface_of(release), release=release)
    tp, cp, pp = (told(KEYS, values, knob) for knob in ("tensor_parallel", "context_parallel", "pipeline_parallel"))
    folded = values.text("--schedules-method") == "dualpipev" and pp > 1
    layers = values.int("--num-layers") or (given.model.num_layers if given.model else None)
    noops = frozenset(parse_counts(values.text("--noop-layers")) or ()) if values.has("--noop-layers") else frozenset()
    layers, pp, _ = within_reason(values, layers, pp, 2 if folded else 1)
    split = _split(values, layers, pp, folded=folded)
    vp = len(split) if split else _chunks(values, layers, pp, folded=folded)
    if split and noops:
        split = without_noops(split, noops, folded=folded)
    real = layers - len(noops) if layers else None
    figures = figures_of(values, real)
    mtp = values.int("--mtp-num-layers") or 0
    world = world_of(values, given)
    dp = data_parallel_of(values, world, tp * cp * pp)
    mb = told(KEYS, values, "microbatch_sequences")
    batch = values.int("--global-batch-size") or given.global_batch_sequences or (mb * dp if dp else None)
    m = microbatches_of(values, batch, mb, dp)
    remarks: list[Message] = []
    recompute = _recompute(values, split, remarks)
    shards = _shards(values, (dp or 1) * cp)
    _other(values, remarks)
    layout = None
    if dp is not None and m is not None and not values.messages:
        experts = values.int("--num-experts") or 0
        layout = Layout(
            tensor_parallel=tp,
            sequence_parallel=told(KEYS, values, "sequence_parallel") and tp > 1,
            context_parallel=cp,
            context_kind=told(KEYS, values, "context_kind") if cp > 1 else "ring",
            pipeline_parallel=pp,
            virtual_stages=vp,
            expert_parallel=told(KEYS, values, "expert_parallel"),
            expert_tensor_parallel=values.degree("--expert-tensor-parallel-size", tp) if experts > 1 else 1,
            data_parallel=dp,
            optimizer_shards=shards,
            microbatch_sequences=mb,
            num_microbatches=m,
            recompute=recompute,
            schedule="dualpipev" if folded else "interleaved" if vp > 1 else "1f1b",
            stage_layers=said_split(split, real, mtp) if split and real else split,
            offload=("optimizer",) if values.bool("--swap-optimizer") else (),
            attention=None if values.bool("--use-flash-attn") else "math",
            overlap=Overlap(
                gradient_reduce=told(KEYS, values, "overlap.gradient_reduce"),
                parameter_gather=told(KEYS, values, "overlap.parameter_gather"),
                tensor=told(KEYS, values, "overlap.tensor"),
                point_to_point=told(KEYS, values, "overlap.point_to_point"),
                expert=False,
            ),
        )
    lora = _lora(values)
    return Reading(
        framework=framework, version=release, source=source, layout=layout, messages=(*values.messages, *remarks),
        said=Said(
            devices=world, global_batch_sequences=batch, sequence_tokens=values.int("--seq-length"), optimizer="adamw",
            precision="bf16" if values.bool("--bf16") else "fp16" if values.bool("--fp16") else None, task=_task(values),
            gradient_dtype=gradient_dtype(values), figures=figures, lora=lora,
        ),
    )


def _task(values: Values) -> Task | None:
    """What is trained."""
    if values.has("--lora-r") or values.has("--lora-target-modules"):
        return "lora"
    return "sft" if values.text("--stage") == "sft" or values.bool("--is-instruction-dataset") else "pretrain"


def _lora(values: Values) -> Lora | None:
    """Rank and places of the adapters."""
    if _task(values) != "lora":
        return None
    key = "--lora-target-modules"
    return adapters_of(values, key, values.degree("--lora-r", RANK), values.words(key), PROJECTIONS)


def _chunks(values: Values, layers: int | None, stages: int, *, folded: bool) -> int:
    """Chunks of each stage."""
    if folded:
        return 2
    per_chunk = values.int("--num-layers-per-virtual-pipeline-stage")
    if per_chunk and per_chunk > 0 and layers and stages > 1:
        return max(1, layers // stages // per_chunk)
    return values.degree("--num-virtual-stages-per-pipeline-rank") if stages > 1 else 1


def _split(values: Values, layers: int | None, stages: int, *, folded: bool) -> Split | None:
    """Layers by chunk and stage, those that do nothing among them."""
    if stages == 1:
        return ((layers,),) if layers else None
    key = values.first(PLACES)
    text = values.text(key) if key else ""
    split: Split | None = None
    if key == "--num-layer-list":
        counts = parse_counts(text)
        split = (counts,) if counts and not values.has("--noop-layers") else None
        if counts is None:
            values.note(key, "setting.list", "{key} is {value!r}: counts separated by commas are expected", key=key, value=text)
    elif key == "--pipeline-num-transformer-layers":
        split = parse_rank_lists(text)
    elif key == "--pipeline-model-parallel-layout":
        split = parse_layout_text(text, stages)
    if key and split is None and not values.has("--noop-layers"):
        values.note(key, "setting.list", "{key} is {value!r}, which gives no layers by stage", key=key, value=text)
    if split is not None or layers is None:
        return split
    _, _, chunks = within_reason(values, layers, stages, _chunks(values, layers, stages, folded=folded))
    return plain_split(layers, 0, stages, chunks) if layers % (stages * chunks) == 0 else _edges(values, layers, stages)


def _edges(values: Values, layers: int, stages: int) -> Split | None:
    """A split by the counts of the first and the last stage."""
    first, last = values.int("--decoder-first-pipeline-num-layers"), values.int("--decoder-last-pipeline-num-layers")
    given = [count for count in (first, last) if count]
    middle = stages - len(given)
    if not given or middle < 1 or (layers - sum(given)) % middle:
        return None
    each = (layers - sum(given)) // middle
    return ((*((first,) if first else ()), *((each,) * middle), *((last,) if last else ())),)


def _recompute(values: Values, split: Split | None, remarks: list[Message]) -> Recompute:
    """Granularity, method and number, and what is recomputed of layers behind the full ones."""
    plain = _plain(values, split, remarks)
    experts = (values.int("--num-experts") or 0) > 1
    modules = {ACTIVATION: ("mlp_act", "moe_act") if experts else ("mlp_act",), NORM: ("layernorm",)}
    on = {flag: values.int(f"{flag}-num-layers") for flag in modules if values.bool(flag)}
    if not on or plain == Full():
        return plain
    if isinstance(plain, Selective) or (plain == NoRecompute() and set(on.values()) == {None}):
        if set(on.values()) == {None}:
            known = plain.modules if isinstance(plain, Selective) else ()
            return Selective(modules=tuple(sorted({*known, *(module for flag in on for module in modules[flag])})))
        split = None
    if split is None:
        remarks += [_unmapped(values, flag, "recomputes a part of some layers") for flag in on]
        return plain
    full = counts_of(plain, split)
    lists = {module: behind(full, split, number) for flag, number in on.items() for module in modules[flag]}
    return recompute_of_lists(full, lists, split, behind_full=True)


def _plain(values: Values, split: Split | None, remarks: list[Message]) -> Recompute:
    """Granularity, method and number."""
    granularity = values.text("--recompute-granularity") or ("selective" if values.bool("--recompute-activations") else "")
    if granularity == "selective":
        modules = values.words("--recompute-modules") or ("core_attn",)
        return Selective(modules=tuple(sorted(set(modules))))
    if granularity != "full":
        return NoRecompute()
    number = values.int("--recompute-num-layers")
    if values.text("--recompute-method") == "uniform":
        if number and number > 1:
            remarks.append(
                Message(
                    "import.uniform",
                    "--recompute-num-layers {n} recomputes {n} layers at a time, which keeps less than one layer at a time",
                    {"n": number},
                    values.source.settings["--recompute-num-layers"].place,
                )
            )
        return Full()
    if number is None:
        return Full()
    return recompute_of(counts_of(Full(layers=number), split), split) if split else Full(layers=number)


def _shards(values: Values, ranks: int) -> int:
    """The distributed optimizer's group."""
    if not values.bool("--use-distributed-optimizer"):
        return 1
    groups = values.degree("--num-distributed-optimizer-instances")
    return max(1, ranks // groups)


def _unmapped(values: Values, flag: str, what: str) -> Message:
    return Message(
        "import.unmapped", "{key} {what}: no layout has a word for it", {"key": flag, "what": what},
        values.source.settings[flag].place,
    )


def _other(values: Values, remarks: list[Message]) -> None:
    """What no layout has a word for."""
    for flag, what in UNMAPPED.items():
        setting = values.source.settings.get(flag)
        if setting is not None and setting.value is not False:
            remarks.append(_unmapped(values, flag, what))
    level = values.source.settings.get("--moe-zero-memory")
    if level is not None and level.value != "disable":
        remarks.append(Message("import.unmapped", "{key} {what}: no layout has a word for it",
                               {"key": "--moe-zero-memory", "what": "recomputes parts of the experts"}, level.place))
