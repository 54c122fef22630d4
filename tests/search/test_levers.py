"""Levers, applied, are legal, fit where they say so, and give the figures that they name; one list for every verb."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import meshwright as mw
from draws import examples
from meshwright.catalog import implementation
from meshwright.domain.label import label, parse_layout
from meshwright.errors import InputError, NoAnswerError
from meshwright.estimate import estimate
from meshwright.estimate.overlap import overlap_for
from meshwright.search import SearchOptions, layout_refusals, plan
from meshwright.search.levers import host_short_bytes, levers
from meshwright.search.offloaded import first_of
from meshwright.search.runner import Functions
from strategies import EVERYTHING, MEGATRON, small_case

NOBODY = Functions()
ONE = SearchOptions(top=1, refine=False)
POOR = {"model": "llama3-70b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 8192}
"""A model that a node holds with optimizer states in host memory, and not without."""


def case_of(model, layers, devices, batch, sequence, memory_gib, device="h100-sxm"):
    """A case whose devices have so much memory."""
    case = small_case(model, device, layers=layers, devices=devices, batch=batch, sequence=sequence)
    scarce = replace(case.cluster.device, memory_bytes=memory_gib * 2**30)
    return replace(case, cluster=replace(case.cluster, device=scarce))


CASES = st.builds(
    case_of, st.sampled_from(("llama3-8b", "llama3-70b", "mixtral-8x7b")), st.integers(2, 4), st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((4, 16, 48)), st.sampled_from((1024, 4096)), st.floats(1.0, 40.0),
)


@examples(12)
@given(CASES, st.sampled_from((EVERYTHING, MEGATRON, replace(MEGATRON, offload_zero_stages=(1, 2, 3)))),
       st.sampled_from(({}, {"tp": "1"}, {"pp": "1", "offload": "none"}, {"recompute": "none"})))
def test_every_lever_applied_is_legal_and_is_the_estimate_that_it_names(case, features, pins):
    found = levers(case, features, NOBODY, pins=pins)
    for each in found:
        assert not layout_refusals(each.case, features, each.estimate.layout)
        again = parse_layout(
            label(each.estimate.layout, overlap=overlap_for(each.case)), num_devices=each.case.cluster.num_devices,
            global_batch_sequences=each.case.batch.global_batch_sequences, model=each.case.model, overlap=overlap_for(each.case),
        )
        applied = estimate(each.case, again)
        assert (applied.step_s, applied.memory_reserved_bytes) == (each.estimate.step_s, each.estimate.memory_reserved_bytes)
        assert each.fits == (applied.fits and not host_short_bytes(each.case, applied))
        assert (": fits, " in str(each)) == each.fits
        assert ("short" in str(each)) == (not applied.fits)
        assert ("offload=optimizer" in each.options) == bool(each.estimate.layout.offload)
        assert each.case.batch == case.batch


@examples(5)
@given(CASES)
def test_optimizer_states_leave_the_device_where_nothing_fits_otherwise(case):
    options = SearchOptions(top=3, refine=False)
    try:
        without = plan(case, EVERYTHING, replace(options, pins={"offload": "none"}))
        found, moved = plan(case, EVERYTHING, options), plan(case, EVERYTHING, replace(options, pins={"offload": "optimizer"}))
    except InputError:
        assume(False)
        return
    if without.plans:
        assert [each.label for each in found.plans] == [each.label for each in without.plans]
        assert not any(each.layout.offload for each in found.plans)
    else:
        held = bool(moved.plans) and not host_short_bytes(case, moved.plans[0].estimate)
        assert [each.label for each in found.plans] == [each.label for each in moved.plans if held]
    assert all(each.layout.offload == ("optimizer",) for each in moved.plans)
    assert found.legal == found.evaluated + found.bounded


def test_a_node_without_the_host_memory_is_no_answer_and_the_lever_says_so():
    case = case_of("llama3-70b", 4, 2, 8, 4096, 30.0)
    assert plan(case, EVERYTHING, ONE).plans[0].layout.offload
    small = replace(case, cluster=replace(case.cluster, host_memory_bytes=10**9))
    assert not plan(small, EVERYTHING, ONE).plans
    lever = levers(small, EVERYTHING, NOBODY)[0]
    assert lever.estimate.fits
    assert not lever.fits
    assert "of host memory for it" in str(lever)


def test_what_makes_the_gap_larger_is_no_lever():
    """Without data parallelism nothing shards the FP32 copy that an update makes of 16-bit gradients: 6 bytes instead of 4."""
    case = replace(case_of("llama3-70b", 4, 1, 8, 4096, 8.0), implementation=implementation("mindspeed"))
    shorter = replace(case, training=replace(case.training, precision=replace(case.training.precision, gradient_bytes=2.0)))
    sizes = [estimate(each, parse_layout("tp1 mb1 recompute=full", num_devices=1, global_batch_sequences=8,
                                         model=case.model)).memory_reserved_bytes for each in (case, shorter)]
    assert sizes[1] > sizes[0]
    assert "gradients in BF16" not in [each.words for each in levers(case, EVERYTHING, NOBODY)]


def test_what_a_framework_refuses_is_no_lever():
    refusing = Functions(acceptable=lambda layout: layout.tensor_parallel == 1)
    for each in levers(case_of("llama3-70b", 4, 2, 8, 4096, 30.0), EVERYTHING, refusing):
        assert each.estimate.layout.tensor_parallel == 1


@pytest.fixture(scope="module")
def poor():
    """What three verbs say of one case that does not fit as it is asked."""
    pinned = mw.plan(mw.PlanRequest(**POOR, pin=["offload=none"])).to_json()
    unfit = {**POOR, "layout": "tp8 sp mb1 recompute=full"}
    explained = mw.explain(mw.ExplainRequest(**unfit)).to_json()
    fixed = mw.fix(mw.FixRequest(files=[POOR["model"]], max_edits=1, **{k: v for k, v in unfit.items() if k != "model"})).to_json()
    return SimpleNamespace(
        plan=pinned["verdict"]["unmet"][0]["levers"], explain=explained["explanation"]["fit"]["levers"], fix=fixed["levers"],
    )


def test_plan_explain_and_fix_have_one_list(poor):
    assert poor.explain == poor.fix
    assert [each.split(" (")[0] for each in poor.explain][:2] == [  # alone, 16-bit gradients make the optimizer step the peak
        "optimizer states in host memory", "optimizer states in host memory and gradients in BF16"
    ]
    assert set(poor.plan) - set(poor.explain) == {each for each in poor.plan if each.startswith("fewer pins")}


def test_the_first_lever_is_the_first_plan(poor):
    first = mw.plan(mw.PlanRequest(**POOR, top=1)).to_json()["plans"][0]
    assert f" as {first['label']}, " in poor.explain[0]
    assert "offload=optimizer" in first["label"]
    assert "zero0" not in first["label"]


def test_two_nodes_that_fit_with_offload_alone_are_planned():
    found = plan(
        replace(small_case("llama3-70b", devices=16, batch=64, sequence=8192, implementation="megatron-te"),
                memory_ratio=0.62), replace(MEGATRON, offload_zero_stages=(1, 2, 3)), SearchOptions(top=1),
    )
    assert found.plans[0].layout.offload == ("optimizer",)
    assert found.plans[0].estimate.fits


def test_nothing_to_explain_says_what_would_help():
    with pytest.raises(NoAnswerError, match="gradients in BF16"):
        mw.explain(mw.ExplainRequest(model="llama3.1-405b", device="h100-sxm", nodes=1, global_batch=64, sequence=8192))


def test_more_devices_are_as_few_as_fit():
    case = case_of("llama3-70b", 8, 8, 48, 4096, 8.0)
    found = next(each for each in levers(case, MEGATRON, NOBODY) if each.options.startswith("--nodes"))
    nodes = found.case.cluster.num_nodes
    assert found.fits
    assert nodes > 1
    for fewer in range(1, nodes):
        own = replace(case, cluster=replace(case.cluster, num_devices=fewer * case.cluster.devices_per_node))
        assert not plan(own, MEGATRON, SearchOptions(top=1, pins={"offload": "none"})).plans


def test_states_move_where_nothing_fits_and_not_where_the_framework_refuses_what_fits():
    """Every asker of the first plan says what ``plan`` does: a framework that runs none of what fits has no plan."""
    case, moved_alone = small_case("llama3-8b", devices=8, batch=32), Functions(acceptable=lambda layout: bool(layout.offload))
    assert plan(case, MEGATRON, ONE, runner=moved_alone).refused > 0
    assert first_of(case, MEGATRON, ONE, moved_alone) is None
    assert first_of(case, MEGATRON, ONE, NOBODY).label == plan(case, MEGATRON, ONE, runner=NOBODY).plans[0].label
