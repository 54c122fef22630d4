"""The closed loop as one view: predicted beside measured, scores, and in one sentence what may be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.measure.scores import spread
from meshwright.report.view import layout_view, number, plain, whole
from meshwright.report.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from meshwright.measure.rehearsal import Entry, Rehearsal

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
    return "" if ratio is None else f"{100 * ratio:+.0f} %"


def rehearsal_report(view: View) -> Iterator[RenderableType]:
    """The table, the scores and the sentence."""
    yield Text(
        f"{view['model']}, {view['global_batch_sequences']} x {view['sequence_tokens']:,} tokens, {view['precision']}, "
        f"{plural(view['ranks'], 'rank')} on {view['cluster']}",
        style="bold",
    )
    ends = [] if view["complete"] else ["interrupted"]
    if view["oversubscribed"]:
        ends.append(f"oversubscribed ({plural(view['cores'], 'core')}): reported only")
    if ends:
        yield Text("; ".join(ends), style="yellow")
    yield Padding(_table(view), (1, 0, 1, 2))
    yield from (
        Padding(Text(f"{terse(entry['label'])}: did not run: {entry['cause'] or 'not reached'}", style="yellow"), (0, 0, 0, 2))
        for entry in view["entries"] if entry["measured_s"] is None
    )
    if view["scores"] is not None:
        sets = {"after profiling" if view["profiled"] else "by the catalogue": view["scores"]}
        if _before(view):
            sets["before profiling"] = view["scores_before_profiling"]
        yield Padding(_scores(sets), (0, 0, 1, 2))
    yield Text(view["verdict"], style="bold")


def _before(view: View) -> bool:
    """Whether there are predictions from before profiling to stand beside."""
    return bool(view["profiled"] and view["scores_before_profiling"] is not None)


def terse(name: str) -> str:
    """A label without the words that say nothing: reads back as the same layout.

    >>> terse("tp1 pp2 dp1 mb1 zero0 schedule=zb1p")
    'pp2 mb1 schedule=zb1p'
    """
    return " ".join(word for word in name.split() if word not in ("tp1", "pp1", "dp1", "zero0"))


def _table(view: View) -> Table:
    table = _plain_table()
    before = _before(view)
    memory = any(entry["memory_peak_measured_bytes"] for entry in view["entries"])
    columns = ["layout", "plan", *(["before"] if before else []), "predicted", "measured", "spread", "error", "rank", "measured"]
    widest = max((len(word) for entry in view["entries"] for word in terse(entry["label"]).split()), default=0)
    for place, name in enumerate([*columns, *(["memory", "measured"] if memory else [])]):
        table.add_column(name, justify="right" if place else "left", overflow="fold", min_width=None if place else widest)
    for entry in view["entries"]:
        if entry["measured_s"] is None:
            continue
        before_s = [seconds(entry["predicted_before_profiling_s"])] if before else []
        peaks = [gib(entry[f"memory_peak_{word}bytes"] or 0) for word in ("", "measured_")] if memory else []
        table.add_row(
            terse(entry["label"]), str(entry["planned"] or ""), *before_s, seconds(entry["predicted_s"]),
            seconds(entry["measured_s"]), _spread(entry["runs_s"]), _signed(entry["error_ratio"]), str(entry["rank_predicted"]),
            str(entry["rank_measured"]), *peaks,
        )
    return table


def _spread(runs: Sequence[float]) -> str:
    return percent(spread(runs), 0) if len(runs) > 1 else ""


def _scores(sets: Mapping[str, View]) -> Table:
    table = _plain_table()
    table.add_column("")
    for name in sets:
        table.add_column(name, justify="right")
    every = [score_rows(scores) for scores in sets.values()]
    for rows in zip(*every, strict=True):
        table.add_row(rows[0][0], *(words for _, words in rows))
    return table


def score_rows(scores: View) -> list[tuple[str, str]]:
    """Names and words of scores."""
    noise = scores["noise"]
    rows = [
        ("median error", percent(scores["median_error_ratio"])), ("worst error", _signed(scores["worst_error_ratio"])),
        ("bias", _signed(scores["bias_ratio"])), ("rank correlation", "" if scores["order"] is None else f"{scores['order']:.2f}"),
        ("regret", percent(scores["regret_ratio"])),
    ]
    if noise:
        low, high = percent(noise["regret_low_ratio"]), percent(noise["regret_high_ratio"])
        rows += [
            ("regret, 90 % of repetitions drawn again", f"{low} to {high}"),
            ("regret of choosing by a measurement", percent(noise["choice_regret_ratio"])),
            ("repetitions of one layout", percent(noise["spread_ratio"])),
        ]
    return rows


def _plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
