"""Knobs finer than the grid: which layouts they are tried around."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Full, Layout
from meshwright.estimate.evaluate import split_of
from meshwright.estimate.overlap import overlap_for
from meshwright.frameworks import framework
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.space import make_space, parse_pins
from strategies import MEGATRON, small_case

refining = import_module("meshwright.search.refine")


def _pool(case, pins=()):
    space = make_space(case, MEGATRON, case.cluster.num_devices, parse_pins(dict(pins)))
    pool = Finalists(space=space, overlap=overlap_for(case), objective="step-time", capacity_bytes=case.capacity_bytes)
    for rows in evaluate_grid(space, Counts(rejected=Counter()), overlap=pool.overlap):
        pool.add(rows)
    return space, pool


def _mesh(layout):
    chunked = min(layout.virtual_stages, 2)
    return layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.microbatch_sequences, chunked


@pytest.fixture(scope="module")
def tight():
    """Where most meshes fit only if they recompute everything."""
    case = small_case("llama3-8b", layers=8, devices=16, batch=32, sequence=65536)
    return _pool(replace(case, memory_ratio=0.3 * case.memory_ratio))


def test_less_recomputation_is_tried_on_every_mesh_that_fits(tight):
    """Not only around the fastest: a mesh that is slow in full may be the one with room to recompute little."""
    space, pool = tight
    few = {each.layout for each in refining.refine(space, pool, bases=1)}
    once = {}
    for each in pool.best:
        once.setdefault(_mesh(each.layout), each.layout)
    meshes = [base for base in once.values() if isinstance(base.recompute, Full)][: 30]
    assert len(meshes) > 10
    for base in meshes:
        able = refining.fitting(space, list(refining._recomputes(space, base, refining.selectives(space))), known=set(), after=0)
        assert {each.layout for each in able} <= few | {each.layout for each in pool.best}


def test_a_pinned_recomputation_is_left_as_it_is():
    space, pool = _pool(small_case("llama3-8b", layers=4, devices=8, batch=16, sequence=16384), {"recompute": "full"})
    assert {type(each.layout.recompute) for each in refining.refine(space, pool, bases=1)} == {Full}


def test_no_split_is_tried_that_goes_without_saying():
    """DeepSeek-V3 on 4 nodes under Bridge, whose own split is [15,16,16,14]: a plan said it, and its label did not."""
    model, cluster = "deepseek-v3", cluster_for("h100-sxm", num_devices=32)
    case = make_case(model, cluster, global_batch_sequences=1024, sequence_tokens=2048, framework="bridge", task="lora")
    space = make_space(case, framework("bridge").for_case(case).features, 32, parse_pins({}))
    base = Layout(pipeline_parallel=4, data_parallel=8, num_microbatches=128)
    assert split_of(case, base) == ((15, 16, 16, 14),)
    tried = {each.stage_layers for each in refining.uneven(space, base)}
    assert tried
    assert split_of(case, base) not in tried
