"""Layers of one pipeline that recompute in several ways cost what each of them costs, chunk by chunk."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import implementation
from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Selective, full_of, mixed, ordered_parts, whole
from meshwright.estimate import estimate
from meshwright.estimate.evaluate import evaluate, split_of
from meshwright.estimate.simulate import chunk_seconds
from meshwright.estimate.split import chunk_kinds, treated_kinds, treatments_of
from meshwright.search.legality import able, knobs_of_layout, layout_refusals, shape_refusals
from strategies import EVERYTHING, MEGATRON, cases, examples, layouts, mixed_recomputes, planned, small_case

PARTS = [(Full(), ((2, 1, 0, 0),)), (Selective(modules=("mlp",)), ((1, 0, 3, 0),))]


def pipeline(recompute, *, chunks: int = 1, layers: int = 12) -> tuple:
    case = small_case("llama3-8b", layers=layers, devices=4, batch=8)
    layout = Layout(pipeline_parallel=4, virtual_stages=chunks, num_microbatches=8, recompute=recompute,
                    schedule="interleaved" if chunks > 1 else "1f1b")
    return case, layout


@examples(30)
@given(cases(), st.data())
def test_chunks_of_a_stage_sum_to_the_stage(case, data):
    layout = data.draw(layouts(case))
    found = evaluate(case, layout)
    forward, backward, weight = chunk_seconds(case, layout, found)
    np.testing.assert_allclose(forward.sum(axis=1), np.broadcast_to(found.stages.forward_s, forward.shape[:1]), rtol=1e-9)
    np.testing.assert_allclose(
        (backward + weight).sum(axis=1), np.broadcast_to(found.stages.backward_s, forward.shape[:1]), rtol=1e-9
    )


@examples(40)
@given(cases(), st.data())
def test_every_layer_has_one_treatment(case, data):
    layout = data.draw(layouts(case))
    split, folded = split_of(case, layout), layout.schedule == "dualpipev"
    counts = treated_kinds(case.model, split, layout.recompute, folded=folded)
    assert len(counts) == len(treatments_of(layout.recompute))
    some = [each for each in counts if each is not None]
    assert all((each >= 0.0).all() for each in some)
    np.testing.assert_allclose(sum(some), chunk_kinds(case.model, split, folded=folded), rtol=1e-12)


def test_a_stage_costs_what_its_layers_cost():
    case, kept = pipeline(NoRecompute())
    full, part = replace(kept, recompute=Full()), replace(kept, recompute=PARTS[1][0])
    several = replace(kept, recompute=mixed(PARTS, ((3, 3, 3, 3),)))
    none_s, full_s, part_s, several_s = (evaluate(case, each).stages for each in (kept, full, part, several))
    for name in ("backward_s", "saved_bytes"):
        none, whole_, some, all_ = (np.asarray(getattr(each, name)) for each in (none_s, full_s, part_s, several_s))
        wanted = none + (whole_ - none) * np.array([2, 1, 0, 0]) / 3 + (some - none) * np.array([1, 0, 3, 0]) / 3
        np.testing.assert_allclose(all_, wanted, rtol=1e-12)


def test_recomputation_stands_on_the_chunk_that_it_is_counted_for():
    case, kept = pipeline(NoRecompute(), chunks=2, layers=16)
    counts = ((2, 0, 1, 0), (0, 2, 0, 0))
    layout = replace(kept, recompute=Full(layers=counts))
    plain = chunk_seconds(case, kept, evaluate(case, kept))[1]
    found = evaluate(case, layout)
    again = chunk_seconds(case, layout, found)[1] - plain
    each = float(found.costs.kinds[0].recompute[1].total)
    np.testing.assert_allclose(again, np.array(counts).T * each, rtol=1e-9, atol=1e-12)


def test_a_plain_treatment_is_never_said_as_a_mixture():
    split = ((3, 3), (2, 3))
    zeros = ((0, 0), (0, 0))
    some = ((1, 0), (0, 0))
    core = Selective(modules=("core_attn",))
    assert mixed([(Full(), zeros), (core, zeros)], split) == NoRecompute()
    assert mixed([(Full(), split), (core, zeros)], split) == Full()
    assert mixed([(Full(), ((2, 2), (2, 2)))], split) == Full(layers=2)
    assert mixed([(Full(), some)], split) == Full(layers=some)
    assert mixed([(core, split)], split) == core
    assert mixed([(core, some)], split) == Mixed(parts=((core, some),))
    assert mixed([(core, some), (Full(), some)], split) == Mixed(parts=((Full(), some), (core, some)))
    both = Selective(modules=("mlp", "core_attn"))
    assert [part[0] for part in ordered_parts([(core, some), (both, some)])] == [Selective(modules=("core_attn", "mlp")), core]
    assert full_of(((9, 9), (9, 9)), split) == Full()
    assert whole(Mixed(parts=((Full(), some), (core, some)))) == Full()
    assert whole(Full(layers=some)) == Full()
    assert whole(core) == core


@examples(60)
@given(st.data())
def test_a_mixture_counts_no_more_layers_than_there_are(data):
    split = ((3, 2, 4), (1, 5, 2))
    found = data.draw(mixed_recomputes(split, ("core_attn", "mlp")))
    if isinstance(found, Mixed):
        assert all(
            0 <= count <= layers
            for counts, row in zip(found.counts, split, strict=True)
            for count, layers in zip(counts, row, strict=True)
        )
        assert ordered_parts(found.parts) == found.parts


def test_rules_know_them():
    recompute = mixed(PARTS, ((3, 3, 3, 3),))
    case, layout = pipeline(recompute)
    assert knobs_of_layout(layout).treatment == "mixed"
    assert layout_refusals(case, MEGATRON, layout) == ("the framework has no such recompute",)
    assert not layout_refusals(case, EVERYTHING, layout)
    assert not layout_refusals(case, able(MEGATRON), layout)
    assert not shape_refusals(case, layout)
    too_many = replace(layout, recompute=Mixed(parts=((Full(), ((2, 2, 2, 2),)), (PARTS[1][0], ((2, 0, 0, 0),)))))
    assert shape_refusals(case, too_many) == ("4 layers of a chunk are recomputed, it has 3",)
    ragged = replace(layout, recompute=Mixed(parts=((Full(), ((2, 2),)), (PARTS[1][0], ((2, 0, 0, 0),)))))
    assert shape_refusals(case, ragged) == ("the recomputed layers by stage do not have the shape of the pipeline",)


def test_an_estimate_counts_what_is_run_again():
    case, kept = pipeline(NoRecompute())
    treatments = (NoRecompute(), Full(), PARTS[1][0], mixed(PARTS, ((3, 3, 3, 3),)))
    none, full, part, several = (estimate(case, replace(kept, recompute=each)) for each in treatments)
    again = [each.hardware_flops_per_s_per_device / each.model_flops_per_s_per_device - 1.0 for each in (full, part, several)]
    assert none.hardware_flops_per_s_per_device == none.model_flops_per_s_per_device
    assert again[2] == pytest.approx(3 / 12 * again[0] + 4 / 12 * again[1], rel=1e-9)
    assert "recompute=full:[2,1,0,0]+selective:mlp:[1,0,3,0]" in several.label
    assert several.memory_reserved_bytes < none.memory_reserved_bytes


GATHERED = ("mindspore-graph", "mindspore-cells")
LISTED = (NoRecompute(), Selective(modules=("mlp_act",)), Selective(modules=("comm", "mlp_act")), Full())
"""Treatments of MindSpore's lists, each more than the one before."""


@pytest.mark.parametrize("name", GATHERED)
@examples(15)
@given(st.data())
def test_what_lists_recompute_keeps_less_and_takes_longer(name, data):
    case, layout = data.draw(planned(implementation=name))
    for ladder in (LISTED, (NoRecompute(), Selective(modules=("comm",)), LISTED[2])):
        found = [evaluate(case, replace(layout, recompute=treatment)) for treatment in ladder]
        for less, more in pairwise(found):
            assert (more.memory.activations <= less.memory.activations * (1 + 1e-12)).all()
            assert (more.stages.backward_s >= less.stages.backward_s * (1 - 1e-12)).all()


@examples(60)
@given(cases(implementation="mindspeed"), st.data())
def test_communication_that_is_recomputed_is_as_if_nothing_gathered_had_been_kept(case, data):
    """What devices do; a layer that waits for its host hides some of what is gathered in it, and none of what is recomputed."""
    layout = replace(data.draw(layouts(case)), recompute=NoRecompute())
    kept = replace(case, implementation=implementation("mindspore-cells"))
    again = evaluate(kept, replace(layout, recompute=Selective(modules=("comm", "mlp_act"))))
    plain = evaluate(case, layout)
    for cost, other in zip(again.costs.kinds, plain.costs.kinds, strict=True):
        inner = cost.recompute[1].compute  # the activation of a dense block, beside the gathering
        again = cost.recompute[1]
        busy, as_well = cost.time.backward.total - cost.time.backward.host, again.total - again.host - inner
        np.testing.assert_allclose(busy + as_well, other.time.backward.total - other.time.backward.host, rtol=1e-9)
        np.testing.assert_allclose(cost.saved_bytes[1], other.saved_bytes[0], rtol=1e-12)


def test_without_sequence_parallelism_there_is_nothing_to_gather_again():
    case, layout = pipeline(Selective(modules=("comm",)))
    case = replace(case, implementation=implementation("mindspore-graph"))
    found = evaluate(case, layout).costs.kinds[0]
    assert float(found.saved_bytes[0]) == float(found.saved_bytes[1]) and float(found.recompute[1].total) == 0.0


def test_communication_recomputation_saves_what_dry_runs_say():
    """Llama-175B (h 12288, 8192 tokens): 1002 MB a layer with everything kept, 695 without what was gathered; with both lists 423.

    Source: SAPP's decomposition of the dry runs of a Llama-175B (mindspore-ai/toolkits test T5); tensor parallelism 8 is assumed,
            the feed-forward width is left out (only what is gathered is compared), the fit's own residuals reach 1.3 GB of 100.
    """
    case = small_case("llama3-70b", layers=16, devices=128, batch=16)
    model = replace(case.model, hidden=12288)
    case = replace(
        case, model=model, batch=replace(case.batch, sequence_tokens=8192), implementation=implementation("mindspore-graph")
    )
    layout = Layout(tensor_parallel=8, sequence_parallel=True, pipeline_parallel=16, num_microbatches=16)
    found = evaluate(case, replace(layout, recompute=Selective(modules=("comm",)))).costs.kinds[0]
    saved = float(found.saved_bytes[0] - found.saved_bytes[1]) / 2**20
    assert saved == pytest.approx(1002 - 695, rel=0.10)
