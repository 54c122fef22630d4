"""The grid of the contract, walked one layout at a time in plain Python: an oracle that shares nothing with the search.

The rules are written down again from docs/json.md#the-grid and the frameworks' documents, in whole numbers; each legal layout
is evaluated alone by ``plan.evaluate``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.domain.model import Mlp
from meshwright.estimate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Overlap


def ways(number: int) -> list[int]:
    """Divisors by trial."""
    return [d for d in range(1, number + 1) if number % d == 0]


@dataclass(frozen=True)
class Point:
    """One point of the grid, legal or not."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    mb: int
    vp: int
    zero: int
    shards: int
    treatment: str
    schedule: str


def shardings(point_dp: int, cp: int, tp: int, case: Case, features: Features) -> Iterator[tuple[int, int]]:
    """ZeRO 0, then stages 1 to 3 over all data-parallel ranks and over those of one node (1: none there)."""
    everyone = point_dp * (cp if features.shards_over_context else 1)
    node = max(1, case.cluster.devices_per_node // tp)
    yield 0, 1
    for stage in (1, 2, 3):
        yield stage, everyone
        yield stage, node if node < everyone else 1


def grid(case: Case, features: Features, devices: int) -> Iterator[Point]:
    """Every point of the contract's grid."""
    batch = case.batch.global_batch_sequences
    for tp, cp, pp in product(ways(devices), repeat=3):
        if devices % (tp * cp * pp):
            continue
        dp = devices // (tp * cp * pp)
        stage = devices // pp
        degrees = [(ep, etp) for ep in ways(stage) for etp in ways(stage) if stage % (ep * etp) == 0]
        for ep, etp in degrees if case.model.is_moe else [(1, 1)]:
            for mb, vp, treatment, schedule in product(ways(batch), range(1, 9), ("none", "selective", "full"), features.schedules):
                for zero, shards in shardings(dp, cp, tp, case, features):
                    yield Point(tp, cp, pp, dp, ep, etp, mb, vp, zero, shards, treatment, schedule)


def refusal(case: Case, features: Features, p: Point) -> str | None:
    """The first reason against a point, or None."""
    model, batch, sequence = case.model, case.batch.global_batch_sequences, case.batch.sequence_tokens
    recipe, peaks = case.training.precision, case.cluster.device.peak_flops_per_s
    if recipe.gemm_dtype not in peaks or recipe.base_dtype not in peaks:
        return "the device does not compute in the data types of the precision recipe"
    if model.position not in features.positions:
        return "the framework has no kernels for the model's position encoding"
    if model.position == "learned" and sequence > model.position_table:
        return "the sequence exceeds the learned position table"
    if model.is_moe and not features.mixture_of_experts:
        return "the framework has no mixture of experts"
    if any(each.num_heads % p.tp for each in model.attentions):
        return "tp does not divide the attention heads"
    for kind in model.kinds:
        heads = kind.attention.num_key_value_heads
        if kind.attention.latent is None and heads % p.tp and p.tp % heads:
            return "tp and the key-value heads do not divide each other"
    for kind in model.kinds:
        width = kind.feed_forward.width if isinstance(kind.feed_forward, Mlp) else kind.feed_forward.shared_width
        if model.hidden % p.tp or width % p.tp:
            return "tp does not divide the hidden or feed-forward width"
    able = case.implementation.sequence_parallel and features.sequence_parallel
    if (p.cp > 1 and sequence % (2 * p.cp)) or sequence % ((p.tp if able else 1) * p.cp):
        return "cp (twice, zigzag), or tp x cp with sequence parallelism, does not divide the sequence"
    exchange = first_kind(case, features)
    if p.cp > 1 and exchange is None:
        return "the framework has no context parallelism for this model"
    if p.cp > 1 and exchange in ("ulysses", "hybrid"):
        inner = p.cp if exchange == "ulysses" else max(1, min(p.cp, case.cluster.scale_up_devices // p.tp))
        cut = p.tp * inner
        pairs = [kind.attention.num_heads if kind.attention.latent else kind.attention.num_key_value_heads for kind in model.kinds]
        heads = [kind.attention.num_heads for kind in model.kinds]
        if any(number % cut for number in heads + pairs) or (exchange == "hybrid" and inner in (1, p.cp)):
            return "tp x cp does not divide the heads, which Ulysses and hybrid context parallelism cut"
    if p.pp > 1 and not features.pipeline_parallel:
        return "the framework has no pipeline parallelism"
    mixture = model.experts
    if p.ep > 1 and (mixture is None or mixture.num_experts % p.ep):
        return "ep does not divide the experts"
    if p.ep > 1 and not features.expert_parallel:
        return "the framework has no expert parallelism"
    if p.etp > 1 and (mixture is None or mixture.expert_width % p.etp or p.tp % p.etp):
        return "etp does not divide tp or the expert width"
    if p.etp > 1 and not features.expert_tensor_parallel:
        return "the framework has no expert tensor parallelism"
    if mixture is not None and p.tp > 1 and not able:
        return "experts with tp need sequence parallelism"
    if features.sequence_parallel_with_tensor and p.tp > 1 and not able:
        return "the framework has tensor parallelism with sequence parallelism only"
    if p.pp > model.num_layers:
        return "pp exceeds the layers"
    if batch % p.dp:
        return "dp does not divide the global batch"
    if batch % (p.dp * p.mb):
        return "dp x mb does not divide the global batch"
    m = batch // (p.dp * p.mb)
    right = {
        "1f1b": p.vp == 1,
        "interleaved": p.vp > 1 and p.pp > 1,
        "gpipe": p.vp == 1 and p.pp > 1,
        "zb1p": p.vp == 1 and p.pp > 1,
        "dualpipev": p.vp == 2 and p.pp > 1 and m >= 2 * p.pp,
    }[p.schedule]
    if not right:
        return "the schedule does not run with these stages and chunks"
    if p.pp * p.vp > model.num_layers or (not features.uneven_stages and model.num_layers % (p.pp * p.vp)):
        return "the layers do not split over pp x vp"
    if p.schedule == "interleaved" and (m < p.pp or (features.interleaved_needs_multiple and m % p.pp)):
        return "interleaving needs micro-batches in multiples of pp"
    if p.treatment not in features.recompute:
        return "the framework has no such recompute"
    if p.zero not in features.zero_stages:
        return "the framework has no such ZeRO stage"
    everyone = p.dp * (p.cp if features.shards_over_context else 1)
    if p.zero and (p.shards == 1 or everyone % p.shards):
        return "the shard group is one rank, all ranks again, or no divisor of them"
    if p.zero and p.shards != everyone and not features.partial_sharding:
        return "the framework shards over all ranks only"
    if features.instances_divide_experts and mixture is not None and p.zero:
        replicas = p.dp * p.cp * p.tp // (p.ep * p.etp)
        if replicas % (everyone // p.shards):
            return "the number of shard groups does not divide the experts' replicas"
    if p.zero > 1 and p.pp > 1 and not features.parameter_shards_with_pipeline:
        return "gradients and parameters are not sharded under a pipeline"
    return None


def first_kind(case: Case, features: Features) -> str | None:
    """The first kind of context parallelism that suits the model: windows need no rings, sinks need Ulysses."""
    windows = any(each.window_tokens for each in case.model.attentions)
    sinks = any(each.sinks for each in case.model.attentions)
    for kind in features.context_kinds if features.context_parallel else ():
        if not (windows and kind in ("ring", "hybrid")) and (kind == "ulysses" or not sinks):
            return kind
    return None


def layout_of(case: Case, features: Features, p: Point, overlap: Overlap) -> Layout:
    """A point as a layout."""
    recompute = {"none": NoRecompute(), "selective": Selective(modules=("core_attn",)), "full": Full()}[p.treatment]
    return Layout(
        tensor_parallel=p.tp,
        sequence_parallel=p.tp > 1 and case.implementation.sequence_parallel and features.sequence_parallel,
        context_parallel=p.cp,
        context_kind=(first_kind(case, features) or "ring") if p.cp > 1 else "ring",
        pipeline_parallel=p.pp,
        virtual_stages=p.vp,
        expert_parallel=p.ep,
        expert_tensor_parallel=p.etp,
        data_parallel=p.dp,
        optimizer_shards=p.shards,
        gradient_shards=p.shards if p.zero > 1 else 1,
        parameter_shards=p.shards if p.zero > 2 else 1,
        microbatch_sequences=p.mb,
        num_microbatches=case.batch.global_batch_sequences // (p.dp * p.mb),
        recompute=recompute,
        schedule=p.schedule,
        overlap=overlap,
    )


@dataclass
class BruteForce:
    """What exhaustive enumeration finds."""

    legal: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    step_s: dict[Layout, float] = field(default_factory=dict)
    reserved: dict[Layout, float] = field(default_factory=dict)

    def fitting(self, capacity: float) -> list[Layout]:
        """Legal layouts within the memory, fastest first."""
        inside = [layout for layout, size in self.reserved.items() if size <= capacity]
        return sorted(inside, key=lambda layout: self.step_s[layout])


def brute_force(case: Case, features: Features, *, overlap: Overlap, devices: int | None = None) -> BruteForce:
    """Enumerate, refuse, evaluate: one layout after the other."""
    result = BruteForce()
    for point in grid(case, features, devices or case.cluster.num_devices):
        reason = refusal(case, features, point)
        if reason is not None:
            result.rejected[reason] += 1
            continue
        result.legal += 1
        layout = layout_of(case, features, point, overlap)
        evaluation = evaluate(case, layout)
        result.step_s[layout] = float(evaluation.time.step_s)
        result.reserved[layout] = float(evaluation.memory.reserved_bytes.max())
    return result
