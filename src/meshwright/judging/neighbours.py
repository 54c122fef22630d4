"""Layouts one step away: the same devices, the same global batch, one knob moved and the rest rebalanced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from meshwright.domain.label_reader import OVERLAPS
from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective, whole
from meshwright.search import layout_refusals
from meshwright.search.rules import context_kinds, sequence_parallel_able, sequence_parallel_unasked
from meshwright.search.space import MAX_VIRTUAL_STAGES, divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Recompute

DEGREES = {
    "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "ep": "expert_parallel",
    "etp": "expert_tensor_parallel", "mb": "microbatch_sequences",
}
OFF = Overlap(gradient_reduce=False, parameter_gather=False, tensor=False, point_to_point=False, expert=False)
EXACT = Overlap(gradient_reduce=True, parameter_gather=True, tensor=False, point_to_point=True, expert=False)
"""Overlap that changes no arithmetic."""


class Neighbour(Struct, frozen=True, kw_only=True):
    """A layout one step away, or why there is none."""

    knob: str
    change: str
    """``tp 2 -> 4``."""
    layout: Layout | None
    refused_because: tuple[str, ...] = ()


def vary(case: Case, features: Features, layout: Layout, **knobs: Any) -> Layout | str:
    """The layout with other knobs on the same devices, or which division fails.

    Data parallelism and the number of micro-batches follow; full sharding stays full, a shard group stays where it still
    divides; chunks become fewer where the schedule would not run; per-stage lists end with their pipeline.
    """
    new = replace(layout, **knobs)
    if layout.context_parallel == 1 < new.context_parallel and "context_kind" not in knobs:
        kinds = context_kinds(case.model, features)
        new = replace(new, context_kind=new.context_kind if new.context_kind in kinds or not kinds else kinds[0])
    parts = new.tensor_parallel * new.context_parallel * new.pipeline_parallel
    if layout.world % parts:
        return f"tp x cp x pp = {parts} does not divide the {layout.world} devices"
    dp = layout.world // parts
    stage, experts = layout.world // new.pipeline_parallel, new.expert_parallel * new.expert_tensor_parallel
    if stage % experts:
        return f"ep x etp = {experts} does not divide the {stage} devices of a stage"
    batch, share = case.batch.global_batch_sequences, dp * new.microbatch_sequences
    if batch % share:
        return f"dp x mb = {share} does not divide the global batch of {batch}"
    able = sequence_parallel_unasked(case, features)
    if new.tensor_parallel == 1:
        new = replace(new, sequence_parallel=False)
    elif layout.tensor_parallel == 1 and "sequence_parallel" not in knobs:
        new = replace(new, sequence_parallel=able)
    new = replace(new, data_parallel=dp, num_microbatches=batch // share)
    return _chunked(case, features, _sharded(features, layout, new, knobs), layout, knobs)


def _sharded(features: Features, old: Layout, new: Layout, knobs: dict[str, Any]) -> Layout:
    """Sharding as it was, over the ranks that there are now."""
    if any(name.endswith("_shards") for name in knobs):
        return new
    before, after = (shard_ranks(features, each) for each in (old, new))
    if before == 1:  # nothing to shard until now: the distributed optimizer is what one would switch on
        kept = after if 1 in features.zero_stages else 1
        return replace(new, optimizer_shards=kept, gradient_shards=1, parameter_shards=1)

    def group(shards: int) -> int:
        if shards == 1 or after == 1:
            return 1
        return shards if shards != before and after % shards == 0 else after

    return replace(
        new, optimizer_shards=group(new.optimizer_shards), gradient_shards=group(new.gradient_shards),
        parameter_shards=group(new.parameter_shards),
    )


def shard_ranks(features: Features, layout: Layout) -> int:
    """Ranks over which full sharding splits."""
    return layout.data_parallel * (layout.context_parallel if features.shards_over_context else 1)


def _chunked(case: Case, features: Features, new: Layout, old: Layout, knobs: dict[str, Any]) -> Layout:
    """Chunks, schedule and per-stage lists that go with the pipeline."""
    reshaped = (new.pipeline_parallel, new.virtual_stages) != (old.pipeline_parallel, old.virtual_stages)
    if reshaped and "stage_layers" not in knobs:
        new = replace(new, stage_layers=None)
    if (reshaped or new.stage_layers != old.stage_layers) and "recompute" not in knobs:
        new = replace(new, recompute=whole(new.recompute))
    first: Layout | None = None
    for chunks in range(new.virtual_stages, 0, -1):
        trial = _scheduled(new, chunks)
        first = first or trial
        if "virtual_stages" in knobs or not layout_refusals(case, features, trial):
            return trial
    assert first is not None
    return first


def _scheduled(layout: Layout, chunks: int) -> Layout:
    """The schedule that runs so many chunks on so many stages."""
    if layout.pipeline_parallel == 1:
        return replace(layout, virtual_stages=1, schedule="1f1b", stage_layers=None, recompute=whole(layout.recompute))
    changed: dict[str, Any] = {}
    if chunks != layout.virtual_stages:
        changed = {"stage_layers": None, "recompute": whole(layout.recompute)}
    schedule = layout.schedule
    if schedule in ("1f1b", "interleaved"):
        schedule = "interleaved" if chunks > 1 else "1f1b"
    return replace(layout, virtual_stages=chunks, schedule=schedule, **changed)


def neighbours(case: Case, features: Features, layout: Layout) -> Iterator[Neighbour]:
    """Every layout one step away, knob by knob, refused ones with the reason."""
    moe = case.model.is_moe
    for word, name in DEGREES.items():
        if word in ("ep", "etp") and not moe:
            continue
        now = getattr(layout, name)
        for then in (2 * now, _half(now)):
            if then:
                yield _moved(case, features, layout, word, f"{word} {now} -> {then}", {name: then})
    if layout.pipeline_parallel > 1:
        yield from _chunk_steps(case, features, layout)
        for schedule in features.schedules:
            if schedule not in (layout.schedule, "interleaved" if layout.virtual_stages == 1 else "1f1b"):
                chunks = {"dualpipev": 2}.get(schedule, 1)
                knobs = {"schedule": schedule, "virtual_stages": chunks, "stage_layers": None}
                yield _moved(case, features, layout, "schedule", f"schedule {layout.schedule} -> {schedule}", knobs)
    yield from _shard_steps(case, features, layout)
    for word, recompute in _recomputes(case, features, layout.recompute):
        yield _moved(case, features, layout, "recompute", f"recompute -> {word}", {"recompute": recompute})
    if layout.tensor_parallel > 1 and (layout.sequence_parallel or sequence_parallel_unasked(case, features)):
        now = layout.sequence_parallel
        yield _moved(case, features, layout, "sp", f"sp {'on -> off' if now else 'off -> on'}", {"sequence_parallel": not now})
    if features.optimizer_offload:
        moved: tuple[str, ...] = () if layout.offload else ("optimizer",)
        yield _moved(case, features, layout, "offload", f"offload -> {'optimizer' if moved else 'none'}", {"offload": moved})
    if layout.overlap != OFF:
        yield _moved(case, features, layout, "overlap", "overlap -> none", {"overlap": OFF})


def _half(value: int) -> int:
    """The next smaller divisor: half where it is even; 0 below 1."""
    return divisors(value)[-2] if value > 1 else 0


def _moved(case: Case, features: Features, layout: Layout, knob: str, change: str, knobs: dict[str, Any]) -> Neighbour:
    found = vary(case, features, layout, **knobs)
    if isinstance(found, str):
        return Neighbour(knob=knob, change=change, layout=None, refused_because=(found,))
    refused = layout_refusals(case, features, found)
    return Neighbour(knob=knob, change=change, layout=None if refused else found, refused_because=refused)


def _chunk_steps(case: Case, features: Features, layout: Layout) -> Iterator[Neighbour]:
    """The next legal number of chunks up and down."""
    now = layout.virtual_stages
    if layout.schedule not in ("1f1b", "interleaved"):
        return
    for values in (range(now + 1, MAX_VIRTUAL_STAGES + 1), range(now - 1, 0, -1)):
        tried = [_moved(case, features, layout, "vp", f"vp {now} -> {vp}", {"virtual_stages": vp}) for vp in values]
        if tried:
            yield next((each for each in tried if each.layout is not None), tried[0])


def _shard_steps(case: Case, features: Features, layout: Layout) -> Iterator[Neighbour]:
    """ZeRO stages, then smaller and larger shard groups."""
    ranks = shard_ranks(features, layout)
    if ranks == 1:
        return
    now, group = layout.zero_stage, layout.optimizer_shards
    for stage in range(4):
        if abs(stage - now) == 1 or (stage > now == 0):
            yield _moved(case, features, layout, "zero", f"zero{now} -> zero{stage}", shards(stage, ranks if now == 0 else group))
    if now:
        for then in (_half(group), next((k for k in divisors(ranks) if k > group), 0)):
            if then > 1:
                yield _moved(case, features, layout, "shard", f"shard {group} -> {then}", shards(now, then))


def able_overlap(case: Case, features: Features, overlap: Overlap) -> Overlap:
    """What of an overlap the framework has."""
    words = features.overlap_words(case.training.optimizer.name)
    return replace(overlap, **{name: False for word, name in OVERLAPS.items() if word not in words})


def compared(case: Case, features: Features, layout: Layout) -> Iterator[Layout]:
    """What most judges hold a layout against, whether it is legal or not: ZeRO stages over all ranks, sequence parallelism and
    overlap switched.
    """
    if (ranks := shard_ranks(features, layout)) > 1:
        yield from (replace(layout, **shards(stage, ranks)) for stage in range(4))
    if layout.tensor_parallel > 1 and sequence_parallel_able(case, features):
        yield replace(layout, sequence_parallel=not layout.sequence_parallel)
    switched = replace(layout.overlap, gradient_reduce=not layout.overlap.gradient_reduce)
    for overlap in (OFF, able_overlap(case, features, EXACT), switched):
        yield replace(layout, overlap=overlap)


def shards(stage: int, group: int) -> dict[str, int]:
    """The three shard knobs of a ZeRO stage over a group."""
    return {
        "optimizer_shards": group if stage >= 1 else 1, "gradient_shards": group if stage >= 2 else 1,
        "parameter_shards": group if stage >= 3 else 1,
    }


def _recomputes(case: Case, features: Features, now: Recompute) -> Iterator[tuple[str, Recompute]]:
    model = case.model
    choices: list[tuple[str, Recompute]] = [("none", NoRecompute())]
    if "selective" in features.recompute:
        wanted = ["layernorm", "moe_act"] if model.is_moe else ["layernorm", "mlp"]
        modules = [features.selective_default, *((module,) for module in wanted if module in features.selective_modules)]
        choices += [(f"selective:{','.join(each)}", Selective(modules=each)) for each in modules]
    if "full" in features.recompute:
        choices.append(("full", Full()))
    yield from ((word, choice) for word, choice in choices if choice != now)
