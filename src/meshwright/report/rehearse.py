"""The closed loop as one view: predicted beside measured, scores, and in one sentence what may be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.rehearse import _signed
from meshwright.measure.rehearse.scores import spread
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType


    View = Mapping[str, Any]


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
