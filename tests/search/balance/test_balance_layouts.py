"""A layout as a problem of balance: its memory and times are the cost model's, whatever stands on the stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.domain.balance import Placement
from meshwright.domain.label import parse_layout, parse_recompute
from meshwright.domain.layout import Full, Mixed, NoRecompute, Selective
from meshwright.estimate.evaluate import evaluate, split_of
from meshwright.search.balance.climb import kicked
from meshwright.search.balance.layouts import bodies_of, choices, layout_of, problem_of
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.quick import quick_placements
from meshwright.search.balance.times import chunk_times, positions, simulated_times
from meshwright.search.balance.treatments import leading, treated
from strategies import EVERYTHING, MEGATRON, examples, planned, small_case


def placed(problem, layers, treated):
    """Counts of layers in the order of the model; of each chunk the first few have the other treatments in turn."""
    counts = np.zeros((len(problem.bodies), len(problem.treatments), problem.chunks, problem.stages), dtype=np.int64)
    waiting = [index for index, body in enumerate(problem.bodies) for _ in range(body.layers)]
    for chunk, stage in positions(problem):
        mine, waiting = waiting[: layers[chunk][stage]], waiting[layers[chunk][stage] :]
        for place, body in enumerate(mine):
            later = np.cumsum([grid[chunk][stage] for grid in treated])
            counts[body, (int(np.searchsorted(later, place, side="right")) + 1) % (len(treated) + 1), chunk, stage] += 1
    return Placement(counts=counts, slot_time=0.0, simulated_time=0.0, stage_memory=())


def full_sharding_mixes_kinds(layout, model):
    return layout.parameter_shards > 1 and len(model.kinds) > 1


@st.composite
def balanced(draw):
    """A case, a layout with a pipeline, its problem and a placement of all layers."""
    case, layout = draw(planned())
    assume(layout.pipeline_parallel > 1)
    assume(len(bodies_of(case.model)) > 1 or len(set(case.model.pattern)) == 1)
    assume(not full_sharding_mixes_kinds(layout, case.model))
    choice = draw(st.sampled_from(choices(EVERYTHING, layout)))
    problem = problem_of(case, EVERYTHING, layout, choice)
    places = problem.stages * problem.chunks
    cuts = sorted(draw(st.lists(st.integers(0, problem.layers), min_size=places - 1, max_size=places - 1)))
    sizes = iter(np.diff([0, *cuts, problem.layers]).tolist())
    layers = [[0] * problem.stages for _ in range(problem.chunks)]
    for chunk, stage in positions(problem):
        layers[chunk][stage] = next(sizes)
    return case, layout, problem, placed(problem, layers, ())


@examples(40)
@given(balanced())
def test_a_placement_holds_and_costs_what_its_layout_does(drawn):
    case, layout, problem, placement = drawn
    found = evaluate(case, layout_of(layout, problem, placement))
    times = chunk_times(problem, placement.counts)
    assert times.forward.sum(axis=1) == pytest.approx(found.stages.forward_s, rel=1e-9)
    assert times.backward.sum(axis=1) == pytest.approx(found.stages.backward_s, rel=1e-9)
    assert times.weight.sum(axis=1) == pytest.approx(np.broadcast_to(found.stages.weight_s, problem.stages), rel=1e-9)
    gathers_nothing = layout.parameter_shards > 1 and placement.layers[-1][-1] == 0
    if not gathers_nothing:
        assert stage_memory(problem, placement.counts) == pytest.approx(found.memory.reserved_bytes, rel=1e-6)


@examples(10)
@given(balanced(), st.integers(0, 7), st.floats(0.0, 1.0))
def test_placements_of_the_search_are_what_their_layouts_say(drawn, seed, tightness):
    """Whatever bodies meet in a chunk: the layout of an answer recomputes the very layers that the answer was priced with."""
    case, layout, problem, start = drawn
    assume(problem.recompute_rule == "any" and len(problem.bodies) > 1 and len(problem.treatments) > 1)
    memory = stage_memory(problem, start.counts)
    least = stage_memory(problem, leading(problem, start.counts.sum(axis=1), len(problem.treatments) - 1, problem.layers))
    bounds = least + tightness * (memory - least)
    problem = replace(problem, memory_bounds=tuple(np.maximum(bounds, 1.0).tolist()))
    counts = kicked(problem, treated(problem, start.counts[..., None])[..., 0], seed)
    found = evaluate(case, layout_of(layout, problem, Placement(counts=counts, slot_time=0.0, simulated_time=0.0, stage_memory=())))
    assert chunk_times(problem, counts).backward.sum(axis=1) == pytest.approx(found.stages.backward_s, rel=1e-9)


REAL = {
    "dense": ("llama3.1-405b", "tp8 pp8 mb1 sp zero1", "megatron-te"),
    "mixture after dense, mtp": ("deepseek-v3", "tp1 pp16 ep8 mb1 zero1", "megatron-te"),
    "zero bubble": ("llama3-70b", "tp2 pp8 mb1 sp zero0 schedule=zb1p", "torchtitan"),
    "tied": ("gemma2-9b", "tp2 pp4 mb1 sp zero1", "megatron-te"),
    "interleaved": ("llama3-70b", "tp2 pp4 vp5 mb1 sp zero1", "megatron-te"),
    "folded": ("llama3-70b", "tp2 pp4 mb1 sp zero1 vp2 schedule=dualpipev", "megatron-te"),
}


def real(name):
    model, text, implementation = REAL[name]
    case = small_case(model, devices=256, batch=1024, sequence=4096, implementation=implementation)
    return case, parse_layout(text, num_devices=256, global_batch_sequences=1024, model=case.model)


@pytest.mark.parametrize("name", [name for name in REAL if name != "tied"])
@pytest.mark.parametrize("treated", ["", "recompute=full", "recompute=selective:layernorm"])
def test_the_even_split_holds_what_the_layout_holds(name, treated):
    """Under the layout's own treatment of all layers, multi-token prediction included, for alike and for several chunks."""
    case, layout = real(name)
    layout = replace(layout, recompute=parse_recompute(treated.removeprefix("recompute=") or "none"))
    (same,) = choices(EVERYTHING, layout, pinned=True)
    problem = problem_of(case, EVERYTHING, layout, same)
    placement = placed(problem, split_of(case, layout), ())
    found = evaluate(case, layout)
    assert layout_of(layout, problem, placement).recompute == layout.recompute
    assert (chunk_times(problem, placement.counts).forward.sum(axis=1)) == pytest.approx(found.stages.forward_s, rel=1e-9)
    assert stage_memory(problem, placement.counts) == pytest.approx(found.memory.reserved_bytes, rel=1e-6)


COUNTS = {"megatron": MEGATRON, "lists": replace(MEGATRON, recompute_per_stage=True)}


@pytest.mark.parametrize("name", ["dense", "mixture after dense, mtp", "zero bubble"])
@pytest.mark.parametrize(("features", "first"), [("megatron", 0), ("megatron", 2), ("lists", 0), ("lists", 1), ("lists", 3)])
def test_the_first_layers_of_each_chunk_recomputed_hold_and_cost_what_the_layout_says(name, first, features):
    case, layout = real(name)
    problem = problem_of(case, COUNTS[features], layout, choices(COUNTS[features], layout)[0])
    assert problem.treatments == ("none", "full")
    assert problem.recompute_rule == ("first" if features == "megatron" else "any")
    split = split_of(case, layout)
    grid = tuple(tuple(min(first, layers) for layers in row) for row in split)
    placement = placed(problem, split, (grid,))
    balanced = layout_of(layout, problem, placement)
    if case.model.num_mtp_layers and features == "lists":
        assert balanced.recompute == (Full(layers=grid) if first else NoRecompute())
    else:
        assert balanced.recompute == (Full(layers=first) if first else NoRecompute())
    found = evaluate(case, balanced)
    assert chunk_times(problem, placement.counts).backward.sum(axis=1) == pytest.approx(found.stages.backward_s, rel=1e-9)
    assert stage_memory(problem, placement.counts) == pytest.approx(found.memory.reserved_bytes, rel=1e-6)


def test_counts_by_stage_and_several_treatments_are_said_as_they_are():
    case, layout = real("dense")
    features = replace(EVERYTHING, recompute_mixed=True, selective_modules=("mlp",))
    problem = problem_of(case, features, layout)
    assert problem.treatments == ("none", "selective:mlp", "full")
    split = split_of(case, layout)
    full, some = tuple(range(8))[::-1], (1, 0, 2, 0, 1, 0, 0, 3)
    counts = placed(problem, split, ()).counts
    for treatment, row in ((2, full), (1, some)):
        counts[0, 0, 0] -= row
        counts[0, treatment, 0] += row
    placement = Placement(counts=counts, slot_time=0.0, simulated_time=0.0, stage_memory=())
    balanced = layout_of(layout, problem, placement)
    assert balanced.recompute == Mixed(parts=((Full(), (full,)), (Selective(modules=("mlp",)), (some,))))
    assert balanced.stage_layers == split
    assert stage_memory(problem, counts) == pytest.approx(evaluate(case, balanced).memory.reserved_bytes, rel=1e-6)


def test_bodies_are_the_runs_of_the_pattern_or_their_mean():
    deep, windows = (small_case(name).model for name in ("deepseek-v3", "gemma2-9b"))
    assert [(name, layers) for name, _, layers in bodies_of(deep)] == [("dense", 3), ("mixture", 58)]
    ((name, share, layers),) = bodies_of(windows)
    assert (name, share.tolist(), layers) == ("layers", [0.5, 0.5], windows.num_layers)


def test_alternating_kinds_are_right_over_the_whole_model():
    case, layout = real("tied")
    (same,) = choices(EVERYTHING, layout, pinned=True)
    problem = problem_of(case, EVERYTHING, layout, same)
    placement = placed(problem, split_of(case, layout), ())
    found = evaluate(case, layout)
    assert chunk_times(problem, placement.counts).forward.sum() == pytest.approx(found.stages.forward_s.sum(), rel=1e-9)
    assert stage_memory(problem, placement.counts) == pytest.approx(found.memory.reserved_bytes, rel=0.02)


def test_the_split_of_a_framework_that_moves_no_layers_stays():
    case, layout = real("dense")
    problem = problem_of(case, replace(MEGATRON, uneven_stages=False), layout)
    assert problem.fixed_layers == split_of(case, layout)
    assert [placement.layers for placement in quick_placements(problem)] == [split_of(case, layout)]


@pytest.mark.parametrize("name", ["dense", "mixture after dense, mtp", "zero bubble", "interleaved", "folded"])
def test_a_quick_balance_fits_places_every_layer_and_is_not_slower_than_even_stages(name):
    case, layout = real(name)
    (same,) = choices(MEGATRON, layout, pinned=True)
    problem = problem_of(case, MEGATRON, layout, same)
    even = placed(problem, split_of(case, layout), ())
    bound = float(stage_memory(problem, even.counts).max())
    problem = replace(problem, memory_bounds=(bound,) * problem.stages)
    (best,) = quick_placements(problem)
    assert best.counts.sum(axis=(1, 2, 3)).tolist() == [body.layers for body in problem.bodies]
    assert max(best.stage_memory) <= bound
    assert evaluate(case, layout_of(layout, problem, best)).memory.reserved_bytes.max() <= bound * (1.0 + 1e-9)
    before, after = (float(simulated_times(problem, chunk_times(problem, each.counts))) for each in (even, best))
    assert after <= before
    assert (after < before) == (name != "dense")  # whose even stages are best: 15, 16, .. 16, 15
