"""Never worse than yesterday: figures of versions, and what refuses a change that worsens one without saying so."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
import yaml
from benchmarks import history
from benchmarks.history import Figure, figures_text, moved, read_figures, worsened
from benchmarks.history_picture import history_picture


def figure(value, *, metric="step_mape_ratio", n=50, noise=0.01, version="b", scheme="grouped"):
    return Figure(version=version, scheme=scheme, set="some", metric=metric, n=n, value=value, noise=noise)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (figure(0.10, version="a"), figure(0.12), True), (figure(0.10, version="a"), figure(0.109), False),
        (figure(0.10, version="a"), figure(0.05), False), (figure(0.10, version="a", n=4), figure(0.5, n=4), False),
        (figure(0.05, version="a", metric="interval_miss_ratio"), figure(0.105, metric="interval_miss_ratio"), False),
        (figure(0.05, version="a", metric="interval_miss_ratio"), figure(0.15, metric="interval_miss_ratio"), True),
        (figure(0.10, version="a", scheme="in-sample"), figure(0.5), False),
    ],
)
def test_worse_is_what_noise_does_not_explain(before, after, worse):
    assert bool(worsened([before], [after])) is worse


def test_figures_come_back_as_they_were():
    known = [figure(0.1), figure(0.2, noise=None)]
    assert read_figures(figures_text(known)) == known


def test_a_formula_that_moves_a_row_is_seen():
    assert moved({"a": 1.0, "b": 2.0}, {"a": 1.0005, "b": 2.0}) == []
    assert moved({"a": 1.0, "b": 2.0}, {"a": 1.01, "b": 2.0}) == ["a"]
    assert moved({"a": 1.0}, {"a": 1.0, "c": 1.0}) == ["c"]


def test_the_committed_figures_speak_for_the_program_as_it_is():
    assert history.faults() == []


def test_a_worse_figure_that_nothing_explains_is_refused(tmp_path, monkeypatch):
    figures = read_figures(history.FIGURES.read_text())
    last = figures[-1].version
    because = " ".join(yaml.safe_load(history.VERSIONS.read_text())[last]["because"])
    name = next(each.set for each in figures if each.version == last and each.n >= 50 and each.set not in because)
    spoilt = [
        replace(each, value=each.value * 3.0)
        if (each.version, each.scheme, each.set, each.metric) == (last, "grouped", name, "step_mape_ratio") else each
        for each in figures
    ]
    assert spoilt != figures
    path = tmp_path / "figures.csv"
    path.write_text(figures_text(spoilt))
    monkeypatch.setattr(history, "FIGURES", path)
    assert any(name in each and "nothing says why" in each for each in history.faults())


def test_the_picture_is_drawn_from_the_figures():
    drawn = str(history_picture(read_figures(history.FIGURES.read_text())))
    ElementTree.fromstring(drawn)
    assert "untuned runs" in drawn
    assert drawn == (history.HERE.parent / "docs" / "accuracy" / "history.svg").read_text()
