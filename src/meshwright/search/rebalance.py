"""The finalists with their stages filled anew: layers moved, and recomputed stage by stage, as far as the framework can say it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from meshwright.domain.layout import Full, Mixed, whole
from meshwright.estimate.certainty import expected_s
from meshwright.estimate.evaluate import split_of
from meshwright.estimate.many import evaluate_many
from meshwright.search.balance.layouts import choices, layout_of, problems_of
from meshwright.search.balance.quick import several_placements
from meshwright.search.legality import layout_refusals
from meshwright.search.space import MAX_VIRTUAL_STAGES
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem, Placement
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Grid, Layout, Recompute
    from meshwright.estimate.known_work import KnownWork
    from meshwright.search.balance.layouts import Choice
    from meshwright.search.finalists import Candidate
    from meshwright.search.space import Pins

    Bands = Sequence[Sequence[Candidate]]
    """Those that need more memory than there is, by how much more."""

BASES, SIMULATED, RISKY, NEAR = 6, 3, 3, 2
"""Pipelines whose stages are filled anew: the first by the closed form, by simulation, of those that are faster than the first
where they fit and expected to take more, and of each band of those that need too much memory.

Filling 40 of each was best in all of 70 drawn cases; these were as good in 37, and either order alone lost up to 1.2 %.
"""
RECHUNKED, CHUNKS_TRIED = 2, 3
"""So many numbers of chunks of the first few pipelines are tried beside their own."""
TREATMENTS_TRIED = 2
"""Other treatments of the layers of the first few pipelines."""
SHARES = (1.0, 0.92)
"""Shares of the memory that a balance may fill; the second, where the first fills more than that: it is the safer run."""
PLACEMENTS = 2
"""Placements of one pipeline that the cost model judges."""


def rebalanced(
    case: Case, features: Features, fitting: Sequence[Candidate], near: Bands, *, pins: Pins,
    acceptable: Callable[[Layout], bool] | None, simulated: Sequence[Candidate] = (), refined: Sequence[Candidate] = (),
    said: Callable[[Candidate], Candidate] | None = None, freed: tuple[Sequence[Candidate], Bands] = ((), ()),
    work: KnownWork | None = None,
) -> list[Layout]:
    """New layouts of the best pipelines: those that fit, and faster ones that do not; each that fits now, by the cost model.

    ``fitting``, ``near``: best first. ``simulated``: ``fitting`` by their simulated steps. ``refined``: all that fit, of which
    ``fitting`` are the best of each shape, as the framework says them by ``said``. ``freed``: what ``fitting`` and
    ``near`` are without pins of the chunks, where there are such pins: those pipelines are cut into as many chunks as pinned, as
    they are without the pins. ``work``: what micro-batches of the case cost, as far as that was asked before.

    Holds:   deterministic: so many pipelines, whatever time they take. Devices, batch, sharding and numerics stay.
    """
    chosen = _chosen(fitting, near, simulated, _risky(fitting, refined, said))
    free = _chosen(*freed) if pins.chunked else chosen
    chosen += [[other] for other in _other_chunks(case, features, [base for base, *_ in free[:RECHUNKED]], pins, work)]
    chosen += [[other] for base, *_ in chosen[:RECHUNKED] for other in _other_treatments(base, refined, said)]
    return _anew(case, features, chosen, pins, acceptable, work)


def rechunked(
    case: Case, features: Features, best: Sequence[Layout], filled: Sequence[Layout], *, pins: Pins,
    acceptable: Callable[[Layout], bool] | None, work: KnownWork | None = None,
) -> list[Layout]:
    """The best layouts cut into other numbers of chunks, their stages filled anew.

    What is best once stages are filled need not be what was before, and its own number of chunks is that of the grid's best.
    ``filled``: layouts whose stages were filled before; their pipelines are not filled again.
    """
    known = {_pipeline(each) for each in filled}
    others = _other_chunks(case, features, best[:RECHUNKED], pins, work)
    return _anew(case, features, [[other] for other in others if _pipeline(other) not in known], pins, acceptable, work)


def _anew(
    case: Case, features: Features, chosen: Sequence[list[Layout]], pins: Pins, acceptable: Callable[[Layout], bool] | None,
    work: KnownWork | None,
) -> list[Layout]:
    """Pipelines filled anew under each choice that the framework has."""
    asked: dict[tuple[object, ...], tuple[list[Layout], Choice]] = {}
    for bases in chosen:
        for choice in choices(features, bases[0], pinned=pins.recompute is not None):
            asked.setdefault((_pipeline(bases[0]), choice.treatments), (bases, choice))
    return list(dict.fromkeys(_first_filled(case, features, list(asked.values()), acceptable, work)))


def _first_filled(
    case: Case, features: Features, asked: Sequence[tuple[Sequence[Layout], Choice]], acceptable: Callable[[Layout], bool] | None,
    work: KnownWork | None,
) -> list[Layout]:
    """Of each pipeline the first of its layouts that can be filled anew; all pipelines go on side by side."""
    found: dict[int, Layout] = {}
    for turn in range(max((len(bases) for bases, _ in asked), default=0)):
        left = {
            number: (bases[turn], choice)
            for number, (bases, choice) in enumerate(asked) if number not in found and turn < len(bases)
        }
        problems = problems_of(case, features, list(left.values()), work)
        filled = _filled(case, [(base, each) for (base, _), each in zip(left.values(), problems, strict=True)], acceptable)
        found |= {number: layout for number, layout in zip(left, filled, strict=True) if layout is not None}
    return [layout for _, layout in sorted(found.items(), key=lambda each: each[0])]


def _risky(
    fitting: Sequence[Candidate], refined: Sequence[Candidate], said: Callable[[Candidate], Candidate] | None
) -> list[Candidate]:
    """Those that take less than the first where they fit, fastest first: stages filled anew may need so little that they fit."""
    faster = sorted((each for each in refined if fitting and each.step_s < fitting[0].step_s), key=lambda each: each.step_s)
    return faster if said is None else [said(each) for each in faster]


def _chosen(
    fitting: Sequence[Candidate], near: Bands, simulated: Sequence[Candidate] = (), risky: Sequence[Candidate] = ()
) -> list[list[Layout]]:
    """The first few pipelines that fit, by either order, then those that would be faster than the best of them.

    The closed form does not know how stages that are not alike wait; what waits most by simulation may gain most, too.
    """
    bar = fitting[0].step_s if fitting else float("inf")
    faster = [sorted((each for each in band if each.step_s < bar), key=lambda each: (each.step_s, each.order)) for band in near]
    pairs = zip_longest(_first(simulated, SIMULATED), _first(fitting, BASES))
    fits = {_pipeline(bases[0]): bases for pair in pairs for bases in reversed(pair) if bases}
    known = {_treated(each) for bases in fits.values() for each in bases}
    edge = [bases for bases in _first(risky, RISKY) if _treated(bases[0]) not in known]
    return [*fits.values(), *edge, *(own for band in faster for bases in _first(band, NEAR, _unchunked) for own in _apart(bases))]


def _treated(layout: Layout) -> tuple[Layout, Recompute]:
    """A pipeline and how its layers are treated: what may not fit under one treatment may be the best once its stages are filled
    anew, whichever treatment it came with first."""
    return _pipeline(layout), whole(layout.recompute)


def _apart(bases: Sequence[Layout]) -> Iterator[list[Layout]]:
    """The layouts of each pipeline: what came first and what needs least memory may be cut into other numbers of chunks, and filled
    anew either may be the faster one."""
    own: dict[Layout, list[Layout]] = {}
    for each in bases:
        own.setdefault(_pipeline(each), []).append(each)
    yield from own.values()


def _first(
    candidates: Sequence[Candidate], number: int, alike: Callable[[Layout], Layout] | None = None
) -> list[list[Layout]]:
    """The first few pipelines, each once: as it came first, and with its states sharded as needs least memory.

    ``alike``: what is equal of layouts that are one pipeline here.
    """
    shardings: dict[Layout, list[Candidate]] = {}
    for each in candidates:
        if each.layout.pipeline_parallel > 1:
            shardings.setdefault((alike or _pipeline)(each.layout), []).append(each)
    leanest = ((own[0], min(own, key=lambda each: each.reserved_bytes)) for own in list(shardings.values())[:number])
    return [list(dict.fromkeys(each.layout for each in both)) for both in leanest]


def _other_treatments(
    base: Layout, candidates: Sequence[Candidate], said: Callable[[Candidate], Candidate] | None
) -> Iterator[Layout]:
    """The best of a pipeline under other recomputation than it came with: filled anew, it may be the faster one."""
    tried, own, knobs = {whole(base.recompute)}, _pipeline(base), _knobs(base)
    for each in candidates:
        if len(tried) > TREATMENTS_TRIED:
            return
        if _knobs(each.layout) == knobs and whole(each.layout.recompute) not in tried:
            layout = each.layout if said is None else said(each).layout
            if _pipeline(layout) == own:
                tried.add(whole(layout.recompute))
                yield layout


def _knobs(layout: Layout) -> tuple[object, ...]:
    """Some of what layouts of one pipeline have in common, and no framework says otherwise."""
    return (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.virtual_stages, layout.data_parallel,
        layout.expert_parallel, layout.expert_tensor_parallel, layout.microbatch_sequences, layout.schedule,
    )


def _pipeline(layout: Layout) -> Layout:
    """A layout but for what a balance chooses, and for how its states are sharded."""
    return replace(layout, stage_layers=None, recompute=Full(), optimizer_shards=1, gradient_shards=1, parameter_shards=1)


def _unchunked(layout: Layout) -> Layout:
    """A pipeline whatever the number of its chunks."""
    return replace(_pipeline(layout), virtual_stages=1, schedule="1f1b")


def _other_chunks(
    case: Case, features: Features, bases: Sequence[Layout], pins: Pins, work: KnownWork | None
) -> list[Layout]:
    """Pipelines with other numbers of chunks, of each the fastest few of those that are legal and not pinned otherwise."""
    legal = [[other for other in _chunked(case, base, pins) if not layout_refusals(case, features, other)] for base in bases]
    every = [layout for own in legal for layout in own]
    times = iter(evaluate_many(case, every, work)[0].tolist() if every else ())
    timed = [sorted((next(times), number, layout) for number, layout in enumerate(own)) for own in legal]
    return [layout for own in timed for _, _, layout in own[:CHUNKS_TRIED]]


def _chunked(case: Case, base: Layout, pins: Pins) -> Iterator[Layout]:
    """A pipeline cut into every other number of chunks."""
    if base.schedule not in ("1f1b", "interleaved"):
        return
    treatment = Full() if isinstance(base.recompute, Full) else whole(base.recompute)
    plain = replace(base, stage_layers=None, recompute=treatment)
    for chunks in range(1, min(MAX_VIRTUAL_STAGES, case.model.num_layers // base.pipeline_parallel) + 1):
        if chunks != base.virtual_stages and pins.vp in (None, chunks) and (chunks > 1 or pins.schedule != "interleaved"):
            yield replace(plain, virtual_stages=chunks, schedule="interleaved" if chunks > 1 else "1f1b")


def _filled(
    case: Case, asked: Sequence[tuple[Layout, BalanceProblem]], acceptable: Callable[[Layout], bool] | None
) -> list[Layout | None]:
    """The best layouts of pipelines filled anew, None where none fits.

    Placements under all the memory are judged beside those under less of it, where the first are nearly full: a layout that may
    not run is worth less. Where none fits under all of it none is looked for under less.
    """
    met: list[list[Placement]] = [[] for _ in asked]
    open_ = [number for number, (_, problem) in enumerate(asked) if problem.fixed_layers is None or len(problem.treatments) > 1]
    for share in SHARES:
        bounded = [
            replace(problem, memory_bounds=(share * case.capacity_bytes,) * problem.stages)
            for _, problem in (asked[number] for number in open_)
        ]
        for number, placements in zip(open_, several_placements(bounded, keep=PLACEMENTS), strict=True):
            met[number] += placements
        roomy = SHARES[-1] * case.capacity_bytes
        open_ = [number for number in open_ if met[number] and max(met[number][0].stage_memory) > roomy]
    return [_best(case, *each, found, acceptable) for each, found in zip(asked, met, strict=True)]


def _best(
    case: Case, base: Layout, problem: BalanceProblem, found: Sequence[Placement], acceptable: Callable[[Layout], bool] | None
) -> Layout | None:
    """The first placement by what its step is expected to be that is accepted, as a layout."""
    if not found:
        return None
    figures = np.array([(placement.simulated_time, max(placement.stage_memory)) for placement in found])
    worth = expected_s(case, figures[:, 0], figures[:, 1])
    layouts = (_said(case, layout_of(base, problem, found[number])) for number in np.argsort(worth, kind="stable"))
    return next((layout for layout in layouts if acceptable is None or acceptable(layout)), None)


def _said(case: Case, layout: Layout) -> Layout:
    """The layout without a split that goes without saying."""
    even = replace(layout, stage_layers=None)
    return even if split_of(case, even) == layout.stage_layers else layout


def evened(layout: Layout) -> Layout:
    """The same layout with even stages."""
    return replace(layout, stage_layers=None)


def balance_reason(case: Case, balanced: Estimate, before: Estimate) -> str:
    """What moved, and what that is worth, against ``before``: the best plain layout of the shape, or the same with even stages."""
    layout = balanced.layout
    even = evened(layout)
    layers, others = (np.array(split_of(case, each)).sum(axis=0) for each in (layout, even))
    stage, again = int(np.argmax(np.abs(layers - others))), _recomputed(layout, split_of(case, layout))
    what = []
    if layout.virtual_stages != before.layout.virtual_stages:
        what.append(f"vp{layout.virtual_stages} instead of vp{before.layout.virtual_stages}")
    if layers[stage] != others[stage]:
        what.append(f"stage {stage} holds {layers[stage]} layers instead of {others[stage]}")
    elif split_of(case, layout) != split_of(case, even):
        what.append("layers moved between the chunks of stages")
    if again is not None:
        most = int(np.argmax(again))
        what.append(f"stage {most} recomputes {again[most]} of its {layers[most]}")
    said = f"balanced: {', '.join(what) or 'alike stages'}"
    if not before.fits:
        return f"{said}; with even stages it needs {gib(before.memory_reserved_bytes)}"
    return f"{said}: {percent(before.step_s / balanced.step_s - 1.0)} faster"


def _recomputed(layout: Layout, split: Grid) -> NDArray[np.int64] | None:
    """Layers that each stage recomputes, where stages may differ in that."""
    match layout.recompute:
        case Full(layers=tuple(counts)):
            again = np.array(counts, dtype=np.int64).sum(axis=0)
        case Mixed(parts=parts):
            again = np.array([counts for _, counts in parts], dtype=np.int64).sum(axis=(0, 1))
        case Full(layers=int(first)):
            again = np.minimum(first, np.array(split, dtype=np.int64)).sum(axis=0)
        case _:
            return None
    return np.asarray(again)
