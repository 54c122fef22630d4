"""What must hold of every estimate: sums, bounds and directions, for models, clusters and layouts of every sort."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.catalog import calibration
from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.estimate import estimate, evaluate
from meshwright.perf.parameters import layer_parameters, mtp_parameters, total_parameters
from meshwright.search import layout_refusals
from strategies import EVERYTHING, cases, clusters, examples, layouts, models, planned, small_case

if TYPE_CHECKING:
    from collections.abc import Iterator

EXACT = 1e-9
WHOLE_BACKWARD = replace(EVERYTHING, schedules=("1f1b", "interleaved", "gpipe"))


def numbers(value: object, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every number inside a value, with its path."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from numbers(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from numbers(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{path}[{key}]")
    elif isinstance(value, int | float | np.ndarray | np.generic) and not isinstance(value, bool):
        yield path, np.asarray(value, dtype=np.float64)


@examples(50)
@given(planned())
def test_no_figure_is_negative_infinite_or_missing(pair):
    case, layout = pair
    evaluation, found = evaluate(case, layout), estimate(case, layout)
    for path, value in (*numbers(evaluation), *numbers(replace(found, terms=()))):
        assert np.isfinite(value).all(), path
        assert (value >= 0).all(), path
    assert all(np.isfinite(term.value) for term in found.terms)
    assert found.step_s > 0
    assert 0 < found.mfu_ratio <= found.hfu_ratio
    assert found.memory_peak_bytes <= found.memory_reserved_bytes <= found.memory_upper_bytes
    assert found.bubble_ratio < 1


ODD = [
    small_case(layers=1, devices=1, batch=1, sequence=1),
    small_case(layers=1, devices=4, batch=4, sequence=8, per_node=4),
    small_case(layers=3, devices=6, batch=6, sequence=6, per_node=6),
    small_case(layers=2, devices=16, batch=16, sequence=64, per_node=16),
    small_case("gpt2", layers=1, devices=1, batch=3, sequence=7),
    small_case("mixtral-8x7b", layers=1, devices=4, batch=4, sequence=4, per_node=4),
    small_case("deepseek-v3", layers=4, devices=3, batch=3, sequence=12, per_node=3),
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_odd_nodes_single_layers_and_single_tokens_are_estimated(number):
    case = ODD[number]
    tried = 0
    n = case.cluster.num_devices
    for tp in (1, 2, 3, 4):
        for pp in (1, 2, 3):
            if n % (tp * pp):
                continue
            dp = n // (tp * pp)
            layout = Layout(
                tensor_parallel=tp,
                sequence_parallel=tp > 1,
                pipeline_parallel=pp,
                data_parallel=dp,
                num_microbatches=max(1, case.batch.global_batch_sequences // dp),
            )
            if layout_refusals(case, EVERYTHING, layout):
                continue
            tried += 1
            for path, value in numbers(replace(estimate(case, layout), terms=())):
                assert np.isfinite(value).all(), path
                assert (value >= 0).all(), path
    assert tried


@examples(20)
@given(planned())
def test_the_world_is_the_product_of_degrees_and_the_batch_is_whole(pair):
    case, layout = pair
    assert layout.world == case.cluster.num_devices
    degrees = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel * layout.data_parallel
    assert layout.world == degrees
    expert = layout.expert_tensor_parallel * layout.expert_parallel * layout.pipeline_parallel * layout.expert_data_parallel
    assert layout.world == expert
    assert layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches == case.batch.global_batch_sequences


@examples(20)
@given(planned())
def test_parts_of_the_time_and_terms_of_the_breakdown_sum_to_the_step(pair):
    case, layout = pair
    found = estimate(case, layout)
    assert found.time.total_s() == pytest.approx(found.step_s, rel=EXACT)
    assert sum(term.value for term in found.terms) == pytest.approx(found.step_s, rel=EXACT)
    ideal = next(term.value for term in found.terms if term.name == "ideal")
    assert ideal == pytest.approx(found.mfu_ratio * found.step_s, rel=EXACT)
    for field in fields(found.time):
        assert getattr(found.time, field.name) >= 0, field.name
    busy = (found.time.compute_s + found.time.optimizer_s) * layout.world
    assert found.effective_tokens_per_s_per_device == pytest.approx(case.batch.tokens / busy, rel=EXACT)


@examples(20)
@given(planned())
def test_memory_parts_sum_to_the_fullest_stage_and_layers_to_the_model(pair):
    case, layout = pair
    found = estimate(case, layout)
    assert sum(stage.layers for stage in found.stages) == case.model.num_layers + case.model.mtp_passes
    assert len(found.stages) == layout.pipeline_parallel
    assert all(sum(stage.chunk_layers) == stage.layers for stage in found.stages)
    assert {len(stage.chunk_layers) for stage in found.stages} == {layout.virtual_stages}
    fullest = max(found.stages, key=lambda stage: stage.memory.reserved_bytes)
    assert fullest.memory.reserved_bytes == pytest.approx(found.memory_reserved_bytes, rel=EXACT)
    assert found.stages[found.peak_stage].memory.reserved_bytes == pytest.approx(found.memory_reserved_bytes, rel=EXACT)
    assert found.fits == (found.memory_reserved_bytes <= case.capacity_bytes)


def _counted(case, layout) -> float:
    """Parameters over all ranks of one replica, what every tensor rank has alike counted once, padding taken off."""
    evaluation = evaluate(case, layout)
    model, tp = case.model, layout.tensor_parallel
    dense, routed = float(evaluation.parameters.dense.sum()), float(evaluation.parameters.experts.sum())
    copies = 0.0
    for index in (*model.pattern, *([model.pattern[-1]] * model.mtp_passes)):
        each = layer_parameters(model, model.kinds[index], tp=tp)
        copies += (tp - 1) * int(each.replicated)
        attention = model.kinds[index].attention
        if attention.latent is None and attention.num_key_value_heads < tp:
            copies += 2 * attention.head_dim * (model.hidden + attention.key_value_bias) * (tp - attention.num_key_value_heads)
    return dense * tp + routed * layout.expert_parallel * layout.expert_tensor_parallel - copies


@examples(20)
@given(st.data())
def test_parameters_of_all_ranks_are_the_models(data):
    """Layers only: no vocabulary to pad, no norms at the end; routed experts have no bias that expert TP would copy."""
    case = data.draw(cases(implementation="torch-eager"))
    blocks = [replace(kind.experts, expert_bias=False) if kind.experts else kind.feed_forward for kind in case.model.kinds]
    kinds = tuple(replace(kind, feed_forward=block) for kind, block in zip(case.model.kinds, blocks, strict=True))
    model = replace(
        case.model,
        kinds=kinds,
        num_mtp_layers=0,
        final_norm=False,
        embedding_norm=False,
        position="rope",
        position_table=0,
        head_bias=False,
        vocabulary=3072,
        tied_embeddings=False,
    )
    case = replace(case, model=model)
    layout = data.draw(layouts(case))
    assume(3072 % layout.tensor_parallel == 0)
    counted = _counted(case, layout)
    assert counted == pytest.approx(total_parameters(model, mtp=True), abs=0.5)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama3-70b", Layout(tensor_parallel=8, sequence_parallel=True, pipeline_parallel=4, data_parallel=2, num_microbatches=8)),
        ("llama3-8b", Layout(pipeline_parallel=4, data_parallel=16)),
        ("mixtral-8x7b", Layout(pipeline_parallel=4, expert_parallel=8, data_parallel=16)),
        ("deepseek-v3", Layout(pipeline_parallel=4, expert_parallel=16, data_parallel=16)),
    ],
)
def test_stages_of_catalogue_models_hold_the_whole_model(name, layout):
    case = small_case(name, devices=64, batch=16, implementation="torch-eager")
    model, stages = case.model, estimate(case, layout).stages
    evaluation = evaluate(case, layout)
    dense, routed = float(evaluation.parameters.dense.sum()), float(evaluation.parameters.experts.sum())
    tp = layout.tensor_parallel
    layers = sum(int(layer_parameters(model, model.kinds[index], tp=tp).replicated) for index in model.pattern)
    replicated = (tp - 1) * (layers + model.hidden + int(mtp_parameters(model, tp=tp).replicated))
    copied = model.vocabulary * model.hidden if model.num_mtp_layers and layout.pipeline_parallel > 1 else 0
    assert dense * tp - replicated + routed * layout.expert_parallel == total_parameters(model, mtp=True) + copied
    assert max(stage.parameters for stage in stages) == round(
        float((evaluation.parameters.dense + evaluation.parameters.experts).max())
    )


@pytest.mark.parametrize(("stages", "tables"), [(1, 1), (2, 2), (4, 2)])
def test_tied_embeddings_are_held_twice_under_a_pipeline_and_once_without(stages, tables):
    case = small_case("gpt2", devices=stages, batch=4, sequence=512, implementation="torch-eager")
    parameters = evaluate(case, Layout(pipeline_parallel=stages, num_microbatches=4)).parameters
    assert float(parameters.dense.sum()) == 124_439_808 + (tables - 1) * 50257 * 768


@pytest.mark.parametrize(("tp", "mb"), [(1, 4), (2, 2), (8, 1)])
def test_the_last_stage_keeps_the_logits_and_the_input_of_the_output_layer(tp, mb):
    """2 T V / t in place, 2 V h / t for the weight's gradient, 2 T h / t: more than a layer takes at a large vocabulary."""
    case = small_case("llama3.2-1b", devices=2 * tp, batch=8)
    layout = Layout(
        tensor_parallel=tp, sequence_parallel=tp > 1, pipeline_parallel=2, microbatch_sequences=mb, num_microbatches=8 // mb
    )
    first, last = evaluate(case, layout).memory.temporary
    tokens, rows = mb * 2048, -(-128256 // (128 * tp)) * 128 * tp
    assert float(last) == pytest.approx(2 * (tokens * (rows + 2048) + rows * 2048) / tp, rel=1e-12)
    assert float(first) < float(last)


def _states(case, layout) -> np.ndarray:
    """Parameters, gradients, optimizer states and saved activations of the fullest rank of each, under balanced routing."""
    case = replace(case, training=replace(case.training, balanced_routing=True))  # else one rank has all copies, none has more
    memory = evaluate(case, layout).memory
    return np.array([float(part.max()) for part in (memory.parameters, memory.gradients, memory.optimizer, memory.activations)])


def _never_grows(case, small: Layout, large: Layout) -> None:
    assume(not layout_refusals(case, EVERYTHING, small))
    assume(not layout_refusals(case, EVERYTHING, large))
    assert (_states(case, large) <= _states(case, small) * (1 + EXACT)).all()


@st.composite
def _bases(draw, **options):
    """A case and a legal layout of it with little in it."""
    case = draw(cases(**options))
    mb = draw(st.sampled_from((1, 2)))
    recompute = draw(st.sampled_from((NoRecompute(), Selective(), Full())))
    return case, Layout(microbatch_sequences=mb, num_microbatches=draw(st.sampled_from((1, 4, 12))), recompute=recompute)


@pytest.mark.parametrize("knob", ["tp", "cp", "ep"])
def test_states_and_activations_never_grow_with_a_model_shard(knob):
    @examples(18)
    @given(_bases(implementation="megatron-te"), st.sampled_from((2, 3, 4, 6)))
    def check(pair, degree):
        case, base = pair
        number = base.microbatch_sequences * base.num_microbatches
        case = replace(case, batch=replace(case.batch, sequence_tokens=192, global_batch_sequences=number))
        case = replace(case, model=replace(case.model, vocabulary=128 * 12))  # one vocabulary that no degree pads
        small = replace(base, context_parallel=degree) if knob == "ep" else base
        large = {
            "tp": replace(base, tensor_parallel=degree, sequence_parallel=True),
            "cp": replace(base, context_parallel=degree),
            "ep": replace(base, expert_parallel=degree, context_parallel=degree),
        }[knob]
        _never_grows(case, small, large)

    check()


@examples(18)
@given(_bases(uniform=True, implementation="megatron-te"), st.sampled_from((2, 3, 4)), st.integers(1, 3))
def test_states_and_activations_never_grow_with_stages_that_share_the_layers_evenly(pair, stages, each):
    """At the same number of micro-batches. A split with a remainder may hold more: 1F1B keeps P micro-batches on stage 0."""
    case, base = pair
    model = replace(case.model, pattern=(0,) * (stages * each * 2))
    batch = replace(case.batch, global_batch_sequences=base.microbatch_sequences * base.num_microbatches)
    case = replace(case, model=model, batch=batch)
    _never_grows(case, base, replace(base, pipeline_parallel=stages))
    _never_grows(case, replace(base, pipeline_parallel=stages), replace(base, pipeline_parallel=2 * stages))


@examples(18)
@given(cases(), st.data())
def test_states_never_grow_with_zero_stages_and_shard_groups(case, data):
    replicas = 8
    batch = replace(case.batch, global_batch_sequences=replicas)
    case = replace(case, batch=batch)
    small, large = sorted(data.draw(st.tuples(*[st.sampled_from((1, 2, 4, 8))] * 2)))
    every = ("optimizer_shards", "gradient_shards", "parameter_shards")
    knobs = every[: data.draw(st.integers(1, 3))]
    base = Layout(data_parallel=replicas)
    fewer, more = (replace(base, **dict.fromkeys(knobs, size)) for size in (small, large))
    assert (_states(case, more) <= _states(case, fewer) * (1 + EXACT)).all()
    for stage in range(1, len(knobs) + 1):
        assert (_states(case, more) <= _states(case, replace(base, **dict.fromkeys(knobs[:stage], large))) * (1 + EXACT)).all()


@examples(20)
@given(planned(), st.sampled_from((1.5, 4.0)))
def test_a_better_network_never_slows(pair, better):
    case, layout = pair
    cluster = case.cluster

    def step(other) -> float:
        return float(evaluate(replace(case, cluster=other), layout).time.step_s)

    base = step(cluster)
    for tier in ("scale_up", "network"):
        link = getattr(cluster, tier)
        assert step(replace(cluster, **{tier: replace(link, bytes_per_s=link.bytes_per_s * better)})) <= base * (1 + EXACT)
        assert step(replace(cluster, **{tier: replace(link, latency_s=link.latency_s / better)})) <= base * (1 + EXACT)
    assert step(replace(cluster, oversubscription=1.0)) <= base * (1 + EXACT)


@examples(18)
@given(planned(WHOLE_BACKWARD), st.sampled_from((1.3, 3.0)))
def test_a_faster_device_never_slows_where_nothing_is_hidden(pair, better):
    """Compute that hides communication may get faster for nothing; without overlap every second of it counts."""
    case, layout = pair
    implementation = replace(case.implementation, gradient_overlap=False, parameter_overlap=False, tensor_backward_overlap=False)
    case = replace(case, implementation=implementation)
    layout = replace(layout, overlap=replace(layout.overlap, tensor=False, expert=False), context_kind="all-gather")
    device = case.cluster.device
    fast = replace(device, peak_flops_per_s={name: value * better for name, value in device.peak_flops_per_s.items()})
    wide = replace(device, memory_bytes_per_s=device.memory_bytes_per_s * better)
    base = float(evaluate(case, layout).time.step_s)
    for other in (fast, wide):
        own = replace(case, cluster=replace(case.cluster, device=other))
        assert float(evaluate(own, layout).time.step_s) <= base * (1 + EXACT)


@examples(20)
@given(planned())
def test_recompute_saves_memory_and_costs_time(pair):
    case, layout = pair
    ways = [NoRecompute(), Full(layers=1), Full(layers=2), Full()]
    found = [evaluate(case, replace(layout, recompute=way)) for way in ways]
    saved = [float(each.memory.activations.max()) for each in found]
    steps = [float(each.time.step_s) for each in found]
    assert all(b <= a * (1 + EXACT) for a, b in pairwise(saved))
    work = [float((each.stages.forward_s + each.stages.backward_s).max()) for each in found]
    assert all(b >= a * (1 - EXACT) for a, b in pairwise(work))
    assert steps[-1] >= steps[0] * (1 - EXACT)


@examples(18)
@given(planned())
def test_selective_recompute_keeps_less_and_takes_longer_module_by_module(pair):
    case, layout = pair
    before = evaluate(case, replace(layout, recompute=NoRecompute()))
    modules: tuple[str, ...] = ()
    for module in EVERYTHING.selective_modules:
        modules = (*modules, module)
        after = evaluate(case, replace(layout, recompute=Selective(modules=modules)))
        if module != "core_attn":  # a checkpoint of the core may keep the joint product
            assert (after.memory.activations <= before.memory.activations * (1 + EXACT)).all()
        assert (after.stages.backward_s >= before.stages.backward_s * (1 - EXACT)).all()
        assert (after.stages.forward_s == before.stages.forward_s).all()
        before = after


@examples(18)
@given(planned())
def test_zero_two_is_never_faster_than_zero_one(pair):
    """But where ZeRO-1 reduces whole gradients and its owners send FP32 slices: sharded units move less than that."""
    case, layout = pair
    ranks = layout.data_parallel * layout.context_parallel
    assume(ranks > 1 and case.implementation.units is None)
    one = replace(layout, optimizer_shards=ranks, gradient_shards=1, parameter_shards=1)
    two = replace(one, gradient_shards=ranks)
    fast, slow = (evaluate(case, each).time.data_parallel_exposed_s for each in (one, two))
    assert float(slow) >= float(fast) * (1 - EXACT)


@examples(20)
@given(planned())
def test_offload_moves_the_optimizer_to_the_host(pair):
    case, layout = pair
    here, there = (estimate(case, replace(layout, offload=place)) for place in ((), ("optimizer",)))
    assert there.memory_reserved_bytes <= here.memory_reserved_bytes
    assert there.host_memory_per_node_bytes >= here.host_memory_per_node_bytes
    assert all(stage.memory.optimizer == 0 for stage in there.stages)
    assert there.step_s >= here.step_s * (1 - EXACT)


@examples(20)
@given(planned(), st.floats(0.1, 1.0), st.floats(0.0, 0.8))
def test_capacity_is_what_may_be_used_less_what_is_kept_for_others(pair, share, reserved):
    case, layout = pair
    own = replace(case, memory_ratio=share, reserve_ratio=reserved)
    found = estimate(own, layout)
    assert found.memory_capacity_bytes == pytest.approx(case.cluster.device.memory_bytes * max(0, share - reserved))
    assert found.memory_reserved_bytes == estimate(case, layout).memory_reserved_bytes


@examples(20)
@given(models(), clusters(), st.data())
def test_a_larger_vocabulary_or_more_layers_never_cost_less(model, cluster, data):
    case = replace(small_case(), model=model, cluster=cluster, calibration=calibration("none", cluster.device))
    layout = data.draw(layouts(case))
    base = evaluate(case, layout)
    wider = evaluate(replace(case, model=replace(model, vocabulary=model.vocabulary + 4096)), layout)
    assert float(wider.time.step_s) >= float(base.time.step_s) * (1 - EXACT)
    assert float(wider.memory.reserved_bytes.max()) >= float(base.memory.reserved_bytes.max()) * (1 - EXACT)
