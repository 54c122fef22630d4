"""Layouts estimated together are to the bit what each is alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from meshwright.domain.layout import Full, Layout, Selective
from meshwright.estimate import evaluate, known_work
from meshwright.estimate.costs import bare_work
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.several import estimates, evaluations
from meshwright.estimate.simulate import simulated_bubble_s, simulated_bubbles_s
from meshwright.estimate.single import estimate
from meshwright.estimate.tables import column
from strategies import cases, examples, layouts, small_case


def figures(value: object, name: str = "") -> dict[str, np.ndarray]:
    """All numbers of a record by their place in it."""
    if isinstance(value, np.ndarray | float):
        return {name: np.asarray(value)}
    if isinstance(value, tuple):
        parts = {f"{name}[{number}]": each for number, each in enumerate(value)}
    elif isinstance(value, Struct):
        parts = {f"{name}.{field}": getattr(value, field) for field in value.__struct_fields__}
    else:
        return {}
    return {key: own for part, each in parts.items() for key, own in figures(each, part).items()}


@examples(40)
@given(cases(), st.data())
def test_layouts_estimated_together_are_each_as_alone(case, data):
    chosen = [data.draw(layouts(case)) for _ in range(data.draw(st.integers(0, 6)))]
    assert estimates(case, chosen) == [estimate(case, layout) for layout in chosen]


@examples(25)
@given(cases(), st.data())
def test_layouts_asked_for_bit_by_bit_are_each_as_alone(case, data):
    known = KnownWork()
    for _ in range(3):
        chosen = [data.draw(layouts(case)) for _ in range(data.draw(st.integers(0, 3)))]
        assert estimates(case, chosen, known) == [estimate(case, layout) for layout in chosen]


def test_layers_under_other_treatments_are_not_computed_again(monkeypatch):
    case, computed, known = small_case(layers=8, devices=8, batch=32), [], KnownWork()
    monkeypatch.setattr(known_work, "bare_work", lambda *asked: computed.append(asked) or bare_work(*asked))
    plain = Layout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2, num_microbatches=16)
    estimates(case, [plain, replace(plain, recompute=Full())], known)
    estimates(case, [replace(plain, recompute=Selective(modules=("core_attn",)), virtual_stages=2)], known)
    assert len(computed) == 1
    estimates(case, [replace(plain, microbatch_sequences=2, num_microbatches=8)], known)
    assert len(computed) == 2


@examples(25)
@given(cases(), st.data())
def test_every_figure_of_an_evaluation_is_that_of_the_layout_alone(case, data):
    chosen = [data.draw(layouts(case)) for _ in range(data.draw(st.integers(2, 6)))]
    for layout, together in zip(chosen, evaluations(case, chosen), strict=True):
        alone = evaluate(case, layout)
        assert (together.settings, together.composition) == (alone.settings, alone.composition)
        own, expected = figures(together), figures(alone)
        assert len(expected) > 100
        assert own.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(*np.broadcast_arrays(own[name], value), err_msg=name)


@examples(25)
@given(cases(), st.data())
def test_bubbles_side_by_side_are_each_as_alone(case, data):
    chosen = [data.draw(layouts(case)) for _ in range(data.draw(st.integers(1, 6)))]
    asked = [(layout, evaluate(case, layout)) for layout in chosen]
    assert simulated_bubbles_s(case, asked) == [simulated_bubble_s(case, *each) for each in asked]


def test_a_column_of_a_record_keeps_numbers_and_leaves_padding_out():
    record = (np.arange(6.0).reshape(3, 2), np.array([7.0, 8.0]), np.array(9.0), np.array([4.0]), "word")
    rows, own, number, same, word = column(record, 1, 2)
    assert rows.tolist() == [1.0, 3.0]
    assert (float(own), float(number), float(same), word) == (8.0, 9.0, 4.0, "word")
    assert column(record, 0)[0].tolist() == [0.0, 2.0, 4.0]
