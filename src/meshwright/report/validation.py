"""The report of ``validate``: sets against their targets, decisions, sources, what intervals and probabilities are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.evidence.rows.table import as_lines, by_number
from meshwright.report.figures import Column, Figures, plain_table
from meshwright.text import visible
from meshwright.words import integer, percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.evidence.score.cells import Cell
    from meshwright.evidence.score.metrics import Bin, Scores
    from meshwright.evidence.score.summary import Aim, Part, Summary
    from meshwright.evidence.score.validation import Tally

STEP = ("rows", "step\nMAPE", "\nmedian", "\nbias", "rank\ncorr.", "re-\nmeasured", "one\nconstant")
OTHER = ("memory\nMAPE", "\nbias", "fits\nright", "interval\nholds", "\nwidth")
WORDS = {
    "regret_mean_ratio": "regret, mean", "regret_worst_ratio": "regret, worst", "best_of_3_regret_mean_ratio": "regret, best of 3",
    "failed_choices_explained": "failed first choices that memory explains", "spearman_within_cells_median": "rank correlation",
    "step_mape_ratio": "step time, MAPE", "step_bias_ratio": "step time, bias", "step_median_factor": "step time, median factor",
    "step_within_factor_2_ratio": "step time, within a factor of 2", "memory_mape_ratio": "memory, MAPE",
    "fit_accuracy_ratio": "fits or fails, right", "interval_coverage_ratio": "interval holds",
    "interval_width_median_ratio": "interval, median width",
}
PLAIN = {"step_median_factor", "spearman_within_cells_median", "failed_choices_explained"}
"""Metrics that are no percentages."""
MAX_REASONS, MAX_CELLS, LEAST_WORDS = 12, 15, 20


def validation_report(validation: Tally, summary: Summary) -> Iterator[RenderableType]:
    """Everything, the worst first."""
    yield from _head(validation, summary)
    yield from _aims(summary.sets)
    yield from _table("Sets, the worst first", "set", sorted(summary.sets, key=_worst_first))
    yield from _table("Sources, the worst first", "source", sorted(summary.groups.values(), key=_worst_first))
    for title, noun, parts in (
        ("Devices", "device", summary.devices), ("Frameworks", "framework", summary.frameworks), ("Models", "kind", summary.kinds),
    ):
        yield from _table(f"{title}, the worst first", noun, sorted(parts.values(), key=_worst_first))
    yield from _cells(summary.cells)
    yield from _reliability(summary.reliability)
    yield from _skipped(validation)


def _head(validation: Tally, summary: Summary) -> Iterator[RenderableType]:
    total = summary.total.scores
    how = f"scheme {validation.scheme}, {plural(validation.folds, 'fit')}" if validation.scheme else "nothing fitted to these rows"
    title = Text("Validation", style="bold").append(f"   calibration {validation.calibration}   {how}", style="not bold")
    yield Padding(title, (1, 0, 0, 0))
    words = (
        f"{integer(len(validation.rows))} rows predicted, {integer(total.step_n)} with a measured step, "
        f"{integer(total.memory_n)} with measured memory, {integer(len(validation.skipped))} left out"
    )
    yield Padding(Text(words), (0, 0, 0, 2))
    if validation.known_configurations:
        words = f"{plural(validation.known_configurations, 'row is', 'rows are')} of configurations that the shipped corpus holds"
        yield Padding(Text(f"note: {words}: a calibration fitted to it has seen them", style="yellow"), (0, 0, 0, 2))
    if validation.unknown_columns:
        names = visible(", ".join(validation.unknown_columns))
        yield Padding(Text(f"note: columns that are not read: {names}", style="yellow"), (0, 0, 0, 2))


def _worst_first(part: Part) -> tuple[float, float, str]:
    return -part.strain, -(part.scores.step_mape_ratio or 0.0), part.name


def _aims(parts: Sequence[Part]) -> Iterator[RenderableType]:
    """Targets and what is reached, those missed most first."""
    rows = [(part, aim) for part in parts for aim in part.aims]
    if not rows:
        return
    met = sum(aim.met for _, aim in rows)
    yield Padding(Text(f"Targets: {met} of {len(rows)} reached, those missed most first", style="bold"), (1, 0, 0, 0))
    table = plain_table()
    for name in ("set", "metric"):
        table.add_column(name, min_width=LEAST_WORDS, overflow="fold")
    for name in ("target", "reached", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for part, aim in sorted(rows, key=lambda each: (-each[1].strain, each[0].name, each[1].metric)):
        style = "green" if aim.met else "red"
        words = WORDS.get(aim.metric, aim.metric)
        table.add_row(
            Text(part.name), words, _bound(aim), Text(_figure(aim.metric, aim.value), style=style), "" if aim.met else "missed"
        )
    yield Padding(table, (0, 0, 0, 2))


def _bound(aim: Aim) -> str:
    target = aim.target
    if target.below is not None:
        return f"<= {_figure(aim.metric, target.below)}"
    return f">= {_figure(aim.metric, target.above or 0.0)}"


def _figure(metric: str, value: float) -> str:
    return f"{value:.3g}" if metric in PLAIN else percent(value)


def _table(title: str, noun: str, parts: Sequence[Part]) -> Iterator[RenderableType]:
    """The scores of some parts; a column that is blank for all of them is left out."""
    shown = [part for part in parts if part.scores.n]
    if not shown:
        return
    groups = [
        _columns(STEP, [_step_scores(part.scores) for part in shown]),
        _columns(OTHER, [_other_scores(part.scores) for part in shown]),
    ]
    yield Padding(Text(title, style="bold"), (1, 0, 0, 0))
    yield Padding(Figures(noun=noun, names=[part.name for part in shown], groups=groups), (0, 0, 0, 2))


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Column]:
    """The columns that hold a figure."""
    cells = zip(*rows, strict=True)
    return [Column(heading=heading, cells=own) for heading, own in zip(headings, cells, strict=True) if any(own)]


def _step_scores(found: Scores) -> list[str]:
    return [
        integer(found.n), _share(found.step_mape_ratio), _share(found.step_median_ape_ratio), _signed(found.step_bias_ratio),
        "" if found.spearman is None else f"{found.spearman:.2f}", _share(found.noise_ratio),
        _share(found.constant_hfu_mape_ratio),
    ]


def _other_scores(found: Scores) -> list[str]:
    return [
        _share(found.memory_mape_ratio), _signed(found.memory_bias_ratio), _share(found.fit_accuracy_ratio),
        _share(found.interval_coverage_ratio), _share(found.interval_width_median_ratio),
    ]


def _cells(cells: Sequence[Cell]) -> Iterator[RenderableType]:
    """Cells of the decisions that lose most, with what a choice costs."""
    if not cells:
        return
    worst = sorted(cells, key=lambda cell: (-cell.regret_ratio, cell.key))
    shown = worst[:MAX_CELLS]
    columns = [
        Column(heading="ran", cells=[str(each.measured) for each in shown]),
        Column(heading="failed", cells=[str(each.failed) for each in shown]),
        Column(heading="regret", cells=[percent(each.regret_ratio) for each in shown]),
        Column(heading="best\nof 3", cells=[percent(each.best_of_3_regret_ratio) for each in shown]),
        Column(heading="rank\ncorr.", cells=["" if each.spearman is None else f"{each.spearman:.2f}" for each in shown]),
    ]
    words = "Decisions, the worst first: what the first choice of a cell loses against the best measured"
    yield Padding(Text(words, style="bold"), (1, 0, 0, 0))
    yield Padding(Figures(noun="cell", names=[_cell_name(each) for each in shown], groups=[columns]), (0, 0, 0, 2))
    if len(worst) > MAX_CELLS:
        words = f"and {len(worst) - MAX_CELLS} cells that lose at most {percent(worst[MAX_CELLS].regret_ratio)} (--json lists all)"
        yield Padding(Text(words, style="dim"), (0, 0, 0, 2))


def _cell_name(cell: Cell) -> str:
    source, _, _, model, _, gpu, devices, precision, batch, _ = cell.key
    remark = ": nothing is said to fit" if cell.nothing_fits else ": the first choice failed" if cell.failed_choice else ""
    return f"{source}, {model}, {devices} {gpu}, {precision}, batch {batch}{remark}"


def _reliability(bins: Sequence[Bin]) -> Iterator[RenderableType]:
    """What a probability to run is worth."""
    if not bins:
        return
    table = plain_table()
    table.add_column("given a probability to run of")
    for name in ("rows", "mean", "of these ran"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in bins:
        table.add_row(f"{each.low:.2f} - {each.high:.2f}", integer(each.n), f"{each.mean_probability:.2f}", percent(each.ran_ratio))
    yield Padding(Text("Probability to run", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))


def _skipped(validation: Tally) -> Iterator[RenderableType]:
    """Counts of the rows that were left out, by reason, and the first row of each."""
    if not validation.skipped:
        return
    yield Padding(Text(f"Left out: {plural(len(validation.skipped), 'row')}", style="bold"), (1, 0, 0, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    counts = by_number(validation.skipped.kinds)
    for kind, count in list(counts.items())[:MAX_REASONS]:
        table.add_row(integer(count), Text(f"{kind}, ").append(as_lines(validation.skipped.first(kind)), style="dim"))
    if len(counts) > MAX_REASONS:
        table.add_row(integer(sum(list(counts.values())[MAX_REASONS:])), Text("for other reasons (--json lists all)"))
    yield Padding(table, (0, 0, 0, 2))


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+z.1f} %"
