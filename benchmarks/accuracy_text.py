"""The words and tables of ``docs/accuracy.md``."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import yaml

from benchmarks.contradictions import contradictions
from benchmarks.disclosure import how, is_fitted, section
from benchmarks.ordinary import section as ordinary
from benchmarks.regimes import PUBLISHED, regimes, with_failures
from benchmarks.worst import settings, worst
from meshwright.catalog.calibrations import DEFAULT, calibration_table
from meshwright.catalog.ceilings import Ceiling, ceilings
from meshwright.evidence.rows.conventions import conventions
from meshwright.evidence.rows.table import count_reasons
from meshwright.evidence.score.metrics import reliability, scores
from meshwright.evidence.score.summary import summarise
from meshwright.report.validation import PLAIN, WORDS
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.evidence.score.summary import Aim, Part, Summary
    from meshwright.evidence.score.validation import Validation

PEERS = Path(__file__).parent / "peers.yaml"
MAIN = "grouped"
WORST, WORST_REGIMES, MAX_CELLS = 10, 15, 13
LEAST_JUDGED, LEAST_HELD, HELD, FAST = 30, 0.80, (0.87, 0.94), 0.10
"""Rows from which a set's intervals are judged, what they must hold, what all must hold, and the MFU above which widths count."""
SCHEMES = {
    "grouped": "ten folds; no configuration stands in two of them",
    "leave-one-model-out": "the model has never been seen, on any cluster",
    "leave-one-cluster-size-out": "the number of devices has never been seen",
    "leave-one-source-out": "the source, often with its framework and device, has never been seen",
}
SCORES = (
    "set", "rows", "step MAPE", "median factor", "bias", "within 2", "rank corr.", "memory MAPE", "runs or fails", "interval holds",
    "width", "measured twice", "one constant",
)


def document(found: Mapping[str, Validation]) -> str:
    """The whole of ``docs/accuracy.md``."""
    summaries = {scheme: summarise(each) for scheme, each in found.items()}
    main, summary = found[MAIN], summaries[MAIN]
    titles = list(found) if is_fitted(main) else ["priors, nothing held out"]
    lines = [
        "# How good the predictions are", "",
        "Written by `python -m benchmarks.accuracy --write`: every row of the published runs that ship with the product "
        f"(`meshwright catalog runs`), beside what was measured. {how(main)} `meshwright validate` prints the same figures, for "
        "these rows or for your own.", "",
        *(f"- **{scheme}**: {words}" + ("." if scheme != MAIN else "; all that follows is this scheme unless it says another.")
          for scheme, words in SCHEMES.items() if scheme in found and is_fitted(main)), "",
        f"{len(main.rows):,} rows are predicted, {summary.total.scores.step_n:,} of them have a measured step time and "
        f"{summary.total.scores.memory_n:,} a measured peak memory; {len(main.skipped)} rows are left out (last section). "
        "MAPE is the mean of |predicted / measured - 1|. *Measured twice*: how far re-measurements of one configuration lie "
        "apart, so what no prediction can do much better than halve. *One constant*: the error of a single fitted efficiency.",
        "", "## In short", "", "The set missed most comes first.", "",
        "<!-- summary -->", how(main), "", *short_table(summary), "<!-- /summary -->", "",
        "## Never worse than yesterday", "", "![Step-time error by set and version](accuracy/history.svg)", "",
        "`benchmarks/figures.csv` has the figures of every version, `python -m benchmarks.history` compares them: a set that "
        "became worse by more than its standard error, or predictions that moved without a new version, fail the tests unless "
        "`benchmarks/versions.yaml` says why.", "",
        "## What the predictions have seen", "", *section(), "",
        "## Ceilings that bind", "",
        "Constants that the shipped calibration has at the most that physics allows: where their runs ask for more, a formula is "
        "missing. The cells of a framework (device and precision) together, with the one that is pressed most.", "",
        *ceiling_table(), "",
        "## Step time", "", "![Predicted against measured step time, by set](accuracy/steps.svg)", "",
        "## Memory", "", "![Predicted against measured memory, by set](accuracy/memory.svg)", "",
        "## By regime", "", "![Predicted over measured step time, by regime](accuracy/regimes.svg)", "",
        f"The {WORST_REGIMES} worst regimes, the worst first:", "", *regime_table(main), "",
        "## Decisions", "",
        "In a cell (one model, cluster and batch, at least five measured layouts), what the layout ranked first loses against "
        "the best measured; a first choice that failed loses everything.", "", *cell_table(summary), "",
        "## Intervals and probabilities", "",
        "![Coverage of intervals and reliability of the probability to run](accuracy/coverage.svg)", "",
        "Other levels than 90 % stretch the intervals by what the rows of the other folds need.", "",
        "The half-width of the logarithm is q sqrt(s^2 + sum of u r^2 hidden). s is the spread of the regime and q its "
        "conformal quantile, both from rows whose like was in the fit. u, for the number of devices, the model, the cell "
        "(framework, device, kind of model) and the framework, is the variance of what all runs of a new value have in common, "
        "over that of one run of a usual regime, r^2; r grows with the fourth root of s. Each u is the one by which nine of ten "
        "rows that a fit without their number of devices, their model or their source predicts lie within (quantile "
        "regression), n rows of one source counting as their root. What is hidden is what runs of the value, or of models of "
        "nearly its shape, do not say: a few leave little (`domain/uncertainty.py`, `evidence/fit/spread.py`).", "",
        "The aim: 90 % intervals of the step time hold 87-94 % of all rows and at least 80 % of every set of "
        f"{LEAST_JUDGED} rows or more, with a median width under 30 % above 10 % MFU. The set that holds worst comes first; bold: "
        "outside the aim.", "", *interval_table(main, summary), "",
        "Rows whose layout is legal, by the probability to run that they were given, of frameworks whose sources publish what "
        f"failed (at least {percent(PUBLISHED, 0)} of their runs): elsewhere only what ran is written down, and says nothing.", "",
        *reliability_table(main), "",
        "## Targets, by scheme", "",
        "Targets hold for the first scheme; the others are reported beside it. Peers are public planners on the same rows: with "
        "nothing fitted, and with one time factor and one memory factor fitted to the very rows that are scored "
        "(benchmarks/peers.yaml). *One constant* and *measured twice* stand beside errors of the step time. The target missed most "
        "comes first.", "",
        *target_table(summaries, titles), "",
        *(["## The run in front of the user", "", *lines, ""] if (lines := ordinary(found)) else []),
    ]
    for title, each in zip(titles, summaries.values(), strict=True):
        lines += [f"## Scores: {title}", "", *score_table(each), ""]
    lines += [
        f"## The {WORST} worst rows", "",
        "By the factor between predicted and measured, with what the row's own figures and its nearest neighbour say.", "",
        *worst_list(main), "",
        "## NVIDIA rows that their neighbours contradict", "",
        "Rows off by more than a factor of 1.25, each beside the nearest row of the same model, precision and device that is "
        "predicted within 20 % and is a quarter faster or slower by MFU. Where little differs but the release, no prediction from "
        "the settings can meet both; where more differs, less is proved. They count in every score all the same.", "",
        *table(("row", "settings", "result", "neighbour"), contradictions(main.rows), left=4), "",
        "## What is assumed where a row is silent", "", *(f"- {text}" for text in conventions().assumptions), "",
        "## Rows left out", "",
        *(f"- {count}: {kind}" for kind, count in count_reasons(main.skipped).items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def ceiling_table() -> list[str]:
    """Constants at their maximum, by framework."""
    found: dict[tuple[str, str], list[Ceiling]] = {}
    for each in ceilings(calibration_table(DEFAULT)):
        found.setdefault((each.constant, each.cell.split()[1]), []).append(each)
    return table(("constant", "framework", "cells", "held at", "where most"), [
        (f"`{constant}`", framework, str(len(each)), f"{each[0].maximum:.2f}", each[0].cell)
        for (constant, framework), each in found.items()
    ], left=2)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """A Markdown table; columns after the first ``left`` stand to the right."""
    marks = [" --- "] * left + [" ---: "] * (len(head) - left)
    return ["| " + " | ".join(head) + " |", "|" + "|".join(marks) + "|", *("| " + " | ".join(cells) + " |" for cells in rows)]


def short_table(summary: Summary) -> list[str]:
    """Every set with its errors and targets: the README's table."""
    head = (
        "set", "rows", "step MAPE", "median factor", "bias", "memory MAPE", "runs or fails", "90 % interval holds",
        "targets met", "one constant",
    )
    rows = []
    for part in _worst_first(summary):
        own = part.scores
        met = f"{sum(aim.met for aim in part.aims)} of {len(part.aims)}" if part.aims else ""
        rows.append((
            part.name, f"{own.n:,}", _share(own.step_mape_ratio), _plain(own.step_median_factor), _signed(own.step_bias_ratio),
            _share(own.memory_mape_ratio), _share(own.fit_accuracy_ratio) if _has_failures(own.fit_n, own.step_n) else "",
            _share(own.interval_coverage_ratio), met, _share(own.constant_hfu_mape_ratio),
        ))
    return table(head, rows)


def score_table(summary: Summary) -> list[str]:
    """All scores of all sets, the worst first."""
    rows = []
    for part in _worst_first(summary):
        own = part.scores
        rows.append((
            part.name, f"{own.n:,}", _share(own.step_mape_ratio), _plain(own.step_median_factor), _signed(own.step_bias_ratio),
            _share(own.step_within_factor_2_ratio), _plain(own.spearman), _share(own.memory_mape_ratio),
            _share(own.fit_accuracy_ratio) if _has_failures(own.fit_n, own.step_n) else "", _share(own.interval_coverage_ratio),
            _share(own.interval_width_median_ratio), _share(own.noise_ratio), _share(own.constant_hfu_mape_ratio),
        ))
    return table(SCORES, rows)


def target_table(summaries: Mapping[str, Summary], titles: Sequence[str]) -> list[str]:
    """Every target with what each scheme reaches, and what peers do."""
    peers = {(each["set"], each["metric"]): each for each in yaml.safe_load(PEERS.read_text(encoding="utf-8"))}
    reached = {
        scheme: {(part.name, aim.metric): aim for part in summary.sets for aim in part.aims}
        for scheme, summary in summaries.items()
    }
    parts = {part.name: part for part in summaries[MAIN].sets}
    names = [f"*{scheme}*" if scheme != MAIN else scheme for scheme in titles]
    rows = []
    for key, aim in sorted(reached[MAIN].items(), key=lambda item: (-item[1].strain, item[0])):
        peer = peers.get(key, {"best": "", "fitted": ""})
        others = [_figure(aim.metric, found[key].value) if key in found else "" for found in reached.values()]
        others[0] = f"**{others[0]}**" if aim.met else others[0]
        own = parts[key[0]].scores
        beside = (_share(own.constant_hfu_mape_ratio), _share(own.noise_ratio)) if aim.metric == "step_mape_ratio" else ("", "")
        words = WORDS.get(aim.metric, aim.metric)
        rows.append((key[0], words, _bound(aim), *others, str(peer["best"]), str(peer["fitted"]), *beside))
    head = ("set", "metric", "target", *names, "best peer", "best peer, one factor fitted", "one constant", "measured twice")
    return [
        *table(head, rows, left=2), "",
        f"Reached: {sum(aim.met for aim in reached[MAIN].values())} of {len(reached[MAIN])} (bold).",
    ]


def regime_table(validation: Validation) -> list[str]:
    """Regimes by their error, the worst first."""
    found = []
    for each in regimes([row for row in validation.rows if row.timed]):
        ratios = [row.step_ratio for row in each.rows]
        off = fmean(abs(ratio - 1.0) for ratio in ratios)
        found.append((off, each, fmean(ratios) - 1.0, median(max(ratio, 1.0 / ratio) for ratio in ratios)))
    found.sort(key=lambda each: (-each[0], each[1].kind, each[1].name))
    rows = [
        (each.kind, each.name, str(len(each.rows)), _share(off), _plain(factor), _signed(bias))
        for off, each, bias, factor in found[:WORST_REGIMES]
    ]
    return table(("by", "regime", "rows", "step MAPE", "median factor", "bias"), rows, left=2)


def cell_table(summary: Summary) -> list[str]:
    """Cells of decisions, the worst first."""
    cells = sorted(summary.cells, key=lambda cell: (-cell.regret_ratio, cell.key))
    rows = []
    for each in cells[:MAX_CELLS]:
        remark = "nothing is said to fit" if each.nothing_fits else "the first choice failed" if each.failed_choice else ""
        rows.append((
            each.key[0], each.key[3], f"{each.key[6]} x {each.key[5]}", each.key[7], str(each.measured), str(each.failed),
            _share(each.regret_ratio), _share(each.best_of_3_regret_ratio), _plain(each.spearman), remark,
        ))
    head = ("source", "model", "devices", "precision", "ran", "failed", "regret", "best of 3", "rank corr.", "")
    lines = table(head, rows, left=4)
    if len(cells) > MAX_CELLS:
        lines += ["", f"{len(cells) - MAX_CELLS} more cells lose at most {_share(cells[MAX_CELLS].regret_ratio)}."]
    return lines


def interval_table(validation: Validation, summary: Summary) -> list[str]:
    """Coverage of the 90 % intervals of each larger set, and their widths, the worst first; all rows last."""
    rows = []
    for part in sorted(summary.sets, key=lambda each: (each.scores.interval_coverage_ratio or 0.0, each.name)):
        own, whole = part.scores, part.scores.n == summary.total.scores.n
        if own.interval_n < LEAST_JUDGED or own.interval_coverage_ratio is None or whole:
            continue
        held = _share(own.interval_coverage_ratio)
        cells = (held if own.interval_coverage_ratio >= LEAST_HELD else f"**{held}**", _share(own.interval_width_median_ratio))
        rows.append((part.name, f"{own.interval_n:,}", *cells, _share(own.memory_interval_coverage_ratio)))
    total = summary.total.scores
    if total.interval_coverage_ratio is not None:
        held = _share(total.interval_coverage_ratio)
        within = HELD[0] <= total.interval_coverage_ratio <= HELD[1]
        cells = (held if within else f"**{held}**", _share(total.interval_width_median_ratio))
        rows.append(("every row", f"{total.interval_n:,}", *cells, _share(total.memory_interval_coverage_ratio)))
    lines = table(("set", "rows", "step time holds", "median width", "memory holds"), rows)
    fast = scores([row for row in validation.rows if row.timed and (row.mfu or 0.0) >= FAST])
    if fast.interval_width_median_ratio is not None:
        wide = _share(fast.interval_width_median_ratio)
        lines += ["", f"Median width of the {fast.interval_n:,} rows above 10 % MFU: {wide}."]
    return lines


def reliability_table(validation: Validation) -> list[str]:
    """What a probability to run is worth, of the rows whose layout is legal, where failures are published."""
    rows = [
        (f"{each.low:.2f} - {each.high:.2f}", str(each.n), f"{each.mean_probability:.2f}", _share(each.ran_ratio))
        for each in reliability(with_failures(validation.rows))
    ]
    return table(("given a probability to run of", "rows", "mean", "of these ran"), rows)


def worst_list(validation: Validation) -> list[str]:
    """The worst rows with a reason each."""
    rows = [
        (
            f"`{each.scored.id}`", settings(each.scored), f"{each.scored.measured_step_s:.3g}", f"{each.scored.step_ratio:.2f}",
            _share(each.scored.mfu), "; ".join(each.reasons),
        )
        for each in worst(validation.rows, WORST)
    ]
    return table(("row", "settings", "measured, s", "predicted / measured", "MFU", "why"), rows, left=6)


def _worst_first(summary: Summary) -> list[Part]:
    return sorted(summary.sets, key=lambda part: (-part.strain, -(part.scores.step_mape_ratio or 0.0), part.name))


def _has_failures(ended: int, timed: int) -> bool:
    """Whether failed rows stand in a set; where none does, telling them apart says nothing."""
    return ended > 1.1 * timed


def _bound(aim: Aim) -> str:
    target = aim.target
    below = target.below is not None
    return f"{'<=' if below else '>='} {_figure(aim.metric, (target.below if below else target.above) or 0.0)}"


def _figure(metric: str, value: float) -> str:
    return f"{value:.3g}" if metric in PLAIN else _share(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
