"""Drawings: the same bytes for the same figures, well-formed, nothing outside the frame."""

import xml.etree.ElementTree as ElementTree

import pytest

from meshwright.report.charts import Axis, Frame, log_axis, quantile
from meshwright.report.svg import BLUE, Drawing, short


def frame(axis: Axis) -> Frame:
    return Frame(
        drawing=Drawing(width=200, height=200, title="a < b"), left=40, top=40, width=100, height=100, across=axis, up=axis
    )


def test_a_drawing_is_well_formed_and_always_the_same():
    def drawn() -> str:
        chart = frame(log_axis([1.0, 100.0], label="s"))
        chart.ground("title & more", "remark")
        chart.diagonal_band(1.25, "#eee")
        chart.dots([(1.0, 2.0), (50.0, 40.0)], BLUE)
        chart.box([1.0, 2.0, 3.0, 50.0], 60.0, height=10.0)
        return str(chart.drawing)

    root = ElementTree.fromstring(drawn())
    assert root.find("{http://www.w3.org/2000/svg}title").text == "a < b"
    assert drawn() == drawn()


def test_values_outside_stay_at_the_edge():
    chart = frame(Axis(low=1.0, high=10.0, log=True))
    assert chart.at(1000.0, 0.001) == (140.0, 140.0)
    assert chart.at(10**0.5, 1.0) == pytest.approx((90.0, 140.0))


def test_hidden_dots_are_left_out():
    chart = frame(Axis(low=0.0, high=1.0))
    chart.dots([(0.5, 0.5)] * 1000, BLUE)
    assert str(chart.drawing).count("h0") == 1


@pytest.mark.parametrize("values", [[1.0], [0.001, 1000.0], [5.0, 5.0], [0.2, 0.3], [1e-5, 1e9]])
def test_a_logarithmic_axis_has_few_ticks_inside(values):
    axis = log_axis(values)
    assert axis.low < min(values)
    assert axis.high > max(values)
    assert all(axis.low <= value <= axis.high for value, _ in axis.ticks)


def test_quantiles_lie_between_neighbours():
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert quantile([7.0], 0.9) == 7.0


def test_coordinates_are_short():
    assert [short(each) for each in (1.26, 3.0, -0.01, 100.04)] == ["1.3", "3", "0", "100"]
