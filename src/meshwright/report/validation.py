"""The report of ``validate``: sets against their targets, decisions, sources, what intervals and probabilities are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.evidence.rows.table import as_lines, by_number
from meshwright.report.blocks import Block, Cell, Run, Section, Table, cell, figure, line, table
from meshwright.text import visible
from meshwright.words import integer, percent, plural, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.evidence.score.cells import Cell as Decision
    from meshwright.evidence.score.metrics import Bin, Scores
    from meshwright.evidence.score.summary import Aim, Part, Summary
    from meshwright.evidence.score.validation import Tally

    Value = str | Run | Cell

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


def validation_report(validation: Tally, summary: Summary) -> Iterator[Section]:
    """Everything, the worst first."""
    yield _head(validation, summary)
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


def _head(validation: Tally, summary: Summary) -> Section:
    how = f"scheme {validation.scheme}, {plural(validation.folds, 'fit')}" if validation.scheme else "as it is, not fitted anew"
    return Section(title="Validation", remark=f" calibration {validation.calibration}   {how}",
                   blocks=tuple(_counts(validation, summary.total.scores)))


def _counts(validation: Tally, total: Scores) -> Iterator[Block]:
    """How many rows there are of each sort."""
    yield line(
        f"{integer(len(validation.rows))} rows predicted, {integer(total.step_n)} with a measured step, "
        f"{integer(total.memory_n)} with measured memory, {integer(len(validation.skipped))} left out", indent=2,
    )
    if validation.known_configurations:
        words = f"{plural(validation.known_configurations, 'row is', 'rows are')} of configurations that the shipped corpus holds"
        yield line(f"note: {words}: a calibration fitted to it has seen them", kind="note", indent=2)
    if validation.unknown_columns:
        names = visible(", ".join(validation.unknown_columns))
        yield line(f"note: columns that are not read: {names}", kind="note", indent=2)


def _worst_first(part: Part) -> tuple[float, float, str]:
    return -part.strain, -(part.scores.step_mape_ratio or 0.0), part.name


def _aims(parts: Sequence[Part]) -> Iterator[Section]:
    """Targets and what is reached, those missed most first."""
    rows = [(part, aim) for part in parts for aim in part.aims]
    if not rows:
        return
    met = sum(aim.met for _, aim in rows)
    told = [
        (
            part.name, WORDS.get(aim.metric, aim.metric), _bound(aim), _figure(aim.metric, aim.value, met=aim.met),
            "" if aim.met else "missed",
        )
        for part, aim in sorted(rows, key=lambda each: (-each[1].strain, each[0].name, each[1].metric))
    ]
    found = table(("set", "metric", "target", "reached", ""), told, right=(2, 3, 4), whole=(2, 3, 4), look="close",
                  least=((0, LEAST_WORDS), (1, LEAST_WORDS)))
    yield Section(title=f"Targets: {met} of {len(rows)} reached, those missed most first", blocks=(found,))


def _bound(aim: Aim) -> Cell:
    target = aim.target
    if target.below is not None:
        return cell("<= ", _figure(aim.metric, target.below))
    return cell(">= ", _figure(aim.metric, target.above or 0.0))


def _figure(metric: str, value: float, *, met: bool | None = None) -> Run:
    tone: Any = "" if met is None else "good" if met else "bad"
    return Run(f"{value:.3g}", tone, value=value) if metric in PLAIN else figure(value, percent, tone=tone)


def _table(title: str, noun: str, parts: Sequence[Part]) -> Iterator[Section]:
    """The scores of some parts; a column that is blank for all of them is left out."""
    shown = [part for part in parts if part.scores.n]
    if shown:
        groups = ((STEP, [_step_scores(part.scores) for part in shown]), (OTHER, [_other_scores(part.scores) for part in shown]))
        yield Section(title=title, blocks=(_grouped(noun, [part.name for part in shown], groups),))


def _grouped(noun: str, names: Sequence[str], groups: Sequence[tuple[Sequence[str], Sequence[Sequence[Value]]]]) -> Table:
    """Names with groups of figures, of which those stay that any name has."""
    head, columns, kept = [noun], [], []
    for headings, rows in groups:
        own = [(heading, cells) for heading, cells in zip(headings, zip(*rows, strict=True), strict=True) if any(cells)]
        kept.append(tuple(range(len(head), len(head) + len(own))))
        head += [heading for heading, _ in own]
        columns += [cells for _, cells in own]
    rows = list(zip(names, *columns, strict=True))
    return table(head, rows, right=range(1, len(head)), groups=tuple(kept))


def _step_scores(found: Scores) -> list[Value]:
    return [
        figure(found.n, integer), _share(found.step_mape_ratio), _share(found.step_median_ape_ratio),
        _signed(found.step_bias_ratio), _correlation(found.spearman), _share(found.noise_ratio),
        _share(found.constant_hfu_mape_ratio),
    ]


def _other_scores(found: Scores) -> list[Value]:
    return [
        _share(found.memory_mape_ratio), _signed(found.memory_bias_ratio), _share(found.fit_accuracy_ratio),
        _share(found.interval_coverage_ratio), _share(found.interval_width_median_ratio),
    ]


def _cells(cells: Sequence[Decision]) -> Iterator[Section]:
    """Cells of the decisions that lose most, with what a choice costs."""
    if not cells:
        return
    worst = sorted(cells, key=lambda each: (-each.regret_ratio, each.key))
    shown = worst[:MAX_CELLS]
    rows: list[list[Value]] = [
        [str(each.measured), str(each.failed), figure(each.regret_ratio, percent), figure(each.best_of_3_regret_ratio, percent),
         _correlation(each.spearman)]
        for each in shown
    ]
    heads = ("ran", "failed", "regret", "best\nof 3", "rank\ncorr.")
    blocks: list[Block] = [_grouped("cell", [_cell_name(each) for each in shown], [(heads, rows)])]
    if len(worst) > MAX_CELLS:
        words = f"and {len(worst) - MAX_CELLS} cells that lose at most {percent(worst[MAX_CELLS].regret_ratio)} (--json lists all)"
        blocks.append(line(words, kind="small", indent=2))
    title = "Decisions, the worst first: what the first choice of a cell loses against the best measured"
    yield Section(title=title, blocks=tuple(blocks))


def _cell_name(found: Decision) -> str:
    source, _, _, model, _, gpu, devices, precision, batch, _ = found.key
    remark = ": nothing is said to fit" if found.nothing_fits else ": the first choice failed" if found.failed_choice else ""
    return f"{source}, {model}, {devices} {gpu}, {precision}, batch {batch}{remark}"


def _reliability(bins: Sequence[Bin]) -> Iterator[Section]:
    """What a probability to run is worth."""
    if not bins:
        return
    rows = [
        (f"{each.low:.2f} - {each.high:.2f}", figure(each.n, integer), f"{each.mean_probability:.2f}",
         figure(each.ran_ratio, percent))
        for each in bins
    ]
    head = ("given a probability to run of", "rows", "mean", "of these ran")
    yield Section(title="Probability to run", blocks=(table(head, rows, right=(1, 2, 3), whole=(1, 2, 3), look="close"),))


def _skipped(validation: Tally) -> Iterator[Section]:
    """Counts of the rows that were left out, by reason, and the first row of each."""
    if not validation.skipped:
        return
    counts = by_number(validation.skipped.kinds)
    rows: list[tuple[Value, ...]] = [
        (figure(count, integer), cell(f"{kind}, ", Run(as_lines(validation.skipped.first(kind)), "dim")))
        for kind, count in list(counts.items())[:MAX_REASONS]
    ]
    if len(counts) > MAX_REASONS:
        rest = sum(list(counts.values())[MAX_REASONS:])
        rows.append((figure(rest, integer), "for other reasons (--json lists all)"))
    yield Section(title=f"Left out: {plural(len(validation.skipped), 'row')}",
                  blocks=(table(("", ""), rows, right=(0,), whole=(0,), look="plain"),))


def _correlation(value: float | None) -> Value:
    return "" if value is None else Run(f"{value:.2f}", value=value)


def _share(value: float | None) -> Value:
    return "" if value is None else figure(value, percent)


def _signed(value: float | None) -> Value:
    return "" if value is None else figure(value, signed)
