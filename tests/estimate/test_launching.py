"""What the settings of a launch cost: physics in one direction, nothing where nothing is said."""

from dataclasses import replace

import pytest
from hypothesis import given

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.launching import launched, settings_of
from meshwright.domain.layout import Layout, Overlap
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.launching import launch_costs
from meshwright.estimate.many import evaluate_many
from meshwright.words import percent
from strategies import planned

LAYOUT = Layout(
    tensor_parallel=2, sequence_parallel=True, expert_parallel=8, pipeline_parallel=2, data_parallel=4, optimizer_shards=4,
    num_microbatches=16,
)
CONTEXT = Layout(context_parallel=2, data_parallel=8, optimizer_shards=16, num_microbatches=8)


def case(model, sequence=4096, calibration="none"):
    cluster = cluster_for("h100-sxm", num_devices=16)
    return make_case(model, cluster, global_batch_sequences=64, sequence_tokens=sequence, calibration=calibration)


def step_s(made, layout):
    return float(evaluate(made, layout).time.step_s)


@examples(25)
@given(planned())
def test_slower_settings_never_make_a_step_shorter(drawn):
    made, layout = drawn
    own = step_s(made, layout)
    for name, slow in (("deterministic", "on"), ("attention", "auto"), ("host", "plain"), ("routing", "natural")):
        fast = launched(made, {"routing": "balanced"}) if name == "routing" else made
        assert step_s(launched(fast, {name: slow}), layout) >= step_s(fast, layout) * (1.0 - 1e-12)
    assert step_s(launched(made, {name: settings_of(made)[name] for name in ("deterministic", "attention", "host")}), layout) == own


@examples(15)
@given(planned())
def test_an_optimizer_as_a_list_of_operators_costs_time_and_never_saves_memory(drawn):
    made, layout = drawn
    plain, fused = (evaluate(launched(made, {"optimizer": each}), layout) for each in ("plain", "fused"))
    assert float(plain.time.step_s) >= float(fused.time.step_s) * (1.0 - 1e-12)
    assert (plain.memory.reserved_bytes >= fused.memory.reserved_bytes * (1.0 - 1e-12)).all()
    assert float(fused.time.step_s) == step_s(made, layout)


def test_sinks_fall_back_where_nobody_names_the_back_end_and_other_attention_does_not():
    for model, slower in (("gpt-oss-20b", True), ("qwen3-30b-a3b", False)):
        made = case(model)
        assert (step_s(launched(made, {"attention": "auto"}), LAYOUT) > 1.05 * step_s(made, LAYOUT)) is slower


def test_packs_under_context_parallelism_never_fall_back():
    """The unfused core of Transformer Engine takes neither."""
    made = case("llama3-8b", sequence=32768)
    packed = replace(made, batch=replace(made.batch, mean_square_document_tokens=32768.0 * 900))
    assert step_s(launched(packed, {"attention": "auto"}), CONTEXT) == step_s(packed, CONTEXT)


def test_columns_say_of_a_launch_what_one_layout_says():
    made = launched(case("gpt-oss-20b"), {"attention": "auto", "host": "plain", "deterministic": "on", "graphs": "none"})
    layouts = [LAYOUT, replace(LAYOUT, tensor_parallel=1, data_parallel=8, num_microbatches=8, optimizer_shards=8)]
    many = evaluate_many(made, layouts)[0]
    assert [float(each) for each in many] == pytest.approx([step_s(made, layout) for layout in layouts], rel=1e-13)


def test_every_cost_is_that_of_one_change():
    made = launched(case("gpt-oss-20b"), {"attention": "auto", "deterministic": "on"})
    off = replace(LAYOUT, overlap=Overlap(gradient_reduce=False, parameter_gather=False, point_to_point=False))
    costs = {each.name: each for each in launch_costs(made, off)}
    own = step_s(made, off)
    assert costs["attention"].cost_ratio == pytest.approx(own / step_s(launched(made, {"attention": "named"}), off) - 1.0)
    assert costs["overlap"].value == "off"
    assert costs["overlap"].cost_ratio > 0.0
    assert {name for name, each in costs.items() if each.source == "given"} == {"attention", "deterministic"}
    assert costs["host"].cost_ratio == 0.0
    assert f"+{percent(costs['attention'].cost_ratio)}" in costs["attention"].sentence


def test_a_dense_model_has_no_routing():
    assert {"routing", "dispatcher"}.isdisjoint(settings_of(case("llama3-8b")))


@pytest.mark.parametrize("woven", [False, True])
@pytest.mark.parametrize("sequence", [512, 2048, 4096])
@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_slower_experts_leave_no_time_of_the_host_to_weight_gradients_alone(microbatches, sequence, woven):
    """In layers that wait for their host, longer weight gradients made input gradients shorter, and with them a zero bubble."""
    made = case("qwen3-30b-a3b", sequence)
    made = replace(made, batch=replace(made.batch, global_batch_sequences=8 * microbatches))
    layout = Layout(
        pipeline_parallel=2, expert_parallel=8, data_parallel=8, num_microbatches=microbatches, schedule="zb1p",
        overlap=Overlap(gradient_reduce=False, expert=woven),
    )
    balanced, natural = (launched(made, {"routing": each}) for each in ("balanced", "natural"))
    times = [evaluate(each, layout).time.pipeline for each in (balanced, natural)]
    assert float(times[1].bubble_s) >= float(times[0].bubble_s) * (1.0 - 1e-12)
    assert step_s(natural, layout) >= step_s(balanced, layout) * (1.0 - 1e-12)
