"""Pins: whatever is fixed, the grid's figures are those of each layout alone, and a plan's are those of its label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.api.pins import divides
from meshwright.domain.label import parse_layout
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.naming import name_of
from meshwright.search import SearchOptions, compare, plan
from meshwright.search.finalists import layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.nearest import lacking_kernels
from meshwright.search.plan import overlap_for
from meshwright.search.repair.candidates import distinct
from meshwright.search.space import make_space, parse_pins
from strategies import EVERYTHING, MEGATRON, examples, small_case

pytestmark = pytest.mark.usefixtures("alone")

DEEP = small_case("llama3-70b", devices=8, batch=32, sequence=4096)
MIXTURE = small_case("qwen3-30b-a3b", devices=8, batch=32, layers=40)

OTHERS = {"pp": ["2", "4"], "tp": ["1", "2"], "mb": ["1", "32"], "zero": ["0", "1", "2", "3"], "shard": ["1", "2", "4", "8"]}
PINS = st.builds(
    lambda chunks, others: {"vp": str(chunks), **others}, st.integers(1, 40),
    st.lists(st.sampled_from([(knob, value) for knob, values in OTHERS.items() for value in values]), max_size=2).map(dict),
)
"""Chunks far beyond the grid's eight, with other knobs that reach the ends of their ranges."""


@examples(40)
@given(st.sampled_from([DEEP, MIXTURE]), st.sampled_from([MEGATRON, EVERYTHING]), PINS)
def test_every_row_of_a_pinned_grid_has_the_figures_of_its_layout(case, features, pinned):
    overlap = overlap_for(case, "exact")
    space = make_space(case, features, 8, parse_pins(pinned))
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bound=False):
        some = range(0, len(rows), max(1, len(rows) // 7))
        step_s, reserved = evaluate_many(case, [layout_of_row(space, rows, index, overlap) for index in some])
        np.testing.assert_allclose(rows.step_s[list(some)], step_s, rtol=1e-9)
        np.testing.assert_allclose(rows.reserved_bytes[list(some)], reserved, rtol=1e-9)


@pytest.mark.parametrize(
    "pinned", [{"vp": "20"}, {"pp": "4", "vp": "16"}, {"pp": "8", "vp": "10", "tp": "8"}, {"pp": "2", "vp": "40"}]
)
def test_a_plan_with_many_chunks_has_the_figures_of_its_label(pinned):
    case = small_case("llama3-70b", devices=64, batch=256, sequence=8192)
    (best, *_) = plan(case, MEGATRON, SearchOptions(risk="exact", pins=pinned, top=2)).plans
    assert best.layout.virtual_stages == int(pinned["vp"])
    layout = parse_layout(
        best.label, num_devices=64, global_batch_sequences=256, devices_per_node=8, model=case.model, overlap=overlap_for(case)
    )
    alone = estimate(case, layout)
    assert (alone.step_s, alone.memory_reserved_bytes) == (best.estimate.step_s, best.estimate.memory_reserved_bytes)
    step_s, _ = evaluate_many(case, [best.layout])
    assert float(step_s[0]) == pytest.approx(best.estimate.step_s, rel=0.05)


ABLE = replace(MEGATRON, attentions=("flash", "fused", "math"), compiles=True)
KERNELS = [{"attention": "math"}, {"attention": "fused"}, {"compile": "off"}, {"attention": "math", "compile": "off"},
           {"overlap": "none"}]


@pytest.mark.parametrize("pinned", KERNELS)
def test_a_pinned_kernel_is_that_of_the_grid_the_plan_its_label_and_the_comparison(pinned):
    case = small_case("llama3-8b", devices=8, batch=16, sequence=4096, layers=8, implementation="torchtitan")
    space, overlap = make_space(case, ABLE, 8, parse_pins(pinned)), overlap_for(case, "exact")
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bound=False):
        some = range(0, len(rows), max(1, len(rows) // 5))
        step_s, reserved = evaluate_many(case, [layout_of_row(space, rows, index, overlap) for index in some])
        np.testing.assert_allclose(rows.step_s[list(some)], step_s, rtol=1e-9)
        np.testing.assert_allclose(rows.reserved_bytes[list(some)], reserved, rtol=1e-9)
    options = SearchOptions(risk="exact", pins=pinned, top=2)
    result = plan(case, ABLE, options)
    best = result.plans[0]
    for knob, value in pinned.items():
        assert f"{knob}={value}" in best.label
    layout = parse_layout(best.label, num_devices=8, global_batch_sequences=16, model=case.model, overlap=overlap_for(case))
    assert name_of(case, layout) == best.label
    alone, compared = estimate(case, layout), compare(case, ABLE, result, layout, options)
    assert (alone.step_s, alone.memory_reserved_bytes) == (best.estimate.step_s, best.estimate.memory_reserved_bytes)
    assert compared.estimate.step_s == alone.step_s


@pytest.mark.parametrize("pinned", [{"attention": "math"}, {"compile": "on"}, {"overlap": "tp"}])
def test_what_a_framework_has_no_key_for_is_refused_and_its_own_is_not(pinned):
    (knob,) = pinned
    poor = replace(MEGATRON, overlaps=("grad",))
    with pytest.raises(InputError, match=f"megatron has no {knob}={pinned[knob]}"):
        plan(DEEP, poor, SearchOptions(pins=pinned))
    own = {"attention": "flash", "compile": "off", "overlap": "grad"}[knob]
    assert not lacking_kernels(DEEP, poor, parse_pins({knob: own}))


BEYOND = [{"vp": "81"}, {"vp": "99999999"}, {"pp": "4", "vp": "21"}, {"mb": "99999999"}, {"shard": "99999999"}]


@pytest.mark.parametrize("pinned", BEYOND)
def test_pins_beyond_the_model_are_refused(pinned):
    case = replace(DEEP, cluster=small_case(devices=64).cluster)
    with pytest.raises(InputError):
        plan(case, MEGATRON, SearchOptions(pins=pinned))


def test_distinct_rows_are_told_apart_however_large_their_numbers():
    draws = np.random.default_rng(7)
    keys = [draws.integers(0, 2, 200) * (2**31 - 1) for _ in range(6)]
    first, which = distinct(keys)
    rows = np.stack(keys)
    assert len(first) == len(np.unique(rows, axis=1).T)
    np.testing.assert_array_equal(rows[:, first][:, which], rows)


FORCED = {"sp=on": "tensor_parallel", "cp_kind=ring": "context_parallel", "cp_kind=ulysses": "context_parallel",
          "vp=2": "pipeline_parallel",
          "schedule=interleaved": "pipeline_parallel", "schedule=zb1p": "pipeline_parallel", "shard=2": "optimizer_shards",
          "zero=1": "optimizer_shards"}


@pytest.mark.parametrize("word", FORCED)
def test_a_pin_that_means_something_under_another_degree_alone_forces_it(word):
    """``cp_kind=all-gather`` was moot: a layout without context parallelism won."""
    case = small_case("llama3-8b", devices=8, batch=32, sequence=4096, layers=8)
    knob, value = word.split("=")
    found = plan(case, EVERYTHING, SearchOptions(pins={knob: value}, refine=False, balance=False))
    assert found.plans
    assert all(getattr(each.layout, FORCED[word]) > 1 for each in found.plans)


@pytest.mark.parametrize(("pins", "words"), [
    ({"ep": "2"}, "the model has no experts"), ({"etp": "2"}, "the model has no experts"), ({"mb": "3"}, "global batch"),
])
def test_what_a_dense_model_lacks_is_said(pins, words):
    with pytest.raises(InputError, match=words):
        plan(DEEP, EVERYTHING, SearchOptions(pins=pins))


@pytest.mark.parametrize(("pins", "said"), [
    ({"tp": "3"}, "tp3 does not divide the 32 devices"), ({"tp": "3", "cp": "1"}, "tp3 does not divide the 32 devices"),
    ({"tp": "3", "pp": "2"}, "tp3 x pp2 = 6 does not divide the 32 devices"),
])
def test_a_product_is_said_of_several_degrees_alone(pins, said):
    with pytest.raises(InputError) as caught:
        divides(pins, 32)
    assert str(caught.value.messages[0]).endswith(said)
