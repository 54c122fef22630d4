"""JSON of ``rehearse``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import layout_view, number, plain, whole
from meshwright.words import percent, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.rehearse.rehearsal import Entry, Rehearsal

    View = Mapping[str, Any]


GOOD_REGRET = 0.05
"""A choice this much slower than the best is good, and so is one no worse than choosing by a measurement would be."""
GOOD_ORDER = 0.8
FEWEST_RANKED = 6
"""Layouts from which their order says something."""
TOO_BUSY = 0.25
"""Repetitions of one layout that differ by more say that other programs were measured."""
GOOD_ERROR = 0.25
"""Median error of step times that may be used as seconds."""


def rehearsal_view(rehearsal: Rehearsal) -> dict[str, Any]:
    """One number of ranks as JSON of the contract; entries by their predicted time, those that did not run last."""
    ordered = sorted(rehearsal.entries, key=lambda entry: (not entry.runs_s, entry.predicted_s))
    ran = [entry for entry in ordered if entry.runs_s]
    by_time = sorted(ran, key=lambda entry: entry.measured_s or 0.0)
    view = {
        "model": rehearsal.case.model.name, "global_batch_sequences": rehearsal.case.batch.global_batch_sequences,
        "sequence_tokens": rehearsal.case.batch.sequence_tokens, "precision": rehearsal.case.training.precision.name,
        "implementation": rehearsal.case.implementation.name, "cluster": rehearsal.case.cluster.name,
        "profiled": rehearsal.profiled, "backend": rehearsal.backend, "ranks": rehearsal.ranks, "cores": rehearsal.cores,
        "oversubscribed": rehearsal.oversubscribed, "rounds": rehearsal.rounds, "complete": rehearsal.complete,
        "entries": [_entry(entry, ran, by_time) for entry in ordered],
        "scores": plain(rehearsal.scores), "scores_before_profiling": plain(rehearsal.prior_scores),
    }
    return {**view, "verdict": verdict(view)}


def _entry(entry: Entry, ran: Sequence[Entry], by_time: Sequence[Entry]) -> dict[str, Any]:
    return {
        "label": entry.label, "layout": layout_view(entry.layout), "planned": entry.planned, "predicted_s": entry.predicted_s,
        "predicted_before_profiling_s": number(entry.prior_s), "measured_s": number(entry.measured_s), "runs_s": list(entry.runs_s),
        "error_ratio": number(entry.error_ratio), "rank_predicted": ran.index(entry) + 1 if entry in ran else None,
        "rank_measured": by_time.index(entry) + 1 if entry in ran else None, "cause": entry.cause,
        "memory_peak_bytes": whole(entry.memory_bytes), "memory_peak_measured_bytes": entry.memory_measured_bytes,
    }


def verdict(view: View) -> str:
    """What may be believed, in one sentence."""
    scores = view["scores"]
    noise = scores and scores["noise"]
    if scores is None:
        return "Nothing ran, so nothing is known."
    if view["oversubscribed"]:
        return f"{view['ranks']} ranks on {plural(view['cores'], 'core')} wait for each other: shown, not judged."
    if noise and noise["spread_ratio"] > TOO_BUSY:
        return f"Repetitions of one layout differ by {percent(noise['spread_ratio'], 0)}: the machine is too busy to judge by."
    if scores["layouts"] < 2:
        return "One layout says nothing of a choice; run more."
    lag = f"{percent(scores['regret_ratio'])} slower than the fastest" if scores["regret_ratio"] else "the fastest"
    failed = any(entry["planned"] == 1 and entry["measured_s"] is None for entry in view["entries"])
    choice = "the choice (its layout did not run)" if failed else (
        f"the choice (its layout is {lag} of {scores['layouts']}{_repeats(scores)})"
    )
    ranked = scores["order"] is not None and scores["layouts"] >= FEWEST_RANKED
    order = f"the order (rank correlation {scores['order']:.2f})" if ranked else ""
    middle, worst = percent(scores["median_error_ratio"], 0), _signed(scores["worst_error_ratio"])
    times = f"the seconds (off by {middle} in the middle, {worst} at worst)"
    judged = [
        (choice, not failed and scores["regret_ratio"] <= max(GOOD_REGRET, noise["choice_regret_ratio"] if noise else 0.0)),
        (order, ranked and scores["order"] >= GOOD_ORDER),
        (times, scores["median_error_ratio"] <= GOOD_ERROR),
    ]
    good = [words for words, holds in judged if words and holds]
    bad = [words for words, holds in judged if words and not holds]
    if not good:
        return f"Do not believe {_listed(bad, 'or')}."
    return f"Believe {_listed(good, 'and')}" + (f", but not {_listed(bad, 'nor')}." if bad else ".")


def _repeats(scores: View) -> str:
    return f", repetitions differ by {percent(scores['noise']['spread_ratio'])}" if scores["noise"] else ""


def _listed(words: Sequence[str], joint: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"


def _signed(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:+z.0f} %"
