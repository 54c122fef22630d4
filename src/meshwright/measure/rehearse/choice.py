"""Which layouts are run: the plan's first ones, then those that show most of what no other has shown."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

from meshwright.domain.label import label, recompute_word
from meshwright.domain.layout import Full, Layout, NoRecompute, Recompute, Selective
from meshwright.estimate.many import evaluate_many
from meshwright.measure.reference import FEATURES, overlap_of, refusals
from meshwright.search import layout_refusals
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Schedule
    from meshwright.engine.request import Options

SCHEDULES: tuple[tuple[Schedule, int], ...] = (("1f1b", 1), ("gpipe", 1), ("zb1p", 1), ("interleaved", 2), ("dualpipev", 2))
"""Schedules of a pipeline and their chunks of a rank."""
TREATMENTS: tuple[Recompute, ...] = (NoRecompute(), Selective(), Full())


def pool(case: Case, options: Options) -> list[Layout]:
    """Every layout over all devices of the case, of one kind of stages, that the reference step runs and whose memory is there.

    Holds:   in a fixed order, each once.
    """
    found = [
        replace(layout, overlap=overlap_of(layout, options.backend))
        for layout in _grid(case)
        if not layout_refusals(case, FEATURES, layout) and not refusals(case, layout, options)
    ]
    if not found:
        return []
    _, reserved = evaluate_many(case, found)
    return [layout for layout, need in zip(found, reserved, strict=True) if need <= case.capacity_bytes]


def _grid(case: Case) -> Iterator[Layout]:
    devices, batch = case.cluster.num_devices, case.batch.global_batch_sequences
    degrees = divisors(devices)
    for tp, cp, pp in product(degrees, degrees, degrees):
        if devices % (tp * cp * pp) or batch % (devices // (tp * cp * pp)):
            continue
        dp = devices // (tp * cp * pp)
        experts = [ep for ep in degrees if (devices // pp) % ep == 0] if case.model.is_moe else [1]
        choices = product(
            divisors(batch // dp), (False, True) if tp > 1 else (False,), range(4) if dp * cp > 1 else (0,), experts,
            SCHEDULES if pp > 1 else SCHEDULES[:1], TREATMENTS,
        )
        for mb, sp, zero, ep, (schedule, chunks), recompute in choices:
            shards = [dp * cp if zero >= stage else 1 for stage in (1, 2, 3)]
            yield Layout(
                tensor_parallel=tp, sequence_parallel=sp, context_parallel=cp, context_kind="ulysses" if cp > 1 else "ring",
                pipeline_parallel=pp, virtual_stages=chunks, expert_parallel=ep, data_parallel=dp, optimizer_shards=shards[0],
                gradient_shards=shards[1], parameter_shards=shards[2], microbatch_sequences=mb,
                num_microbatches=batch // dp // mb, recompute=recompute, schedule=schedule,
            )


def traits(layout: Layout) -> frozenset[str]:
    """What a layout shows of each knob that means something under it."""
    found = {
        f"tp{layout.tensor_parallel}", f"cp{layout.context_parallel}", f"pp{layout.pipeline_parallel}",
        f"dp{layout.data_parallel}", f"ep{layout.expert_parallel}", f"mb{layout.microbatch_sequences}",
        f"recompute={recompute_word(layout.recompute)}",
    }
    if layout.tensor_parallel > 1:
        found.add(f"sp={layout.sequence_parallel}")
    if layout.pipeline_parallel > 1:
        found.add(f"schedule={layout.schedule} vp{layout.virtual_stages}")
    if layout.data_parallel * layout.context_parallel > 1:
        found.add(f"zero{layout.zero_stage}")
    return frozenset(found)


def spread(first: Sequence[Layout], others: Sequence[Layout], step_s: Mapping[Layout, float], count: int) -> tuple[Layout, ...]:
    """``count`` layouts: the first ones, then of the others always the one with most values that none has shown yet.

    Equal ones are settled by pairs of values that none has shown, then by the predicted step.

    Holds:   the first ones stand in front, none stands twice, and all others where they are fewer than asked for.
    """
    chosen = list(dict.fromkeys(first))[:count]
    left = [layout for layout in dict.fromkeys(others) if layout not in set(chosen)]
    singles: set[str] = set()
    pairs: set[tuple[str, str]] = set()

    def note(layout: Layout) -> None:
        singles.update(traits(layout))
        pairs.update(_pairs(layout))

    def worth(layout: Layout) -> tuple[int, int, float]:
        return len(traits(layout) - singles), len(_pairs(layout) - pairs), -step_s[layout]

    for layout in chosen:
        note(layout)
    while left and len(chosen) < count:
        best = max(left, key=worth)
        left.remove(best)
        chosen.append(best)
        note(best)
    return tuple(chosen)


def _pairs(layout: Layout) -> set[tuple[str, str]]:
    return set(combinations(sorted(traits(layout)), 2))


def chosen(case: Case, options: Options, first: Sequence[Layout], count: int) -> tuple[Layout, ...]:
    """The layouts that are run for a case; ``first`` are the plan's, best first."""
    others = pool(case, options)
    times = [float(each) for each in evaluate_many(case, others)[0]] if others else []
    return spread(first, others, dict(zip(others, times, strict=True)), count)


def short_label(layout: Layout) -> str:
    """The label, without the overlap that the reference step has whatever a label says."""
    return label(layout, overlap=layout.overlap)
