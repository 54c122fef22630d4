"""The report of ``validate`` at the widths of consoles: every name and figure stays whole."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from meshwright.evidence.rows.table import Skipped
from meshwright.evidence.score.cells import Cell
from meshwright.evidence.score.columns import Columns, LeftOut
from meshwright.evidence.score.metrics import Bin, Scores
from meshwright.evidence.score.sets import Target
from meshwright.evidence.score.summary import Aim, Part, Summary
from meshwright.evidence.score.validation import Tally
from meshwright.report.console import show
from meshwright.report.figures import Column, Figures
from meshwright.report.validation import validation_report

WIDTHS = (80, 100, 110, 140)
SCORES = Scores(
    n=123_456, step_n=1, step_mape_ratio=1.392, step_median_ape_ratio=0.051, step_bias_ratio=-0.133, spearman=-0.97, memory_n=1,
    memory_mape_ratio=1.062, memory_bias_ratio=-0.221, fit_accuracy_ratio=1.0, interval_coverage_ratio=0.901,
    interval_width_median_ratio=1.469, noise_ratio=0.201, constant_hfu_mape_ratio=1.929,
)
FIGURES = (
    "123,456",
    "139.2 %",
    "5.1 %",
    "-13.3 %",
    "-0.97",
    "106.2 %",
    "-22.1 %",
    "100.0 %",
    "90.1 %",
    "146.9 %",
    "20.1 %",
    "192.9 %",
)
NAMES = ("Megatron 2021-2023, A100 and V100", "megatron+deepspeed zero-3 (MosaicML)", "internevo", "h100-80g-sxm")
CELL = ("playbook", "nanotron", "0.4", "nanotron-llama-80B", "pretrain", "h100-80g-sxm", "512", "bf16", "2048", "4096")


def printed(summary: Summary, width: int) -> str:
    """The report of a summary."""
    skipped = LeftOut()
    skipped.append(Skipped(id="a-1", line=3, reason="layout or batch is blank", kind="layout or batch is blank"))
    validation = Tally(
        path="x.csv", scheme="grouped", calibration="refitted", rows=Columns(), unknown_columns=("sparkles",), folds=10,
        skipped=skipped,
    )
    stream = io.StringIO()
    show(validation_report(validation, summary), stream, width)
    return stream.getvalue()


@pytest.fixture
def summary() -> Summary:
    """One of everything, names as long as they come."""
    aim = Aim(metric="failed_choices_explained", target=Target(below=0.0), value=2.0)
    parts = {name: Part(name=name, scores=SCORES, aims=(aim,)) for name in NAMES}
    cell = Cell(key=CELL, measured=88, failed=51, failed_choice=1.0, explained=False, nothing_fits=False, regret_ratio=1.0,
                best_of_3_regret_ratio=0.629, spearman=0.98)
    return Summary(
        total=Part(name="all", scores=SCORES), groups=parts, sets=tuple(parts.values()), devices=parts, frameworks=parts,
        kinds=parts, cells=(cell,), reliability=(Bin(low=0.0, high=0.05, n=843, mean_probability=0.0, ran_ratio=0.007),),
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_and_no_figure_is_cut(summary, width):
    text = printed(summary, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    words = set(text.split())
    for name in (*NAMES, *CELL[3:4], "failed first choices that memory explains", "the first choice failed"):
        assert set(name.split()) <= words | {word.rstrip(",:") for word in words}, name
    for figure in FIGURES:
        assert text.count(figure) >= len(NAMES) * 5, figure


@pytest.mark.parametrize("width", WIDTHS)
def test_no_column_breaks_words_into_letters(summary, width):
    runs = [len(line.strip()) for line in printed(summary, width).splitlines() if line.strip()]
    assert min(runs) >= 3


def test_wide_consoles_have_one_table_and_narrow_ones_repeat_the_names(summary):
    one = replace(summary, groups={}, devices={}, frameworks={}, kinds={}, cells=(), sets=(replace(summary.sets[2], aims=()),))
    assert printed(one, 140).count("internevo") == 1
    assert printed(one, 80).count("internevo") == 2


def test_groups_of_columns_are_divided_where_even_one_is_too_wide():
    columns = [Column(heading=f"heading {number}", cells=["1"]) for number in range(8)]
    tables = Figures(noun="set", names=["playbook"], groups=[columns]).tables(60)
    assert len(tables) == 2
    assert [column for table in tables for column in table] == columns
