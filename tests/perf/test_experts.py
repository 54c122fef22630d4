"""What experts and adapters cost beside their products: host waits, sorts, casts, hidden exchanges."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.catalog import implementation as implementation_named
from meshwright.catalog import precision as precision_named
from meshwright.domain.layout import Layout, Overlap
from meshwright.domain.training import Lora
from meshwright.estimate.evaluate import evaluate
from meshwright.perf.adapters import adapted_widths, adapter_s
from meshwright.perf.expert_exchange import imbalance_ratio
from meshwright.perf.launches import kernels
from meshwright.perf.operators import work_shape
from meshwright.perf.schedules.interleaved import order_interleaved
from meshwright.perf.widths import row_elements, row_exists

LAYOUT = Layout(expert_parallel=8, data_parallel=8, optimizer_shards=8, num_microbatches=8)


def case(model="qwen3-30b-a3b", implementation="megatron-te", precision="fp8-mx", device="b200", **more):
    made = make_case(
        model, cluster_for(device, num_devices=8), global_batch_sequences=64, sequence_tokens=4096,
        precision=precision, calibration="none", **more,
    )
    return replace(made, implementation=implementation_named(implementation))


def layer(made, layout=LAYOUT):
    return evaluate(made, layout).costs.kinds[-1].time


def with_constants(made, **constants):
    constants = replace(made.calibration.constants, **constants)
    return replace(made, calibration=replace(made.calibration, constants=constants))


@examples(30)
@given(st.floats(0.0, 4e-3))
def test_the_host_reads_its_counts_beside_the_dispatch_where_no_graph_and_no_other_pass_is(sync):
    waiting = with_constants(case(), expert_host_s=0.0, launch_s=0.0, expert_sync_s=sync)
    graphed = replace(waiting, implementation=replace(waiting.implementation, cuda_graphs=True))
    dispatch = float(layer(waiting).forward.expert) / 2.0

    def lost(layout):
        return float(layer(waiting, layout).forward.host - layer(graphed, layout).forward.host)

    assert lost(LAYOUT) == pytest.approx(max(0.0, sync - dispatch), rel=0.01, abs=1e-9)
    assert lost(replace(LAYOUT, overlap=Overlap(expert=True))) == pytest.approx(sync, rel=0.01, abs=1e-9)
    assert float(layer(case("qwen3-8b"), replace(LAYOUT, expert_parallel=1)).forward.host) == 0.0


def test_balanced_routing_has_no_fuller_expert():
    made = case()
    balanced = replace(made, training=replace(made.training, balanced_routing=True))
    ratio = float(layer(made).forward.expert / layer(balanced).forward.expert)
    spread = made.calibration.constants.expert_load_spread
    assert ratio == pytest.approx(1.0 + spread * np.sqrt(2.0 * np.log(8.0) / (128 / 8)))


@examples(30)
@given(st.integers(0, 7), st.integers(0, 7), st.floats(1e-3, 10.0))
def test_the_fullest_rank_has_no_less_than_the_mean_and_more_the_more_ranks_wait(few, more, spread):
    made = case()
    constants = replace(made.calibration.constants, expert_load_spread=spread)
    loaded = replace(made, calibration=replace(made.calibration, constants=constants))
    small, large = sorted((2.0**few, 2.0**more))
    assert 1.0 <= float(imbalance_ratio(loaded, 128, small)) <= float(imbalance_ratio(loaded, 128, large))
    assert float(imbalance_ratio(loaded, 128, 1.0)) == 1.0


def test_the_host_of_an_eager_mixture_is_a_floor_that_partial_graphs_and_fast_layers_lift():
    slow, alone = case(device="b200"), replace(LAYOUT, expert_parallel=1)
    plain = [replace(slow, launch=replace(slow.launch, graphs=graphs, plain_host=True)) for graphs in ("none", "partial")]
    eager, replayed = (float(layer(each, alone).forward.host) for each in plain)
    assert eager >= replayed


def test_adapters_launch_kernels_of_their_own():
    tuned = case("qwen3-8b", precision="bf16", task="lora", lora=Lora(targets=("query", "output")))
    shape = evaluate(tuned, replace(LAYOUT, expert_parallel=1)).costs.shape
    plain = replace(tuned, training=replace(tuned.training, task="pretrain", lora=None))
    counts = [kernels(each.model.kinds[-1], each, shape, "ring") for each in (tuned, plain)]
    ahead, behind = (float(with_ - without) for with_, without in zip(*counts, strict=True))
    assert (ahead, behind) == (2 * 4.0, 2 * 8.0)


def test_fused_experts_cast_and_gate_inside_their_kernels():
    plain, fused = layer(case(implementation="megatron-te-deepep")).pieces, layer(case(implementation="megatron-te-graphed")).pieces
    assert float(fused.cast) < float(plain.cast)
    assert float(fused.elementwise_forward) < float(plain.elementwise_forward)


def test_casting_weights_every_micro_batch_costs_their_size():
    made = case()
    often = replace(made, implementation=replace(made.implementation, casts_weights=True))
    assert float(layer(often).pieces.cast) > float(layer(made).pieces.cast)
    assert float(layer(case(precision="bf16")).pieces.cast) == 0.0


def test_quantised_experts_launch_more_kernels_unless_they_are_fused():
    made = case()
    shape = evaluate(made, LAYOUT).costs.shape
    kind = made.model.kinds[-1]
    plain = replace(made, training=replace(made.training, precision=precision_named("bf16")))
    fused, fused_plain = (replace(each, implementation=implementation_named("megatron-te-graphed")) for each in (made, plain))
    more = float(kernels(kind, made, shape, "ring")[0] - kernels(kind, plain, shape, "ring")[0])
    assert more == 2 * made.model.experts.num_experts / 8, "an expert's input is quantised for each of its two products"
    assert float(kernels(kind, fused, shape, "ring")[0]) == float(kernels(kind, fused_plain, shape, "ring")[0])
    assert float(kernels(kind, fused, shape, "ring")[0]) < float(kernels(kind, plain, shape, "ring")[0])


@pytest.mark.parametrize(("precision", "forward", "backward"), [
    ("bf16", 2, 4), ("fp8-mx", 4, 6), ("fp8-blockwise", 4, 6), ("fp8-cs", 8, 10), ("fp8-delayed", 2, 4), ("nvfp4", 4, 8),
])
def test_an_expert_more_launches_what_transformer_engine_runs_expert_by_expert(precision, forward, backward):
    """GroupedLinear of 2.12: split_quantize of the input, of the gradient (for both products of the backward), and the products."""
    made = case(precision=precision, device="b200")
    kind = made.model.kinds[-1]
    few, many = (
        kernels(kind, made, work_shape(microbatch_sequences=1, sequence_tokens=4096, expert_parallel=degree), "ring")
        for degree in (8, 4)
    )
    more = made.model.experts.num_experts / 8
    assert [float(b - a) / more for a, b in zip(few, many, strict=True)] == [forward, backward]


def test_biases_are_added_expert_by_expert():
    made = case("gpt-oss-120b", precision="bf16")
    kind = made.model.kinds[-1]
    bare = replace(kind, feed_forward=replace(kind.feed_forward, expert_bias=False))
    shape = work_shape(microbatch_sequences=1, sequence_tokens=4096, expert_parallel=8)
    counts = [kernels(each, made, shape, "ring") for each in (kind, bare)]
    assert [float(a - b) for a, b in zip(*counts, strict=True)] == [2 * 128 / 8, 6 * 128 / 8]


def test_expert_biases_cost_passes_and_others_do_not():
    biased, bare = case("gpt-oss-120b"), case("qwen3-30b-a3b")
    for made, more in ((biased, True), (bare, False)):
        rows = tuple(row for row in made.implementation.passes if row.part != "expert_bias")
        without = replace(made, implementation=replace(made.implementation, passes=rows))
        assert (float(layer(made).pieces.elementwise_forward) > float(layer(without).pieces.elementwise_forward)) == more


def test_the_exchange_hides_behind_both_passes_of_a_layer():
    made = case()
    bare, woven = layer(made), layer(made, replace(LAYOUT, overlap=Overlap(expert=True)))
    hidden = float(bare.forward.expert - woven.forward.expert)
    ratio = made.calibration.constants.overlap_ratio
    assert hidden == pytest.approx(ratio * float(bare.forward.expert))
    assert float(woven.forward.compute) > float(bare.forward.compute), "hidden exchange slows what hides it"


@examples(30)
@given(st.sampled_from((1, 2, 8)), st.sampled_from((1, 2, 4, 8)), st.booleans())
def test_tokens_are_permuted_before_they_are_gathered_and_sorted_where_a_rank_has_several_experts(ep, etp, sequence):
    made = case()
    shape = work_shape(
        microbatch_sequences=1, sequence_tokens=4096, tensor_parallel=8, sequence_parallel=sequence, expert_parallel=ep,
        expert_tensor_parallel=etp,
    )
    kind = made.model.kinds[-1]
    rows = {row.name: row for row in made.implementation.passes if row.part == "experts"}

    def elements(name):
        row = rows[name]
        return float(row_elements(row.width, row.part, row.shard, kind, made.model.hidden, 4096, shape))

    copies = 4096 / (8 if sequence else 1) * kind.experts.experts_per_token * made.model.hidden
    assert elements("permute") == elements("unpermute") == copies
    assert elements("sort by local expert") == copies * (min(etp, 8) if sequence else 1)
    for experts, sorts in ((ep, False), (2 * ep, True)):
        few = structs.replace(kind, feed_forward=structs.replace(kind.experts, num_experts=experts))
        assert bool(row_exists(rows["sort by local expert"].only, few, shape)) == sorts


@examples(40)
@given(st.integers(0, 1), st.data())
def test_at_the_ends_of_a_step_passes_stand_beside_no_other(pipeline, data):
    """Every chunk of warm-up and cool-down takes its time alone, every other that of two woven passes, event by event."""
    stages, chunks = (data.draw(st.sampled_from((2, 4))), data.draw(st.integers(2, 4))) if pipeline else (1, 1)
    count = stages * data.draw(st.integers(1, 4)) if pipeline else data.draw(st.integers(1, 12))
    made = with_constants(case(), contention_slowdown=0.0, expert_sync_s=0.0, launch_s=0.0)
    layout = replace(
        LAYOUT, pipeline_parallel=stages, virtual_stages=chunks, num_microbatches=count, overlap=Overlap(expert=True),
    )
    made = replace(made, model=structs.replace(made.model, pattern=made.model.pattern[: stages * chunks]))
    time, stage = evaluate(made, layout).time, evaluate(made, layout).stages
    apart = evaluate(made, replace(layout, overlap=Overlap())).stages
    row = int(time.pipeline.busiest)
    woven = float(stage.forward_s[row]), float(stage.backward_s[row])
    alone = float(apart.forward_s[row]), float(apart.backward_s[row])
    assert sum(alone) > sum(woven)
    more = step_of(stages, count, chunks, woven, alone) - step_of(stages, count, chunks, woven, woven)
    assert float(time.pipeline.unwoven_s) == pytest.approx(more, rel=1e-6)


def step_of(stages, count, chunks, woven, alone):
    """An interleaved pipeline of equal stages whose warm-up and cool-down chunks take their times alone."""
    order = order_interleaved(stages, count, num_chunks=chunks)
    free, ended, waiting = [0.0] * stages, {}, {stage: list(order.stage(stage)) for stage in range(stages)}
    warm = [min(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, count * chunks) for stage in range(stages)]
    ran = [[0, 0] for _ in range(stages)]
    while any(waiting.values()):
        for stage, operations in waiting.items():
            while operations:
                back, batch, chunk = operations[0]
                before = (back, batch, chunk, stage + (1 if back else -1))
                if not 0 <= before[3] < stages:
                    before = (back, batch, chunk + (1 if back else -1), 0 if back else stages - 1)
                if not 0 <= before[2] < chunks:
                    before = (0, batch, chunk, stage) if back else None
                if before is not None and before not in ended:
                    break
                bare = ran[stage][1] >= count * chunks - warm[stage] if back else ran[stage][0] < warm[stage]
                ran[stage][back] += 1
                taken = (alone if bare else woven)[back] / chunks
                free[stage] = ended[back, batch, chunk, stage] = max(free[stage], ended.get(before, 0.0)) + taken
                operations.pop(0)
    return max(free)


@examples(20)
@given(st.sampled_from(("qwen3-30b-a3b", "deepseek-v2-lite")), st.integers(1, 4))
def test_one_micro_batch_is_woven_into_nothing(model, size):
    made = case(model)
    layout = replace(LAYOUT, num_microbatches=1, microbatch_sequences=size)
    bare, woven = (evaluate(made, replace(layout, overlap=Overlap(expert=each))).time.pipeline.through_s for each in (False, True))
    assert float(woven) == pytest.approx(float(bare))


ORDER = {
    "combine, backward": ("network", ()), "attention, forward": ("device", ()),
    "dispatch, forward": ("network", ("attention, forward",)), "experts, backward": ("device", ("combine, backward",)),
    "dispatch, backward": ("network", ("experts, backward",)), "experts, forward": ("device", ("dispatch, forward",)),
    "combine, forward": ("network", ("experts, forward",)), "attention, backward": ("device", ("dispatch, backward",)),
}
"""What runs where, each stream in this order, and what it waits for."""


def length(seconds):
    """How long two streams take for one layer of two micro-batches, event by event."""
    free, ended = {"network": 0.0, "device": 0.0}, {}
    for name, (stream, after) in ORDER.items():
        start = max([free[stream], *(ended[each] for each in after)])
        free[stream] = ended[name] = start + seconds[name]
    return max(free.values())


@examples(30)
@given(st.floats(-1.0, 3.0))
def test_woven_passes_take_as_long_as_two_streams_that_wait_for_each_other(slower):
    made = case()
    link = made.cluster.scale_up
    cluster = replace(made.cluster, scale_up=replace(link, bytes_per_s=link.bytes_per_s / 10**slower))
    free = replace(made.calibration.constants, overlap_ratio=1.0, contention_slowdown=0.0, launch_s=0.0, expert_sync_s=0.0)
    made = replace(made, cluster=cluster, calibration=replace(made.calibration, constants=free))
    bare, woven = layer(made), layer(made, replace(LAYOUT, overlap=Overlap(expert=True)))
    ahead, behind, pieces = float(bare.forward.compute), float(bare.backward.compute), bare.pieces
    alone = pieces.products_forward + pieces.attention_forward + pieces.elementwise_forward
    back = pieces.products_input + pieces.products_weight + pieces.attention_backward + pieces.elementwise_backward
    experts, experts_back = ahead * float(pieces.experts_forward / alone), behind * float(pieces.experts_backward / back)
    sent = dict.fromkeys([name for name, (stream, _) in ORDER.items() if stream == "network"], float(bare.forward.expert) / 2.0)
    parts = {
        "attention, forward": ahead - experts, "experts, forward": experts,
        "attention, backward": behind - experts_back, "experts, backward": experts_back,
    }
    assert 0.0 < experts < ahead
    assert 0.0 < experts_back < behind
    taken = float(woven.forward.compute + woven.forward.expert + woven.backward.compute + woven.backward.expert)
    assert taken == pytest.approx(length(sent | parts))


def test_adapters_move_their_widths_and_follow_tensor_parallelism():
    made = case("llama3-8b", precision="bf16", task="lora")
    made = replace(made, training=replace(made.training, lora=Lora(targets=("query", "key", "value", "mlp"))))
    kind = made.model.kinds[0]
    assert adapted_widths(kind, made) == [(4096.0, 6144.0, True), (4096.0, 28672.0, True), (14336.0, 4096.0, False)]
    shape = evaluate(made, Layout(data_parallel=8, num_microbatches=8)).costs.shape
    forward, backward = adapter_s(kind, made, shape)
    moved = 4096 * (2 * (2 * 4096 + 14336) + 8 * (6144 + 28672 + 4096))
    constants, device = made.calibration.constants, made.cluster.device
    gaps = 12 * constants.kernel_gap_s
    assert float(forward) == pytest.approx(moved / (device.memory_bytes_per_s * constants.memory_ratio) + gaps)
    assert np.all(backward > 0)
    split = structs.replace(shape, tensor_parallel=np.asarray(2.0))
    assert float(adapter_s(kind, made, split)[0]) < float(forward)
    assert adapted_widths(kind, replace(made, training=replace(made.training, task="sft", lora=None))) == []
