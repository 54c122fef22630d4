"""The closed loop as one view: predicted beside measured, scores, and in one sentence what may be believed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from meshwright.api.views.rehearse import _signed
from meshwright.measure.rehearse.scores import spread
from meshwright.report.blocks import Run, figure, line, table
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.report.blocks import Block, Table

    View = Mapping[str, Any]


def rehearsal_report(view: View) -> Iterator[Block]:
    """The table, the scores and the sentence."""
    yield line(Run(
        f"{view['model']}, {view['global_batch_sequences']} x {view['sequence_tokens']:,} tokens, {view['precision']}, "
        f"{plural(view['ranks'], 'rank')} on {view['cluster']}", bold=True,
    ))
    ends = [] if view["complete"] else ["interrupted"]
    if view["oversubscribed"]:
        ends.append(f"oversubscribed ({plural(view['cores'], 'core')}): reported only")
    if ends:
        yield line("; ".join(ends), kind="note")
    yield _table(view)
    for entry in view["entries"]:
        if entry["measured_s"] is None:
            yield line(f"{terse(entry['label'])}: did not run: {entry['cause'] or 'not reached'}", kind="note", indent=2)
    if view["scores"] is not None:
        sets = {"after profiling" if view["profiled"] else "by the catalogue": view["scores"]}
        if _before(view):
            sets["before profiling"] = view["scores_before_profiling"]
        yield _scores(sets)
    yield line(Run(view["verdict"], bold=True), above=True)


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
    """Times, ranks and memory of what ran: predicted, then measured."""
    ran = [entry for entry in view["entries"] if entry["measured_s"] is not None]
    groups: list[list[tuple[str, Sequence[str | Run]]]] = [[
        ("plan", [str(entry["planned"] or "") for entry in ran]),
        *([("before", [figure(entry["predicted_before_profiling_s"], seconds) for entry in ran])] if _before(view) else []),
        ("predicted", [figure(entry["predicted_s"], seconds) for entry in ran]),
        ("measured", [figure(entry["measured_s"], seconds) for entry in ran]),
        ("spread", [_spread(entry["runs_s"]) for entry in ran]), ("error", [_signed(entry["error_ratio"]) for entry in ran]),
    ], [(f"rank,\n{word}", [str(entry[f"rank_{word}"]) for entry in ran]) for word in ("predicted", "measured")]]
    if any(entry["memory_peak_measured_bytes"] for entry in view["entries"]):
        peaks = {"predicted": "memory_peak_bytes", "measured": "memory_peak_measured_bytes"}
        groups.append([
            (f"memory,\n{word}", [figure(entry[key], gib) if entry[key] else "" for entry in ran]) for word, key in peaks.items()
        ])
    columns = [("layout", [terse(entry["label"]) for entry in ran]), *(column for group in groups for column in group)]
    ends = [1 + sum(map(len, groups[:place])) for place in range(len(groups) + 1)]
    return table(
        [name for name, _ in columns], zip(*(cells for _, cells in columns), strict=True), right=range(1, len(columns)), code=[0],
        groups=tuple(tuple(range(*each)) for each in pairwise(ends)), above=True,
    )


def _spread(runs: Sequence[float]) -> str:
    return percent(spread(runs), 0) if len(runs) > 1 else ""


def _scores(sets: Mapping[str, View]) -> Table:
    every = [score_rows(scores) for scores in sets.values()]
    rows = [(rows[0][0], *(words for _, words in rows)) for rows in zip(*every, strict=True)]
    return table(["", *sets], rows, right=range(1, len(sets) + 1), above=True)


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
