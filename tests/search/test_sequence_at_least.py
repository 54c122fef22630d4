"""A micro-batch takes no less than its share of a larger one of which it is a part: what meshes are left out by."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.draws import examples

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Overlap
from meshwright.estimate.overlap import overlap_for
from meshwright.frameworks import framework
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, open_grid
from meshwright.search.grid_bounds import sequence_at_least_s
from meshwright.search.grid_tables import keyed, settings_for, work_of
from meshwright.search.legal_grid import legal_layouts
from meshwright.search.space import make_space, parse_pins
from strategies import EVERYTHING, cases, small_case

ROUNDED = 1.0 - 1e-12


def _shares(space, overlap):
    """What micro-batches take over the bound of their sequences, ``[treatment, pair]``; None where no layout is legal."""
    legal = legal_layouts(space, Counts())
    if legal is None or not len(legal.pairs.mesh):
        return None
    settings = settings_for(space, space.schedules[0], overlap)
    known = keyed(space, legal)
    work = work_of(space, known, settings, legal.pairs)
    sizes = np.array(space.microbatches)[legal.pairs.place]
    return work.whole_s[:, work.key] / (sequence_at_least_s(space, known, settings)[:, legal.pairs.mesh] * sizes)


@given(cases(), st.sampled_from(EVERYTHING.context_kinds), st.sampled_from(((), (1, 2, 3), (2, 8))))
@examples(60)
def test_no_micro_batch_takes_less_than_its_share_of_a_larger_one(case, kind, wanted):
    space = structs.replace(make_space(case, EVERYTHING, case.cluster.num_devices, parse_pins({})), context_kind=kind)
    fewer = tuple(each for each in space.microbatches if each in wanted)
    shares = _shares(structs.replace(space, microbatches=fewer or space.microbatches), Overlap())
    assert shares is None or shares.min() >= ROUNDED


def _meshes_over_pairs(space, overlap):
    """The bounds of meshes over those of their pairs, ``[treatment, pair]``; None where no layout is legal."""
    grid = open_grid(space, Counts(), overlap=overlap)
    if grid is None:
        return None
    pairs = grid.legal.pairs
    of_pairs_s = grid.bounds.of_pairs_s(grid.work, pairs, np.arange(len(space.recomputes)))
    return grid.bounds.of_meshes_s[:, pairs.mesh] / of_pairs_s


@given(cases(moe=True), st.builds(Overlap, tensor=st.booleans(), expert=st.booleans()), st.sampled_from(EVERYTHING.context_kinds))
@examples(40)
def test_no_mesh_is_bounded_above_its_pairs_whatever_overlaps(case, overlap, kind):
    space = structs.replace(make_space(case, EVERYTHING, case.cluster.num_devices, parse_pins({})), context_kind=kind)
    ratios = _meshes_over_pairs(space, overlap)
    assert ratios is None or ratios.max() <= 1.0 / ROUNDED


def test_products_that_hide_messages_and_exchanges_at_once_give_no_share():
    """A small product is slow for its size and hides more of both than it takes, so that twice as much of it is slower by more."""
    case = small_case(
        "deepseek-v3", "ascend-910b", layers=6, devices=16, batch=12, sequence=2048, implementation="mindspore-cells-unfused",
    )
    slow = replace(case.cluster.network, bytes_per_s=case.cluster.network.bytes_per_s / 10.0)
    case = replace(case, cluster=replace(case.cluster, scale_up_devices=1, network=slow))
    space, overlap = make_space(case, EVERYTHING, 16, parse_pins({})), Overlap(tensor=True, expert=True)
    assert _shares(space, overlap).min() < 0.999
    assert _meshes_over_pairs(space, overlap).max() <= 1.0 / ROUNDED


@pytest.mark.parametrize(
    ("model", "device", "name"),
    [
        ("deepseek-v3", "h800", "megatron"), ("gpt-oss-120b", "b200", "bridge"), ("llama3-70b", "a100-80g-sxm", "torchtitan"),
        ("qwen3-235b-a22b", "h100-sxm", "nanotron"), ("llama3-8b", "h100-sxm", "deepspeed"),
    ],
)
def test_the_bound_holds_and_is_near_under_the_overlap_of_frameworks(model, device, name):
    case = make_case(model, cluster_for(device, num_devices=32), global_batch_sequences=96, sequence_tokens=8192)
    features = framework(name).for_case(case).features
    overlap = overlap_for(case, words=features.overlap_words(case.training.optimizer.name))
    shares = _shares(make_space(case, features, 32, parse_pins({})), overlap)
    assert shares.min() >= ROUNDED
    assert np.median(shares) < 1.5


def test_what_was_measured_is_bounded_by_its_own_micro_batches():
    """A profile may say that a product of one size is as slow as one of twice the size."""
    case = small_case(layers=4, devices=8, batch=16)
    nothing = SimpleNamespace(products=(), cores=(), network=(), scale_up=())
    bounds = []
    for measured in (None, nothing):
        own = replace(case, cluster=replace(case.cluster, measured=measured))
        space = make_space(own, EVERYTHING, 8, parse_pins({}))
        pool = Finalists(space=space, overlap=Overlap(), objective="step-time", capacity_bytes=own.capacity_bytes)
        bounds.append(open_grid(space, Counts(), overlap=Overlap(), bar=pool).bounds.of_meshes_s)
    assert (bounds[1] >= bounds[0] * ROUNDED).all()
    assert (bounds[1] > bounds[0]).any()
