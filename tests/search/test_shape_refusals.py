"""Layouts that were written down by hand or read from files: asked about only where they have the shape of their devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import cluster_for, make_case
from meshwright.domain.layout import Full, Layout
from meshwright.frameworks import framework
from meshwright.search.legality import arithmetic_refusals, shape_refusals

GOOD = Layout(
    tensor_parallel=2, pipeline_parallel=2, data_parallel=4, num_microbatches=8, optimizer_shards=4, stage_layers=((15, 17),),
    recompute=Full(layers=((1, 0),)), sequence_parallel=True,
)


@pytest.fixture(scope="module")
def case():
    return make_case("llama3-8b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=32, sequence_tokens=4096)


def test_a_good_layout_passes(case):
    assert shape_refusals(case, GOOD) == ()
    assert arithmetic_refusals(case, framework("megatron").features, GOOD) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"data_parallel": 8},
        {"data_parallel": 10**25},
        {"expert_parallel": 10**25},
        {"optimizer_shards": 10**25},
        {"parameter_shards": 17},
        {"virtual_stages": 10**25},
        {"stage_layers": ((15, 16),)},
        {"stage_layers": ((32,),)},
        {"stage_layers": ((8, 8), (8, 8))},
        {"stage_layers": ()},
        {"recompute": Full(layers=((1, 0, 0),))},
    ],
)
def test_what_exceeds_devices_or_model_is_refused_before_anything_is_computed(case, change):
    layout = replace(GOOD, **change)
    assert shape_refusals(case, layout)
    assert arithmetic_refusals(case, framework("megatron").features, layout) == shape_refusals(case, layout)
