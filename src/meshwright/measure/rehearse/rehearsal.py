"""One closed loop for a number of ranks: plan, choose, run, compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from meshwright.engine.launch import cores_here
from meshwright.errors import NoAnswerError, fault
from meshwright.estimate.single import estimate
from meshwright.measure.reference import case_of, planned
from meshwright.measure.rehearse.choice import chosen, short_label
from meshwright.measure.rehearse.rounds import Job, failure, medians, peak_bytes, run_rounds
from meshwright.measure.rehearse.scores import Scores, scores

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster
    from meshwright.domain.layout import Layout
    from meshwright.engine.request import Options
    from meshwright.measure.rehearse.rounds import Runner, Tick
    from meshwright.measure.rehearse.store import Store

MAX_RANKS = 64
LEADERS = 3
"""The first plans that are run before others are chosen for what they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One layout: predicted, and as measured in every round."""

    label: str
    layout: Layout
    predicted_s: float
    prior_s: float | None
    """Predicted before anything of this machine was measured; None where the catalogue does not know such a device."""
    planned: int | None
    """Its place among the plans of the search; None: chosen to show what no plan did."""
    runs_s: tuple[float, ...] = ()
    """The median step of each round."""
    memory_bytes: float = 0.0
    """Predicted peak of the fullest rank, as the allocator counts it."""
    memory_measured_bytes: int | None = None
    """The same, measured; None where there is no such allocator."""
    cause: str = ""
    """Why it did not run."""

    @property
    def measured_s(self) -> float | None:
        """The median over rounds; None where it did not run."""
        return median(self.runs_s) if self.runs_s else None

    @property
    def error_ratio(self) -> float | None:
        """Predicted over measured, less 1."""
        measured_s = self.measured_s
        return None if measured_s is None else self.predicted_s / measured_s - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What was predicted and what was measured for one number of ranks."""

    case: Case
    profiled: bool
    """The cluster's figures were measured, by this command or by ``meshwright profile``."""
    ranks: int
    cores: int
    rounds: int
    entries: tuple[Entry, ...]
    scores: Scores | None
    prior_scores: Scores | None
    """The same of the predictions before profiling; None where there are none."""
    complete: bool
    """False where the user interrupted it."""
    backend: str = "cpu"

    @property
    def oversubscribed(self) -> bool:
        """More ranks than cores: they wait for each other, and no prediction knows for how long."""
        return self.backend == "cpu" and self.ranks > self.cores


def check_ranks(ranks: int) -> int:
    """A number of ranks that one machine can start.

    Errors:  InputError where it is not within 1..64.
    """
    if not 1 <= ranks <= MAX_RANKS:
        raise fault("rehearse.ranks", "{ranks} ranks are not within 1 and {most}: this starts processes on one machine",
                    path="--ranks", ranks=ranks, most=MAX_RANKS)
    return ranks


def entries_of(case: Case, prior: Case | None, options: Options, count: int) -> tuple[Entry, ...]:
    """The layouts that are to be run, with both predictions; the plan's first stands first.

    Errors:  InputError where no layout is legal; NoAnswerError where none fits the memory.
    """
    result = planned(case, options, top=max(count, LEADERS))
    if not result.plans:
        raise NoAnswerError(fault("rehearse.memory", "no layout of {model} over {ranks} ranks fits the memory of this machine",
                                  model=case.model.name, ranks=case.cluster.num_devices).messages)
    places = {plan.layout: plan.rank for plan in result.plans}
    found = chosen(case, options, [plan.layout for plan in result.plans[:LEADERS]], count)
    entries = []
    for layout in found:
        own = estimate(case, layout)
        entries.append(Entry(
            label=short_label(layout), layout=layout, planned=places.get(layout), predicted_s=float(own.step_s),
            prior_s=None if prior is None else float(estimate(prior, layout).step_s), memory_bytes=float(own.memory_peak_bytes),
        ))
    return tuple(entries)


def rehearsed(
    case: Case, prior: Cluster | None, options: Options, *, layouts: int, rounds: int, store: Store, runner: Runner,
    tick: Tick | None = None,
) -> Rehearsal:
    """Plan a case, run the layouts, and set the measured beside the predicted.

    ``prior``: the cluster as the catalogue has it, for the predictions before profiling; None where it has none.
    """
    before = None if prior is None else _with_cluster(case, prior)
    entries = entries_of(case, before, options, layouts)
    jobs = [Job(case=case, layout=entry.layout, options=options, predicted_s=entry.predicted_s) for entry in entries]
    complete = run_rounds(jobs, rounds, store, runner, tick=tick)
    entries = tuple(_measured(entry, job, store) for entry, job in zip(entries, jobs, strict=True))
    ran = [entry for entry in entries if entry.runs_s]
    runs = [entry.runs_s for entry in ran]
    priors = [entry.prior_s for entry in ran if entry.prior_s is not None]
    first = next((place for place, entry in enumerate(ran) if entry.planned == 1), None)
    return Rehearsal(
        case=case, profiled=case.cluster.measured is not None, ranks=case.cluster.num_devices, cores=cores_here(), rounds=rounds,
        entries=entries, complete=complete, backend=options.backend,
        scores=scores([entry.predicted_s for entry in ran], runs, first),
        prior_scores=scores(priors, runs) if priors else None,
    )


def _measured(entry: Entry, job: Job, store: Store) -> Entry:
    return replace(entry, runs_s=medians(job, store), memory_measured_bytes=peak_bytes(job, store), cause=failure(job, store))


def _with_cluster(case: Case, cluster: Cluster) -> Case:
    """The case on another cluster, with that one's constants."""
    return case_of(
        case.model, cluster, global_batch=case.batch.global_batch_sequences, sequence_tokens=case.batch.sequence_tokens,
        precision=case.training.precision.name,
    )
