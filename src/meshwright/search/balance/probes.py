"""Which dry runs to make, so that their peaks can be taken apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.dry_runs import DryRuns, StagePeak
from meshwright.errors import InputError, Message, fault
from meshwright.readers.sapp.treatments import ORDER, alone
from meshwright.search.balance.dependence import reasons
from meshwright.search.balance.equations import CONSTANT, Equations, condition_of, equations, unknowns
from meshwright.search.balance.exchange import Draft, exchanged
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.search.balance.equations import Floats

MAX_ROUNDS = 6
STARTS = 4
"""Draws that the exchange starts from."""
SPARE = 2
"""Peaks asked for beyond the unknowns where they cost no round: without any, nothing says how good the fit is."""


class ProbeRound(Value, frozen=True, kw_only=True):
    """One dry run of the whole pipeline, one chunk a stage: where layers stand, how they are recomputed, whose peaks to note."""

    offset: tuple[int, ...]
    """Layers of each stage beside the even share."""
    recompute: tuple[int, ...]
    select_recompute: tuple[int, ...]
    select_comm_recompute: tuple[int, ...]
    """Lists by stage, read alike by MindFormers and MindSpeed-Core-MS: a layer recomputed whole stands in the first alone."""
    treated: tuple[tuple[int, ...], ...]
    """Layers by treatment and stage, ``[treatment][stage]``."""
    stages: tuple[int, ...]
    """Whose peaks to note."""


class ProbeProposal(Value, frozen=True, kw_only=True):
    """Dry runs that determine the memories of layers."""

    treatments: tuple[str, ...]
    rounds: tuple[ProbeRound, ...]
    """Empty: what is known is enough."""
    unknowns: tuple[str, ...]
    equations: int
    """Peaks together, known ones included."""
    condition: float
    """Of the equations with columns scaled to length 1."""
    missing: tuple[Message, ...] = ()
    """What known peaks leave open."""

    def runs(self, peaks_mb: Sequence[Sequence[float]], microbatches: int | None = None) -> DryRuns:
        """The dry runs with their peaks, by round in the order of its ``stages``."""
        found = [
            StagePeak(stage=stage, round=place, peak_mb=float(size), counts=tuple((row[stage],) for row in each.treated))
            for place, (each, sizes) in enumerate(zip(self.rounds, peaks_mb, strict=True))
            for stage, size in zip(each.stages, sizes, strict=True)
        ]
        stages = len(self.rounds[0].offset)
        return DryRuns(stages=stages, treatments=self.treatments, peaks=tuple(found), microbatches=microbatches)


def questions(
    *, stages: int, layers: int, treatments: Sequence[str] = ("none",), microbatches: int | None = None,
    constant: bool = True, known: DryRuns | None = None,
) -> ProbeProposal:
    """The fewest rounds of dry runs whose peaks determine all memories, well conditioned.

    Each stage recomputes all of its layers in one way, which keeps the unknowns furthest apart; ways and layers are exchanged
    between stages while the variances fall. Both ends are noted again where that saves a round (SAPP, which notes them once,
    needs ``ceil((treatments + 2) / (stages - 2))`` rounds). ``known`` peaks count. ``constant``: whether middle stages may
    hold one; two stages have no middle.

    Errors:  fewer layers than stages, unknown treatments, known peaks of another pipeline; runs that do not exist, in words.
    """
    named = (*treatments, *(known.treatments if known else ()))
    _check(stages, layers, named, known)
    names = ("none", *(name for name in ORDER[1:] if name in named))
    constant = constant and stages > 2
    if layers == stages and (constant or stages == 2):
        what = "constant cannot be told apart; take the constant as 0" if constant else "ends cannot be told apart"
        raise fault("probes.no_offset", "as many layers as stages: none can be shifted, so parameters and {what}", what=what)
    columns = unknowns(names, constant=constant)
    empty = DryRuns(stages=stages, treatments=names, peaks=(), microbatches=microbatches, source=known.source if known else "")
    old = equations(_padded(known, names) if known else empty, constant=constant)
    missing = reasons(old) if known else ()
    if known and not missing:
        return ProbeProposal(rounds=(), treatments=names, unknowns=columns, equations=len(known.peaks), condition=old.condition)
    lacking = len(columns) - (old.rank if known else 0)
    for rounds in range(-(-lacking // stages), MAX_ROUNDS + 1):
        draft = _best(empty, layers, rounds, lacking, old)
        if np.isfinite(condition := condition_of(_joined(old, draft))):
            return ProbeProposal(
                treatments=names, rounds=tuple(_round(draft, place, layers) for place in range(rounds)), unknowns=columns,
                equations=len(old.matrix) + len(draft.noted), condition=condition, missing=missing,
            )
    raise _impossible(draft, old)


def _check(stages: int, layers: int, treatments: Sequence[str], known: DryRuns | None) -> None:
    odd = next((name for name in treatments if name not in ORDER), None)
    if odd is not None:
        raise fault("probes.treatment", "{name!r} is none of {known}", name=odd, known=", ".join(ORDER))
    if stages < 2:
        raise fault("probes.stages", "peaks of {stages} stage cannot be taken apart: two are the least", stages=stages)
    if layers < stages:
        raise fault("probes.layers", "{layers} layers for {stages} stages", layers=layers, stages=stages)
    if known and known.stages != stages:
        raise fault("probes.known", "known peaks are of {known} stages, not {stages}", path=known.source, known=known.stages,
                    stages=stages)


def _padded(known: DryRuns, names: tuple[str, ...]) -> DryRuns:
    """The same peaks with a place for every treatment."""
    none = (0,) * known.chunks
    peaks = tuple(
        replace(peak, counts=tuple(dict(zip(known.treatments, peak.counts, strict=True)).get(name, none) for name in names))
        for peak in known.peaks
    )
    return replace(known, treatments=names, peaks=peaks)


def _best(empty: DryRuns, layers: int, rounds: int, lacking: int, old: Equations) -> Draft:
    """The best of several exchanges."""
    measured = {peak.stage for peak in old.runs.peaks}
    noted = _noted(empty.stages, rounds, min(rounds * empty.stages, lacking + SPARE), measured)
    drafts = (
        exchanged(empty, layers, rounds, noted, old.matrix, constant=CONSTANT in old.columns, seed=seed) for seed in range(STARTS)
    )
    return min(drafts, key=lambda draft: condition_of(_joined(old, draft)))


def _noted(stages: int, rounds: int, wanted: int, measured: set[int]) -> tuple[tuple[int, int], ...]:
    """Which stages of which rounds: ends that nobody measured, then middle stages evenly, then ends of later rounds."""
    ends = [(0, stage) for stage in (0, stages - 1) if stage not in measured]
    middle_count = min(max(wanted - len(ends), 0), rounds * (stages - 2))
    middle = [
        (place, int(stage))
        for place in range(rounds)
        if (share := (middle_count + rounds - 1 - place) // rounds)
        for stage in np.unique(np.linspace(1, stages - 2, share).round())
    ]
    others = [(place, stage) for place in range(rounds) for stage in (0, stages - 1) if (place, stage) not in ends]
    return tuple(sorted([*ends, *middle, *others[: max(wanted - len(ends) - len(middle), 0)]]))


def _joined(old: Equations, draft: Draft) -> Floats:
    return np.vstack([old.matrix, draft.matrix])


def _round(draft: Draft, place: int, layers: int) -> ProbeRound:
    names = draft.empty.treatments
    counts, stages = draft.layers[place], draft.empty.stages
    noted = tuple(stage for at, stage in draft.noted if at == place)
    ways = [int(draft.ways[place, stage]) if stage in noted else 0 for stage in range(stages)]
    lists = [alone(names[way], int(count)) for way, count in zip(ways, counts, strict=True)]
    return ProbeRound(
        offset=tuple(int(count) - layers // stages for count in counts), stages=noted,
        recompute=tuple(each["recompute"] for each in lists),
        select_recompute=tuple(each["select_recompute"] for each in lists),
        select_comm_recompute=tuple(each["select_comm_recompute"] for each in lists),
        treated=tuple(
            tuple(int(count) if way == row else 0 for way, count in zip(ways, counts, strict=True)) for row in range(len(names))
        ),
    )


def _impossible(draft: Draft, old: Equations) -> InputError:
    """Why no runs of this pipeline would do."""
    found = reasons(Equations(matrix=draft.matrix, columns=old.columns, runs=draft.runs()))
    return InputError(found or (Message("probes.none", "no dry runs were found that tell all memories apart", {}),))
