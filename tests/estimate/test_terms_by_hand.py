"""Terms of one layout against a second count by hand, where monotonicity and equal columns would let a factor through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from meshwright.domain.layout import Full, Layout
from meshwright.domain.memory_reading import MemoryReading
from meshwright.estimate import estimate, evaluate
from meshwright.estimate.rank import rank_figures
from meshwright.estimate.single import simulated
from strategies import small_case


def _interleaved(chunks: int, rounds: int = 2) -> Layout:
    schedule = "interleaved" if chunks > 1 else "1f1b"
    return Layout(pipeline_parallel=4, virtual_stages=chunks, schedule=schedule, num_microbatches=4 * rounds)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_gradients_of_a_chunk_hide_behind_the_chunks_that_are_left(chunks):
    """One chunk of work for the last chunk, and a round of P chunks for each one before it."""
    layout = _interleaved(chunks)
    case = small_case(layers=32, devices=4, batch=8)
    found = evaluate(case, layout)
    chunk = found.stages.backward_window_s[int(found.time.pipeline.busiest)] / chunks
    assert float(found.time.pipeline.backward_window_s) == pytest.approx(float(chunk) * (1 + (chunks - 1) * 4), rel=1e-12)
    chunk = found.stages.forward_window_s[int(found.time.pipeline.busiest)] / chunks
    assert float(found.time.pipeline.forward_window_s) == pytest.approx(float(chunk) * (1 + (chunks - 1) * 4), rel=1e-12)


def test_full_sharding_holds_two_gathered_layers_the_gradients_of_one_and_the_ends():
    case = small_case(layers=4)
    sharded = Layout(data_parallel=8, optimizer_shards=8, gradient_shards=8, parameter_shards=8, num_microbatches=2)
    found, precision, model = evaluate(case, sharded), case.training.precision, case.model
    attention, width = model.attention, model.feed_forward.width
    heads = attention.num_heads + attention.num_key_value_heads
    layer = 2 * model.hidden * attention.head_dim * heads + 3 * model.hidden * width + 2 * model.hidden
    ends = 2 * model.vocabulary * model.hidden + model.hidden
    expected = layer * (2 * precision.gather_bytes + precision.gradient_bytes) + ends * precision.gather_bytes
    assert float(np.max(found.state.gathered_bytes)) == pytest.approx(expected, rel=1e-12)
    alone = replace(sharded, gradient_shards=1, parameter_shards=1)
    assert float(np.max(evaluate(case, alone).state.gathered_bytes)) == 0.0


@pytest.mark.parametrize(("room", "share"), [(1.0, 1.0), (0.999, 0.0)])
def test_what_piles_up_is_shown_where_it_fits_and_given_up_where_it_does_not(room, share):
    found = evaluate(small_case(layers=4, devices=4, batch=8), _interleaved(1))
    memory = structs.replace(found.memory, piled=np.full_like(found.memory.allocated_bytes, 3e9))
    first = int(np.argmax(found.composition.embedding))
    edge = float(memory.reserved_bytes[first]) + 3e9
    shown = float(memory.shown(MemoryReading(kind="allocator", stage="first"), found.composition, edge * room))
    bare = memory.allocated_bytes + memory.fragmentation
    assert shown == pytest.approx(float(bare[first]) + 3e9 * share, rel=1e-12)


@pytest.mark.parametrize(("microbatches", "before"), [(1, 0), (2, 1)])
def test_a_single_microbatch_finds_nothing_of_the_one_before(microbatches, before):
    case = small_case(layers=4, devices=1, batch=microbatches)
    case = replace(case, implementation=replace(case.implementation, logit_bytes_before=4.0))
    found = evaluate(case, Layout(num_microbatches=microbatches))
    assert float(found.stages.before_bytes.max()) > 0
    expected = found.stages.transient_bytes + before * found.stages.before_bytes
    assert found.memory.temporary == pytest.approx(expected, rel=1e-12)


def test_stragglers_stay_the_same_share_of_the_step_whose_bubble_is_simulated():
    case = small_case(layers=13, devices=32, batch=64)
    layout = Layout(pipeline_parallel=4, data_parallel=8, num_microbatches=8, stage_layers=((2, 1, 8, 2),))
    closed = evaluate(case, layout)
    found = simulated(case, layout, closed).time
    assert float(found.pipeline.bubble_s) != pytest.approx(float(closed.time.pipeline.bubble_s), rel=1e-3)
    assert float(closed.time.straggler_s) > 0

    def share(time):
        return float(time.straggler_s) / (float(time.step_s) - float(time.straggler_s) - float(time.stall_s))

    assert share(found) == pytest.approx(share(closed.time), rel=1e-12)
    grown = float(found.pipeline.bubble_s) - float(closed.time.pipeline.bubble_s)
    stragglers = float(found.straggler_s) - float(closed.time.straggler_s)
    assert float(found.step_s) - float(closed.time.step_s) == pytest.approx(grown + stragglers, rel=1e-9)


@pytest.mark.parametrize(("stage", "neighbours"), [(0, 1), (1, 2), (2, 1)])
def test_a_rank_has_a_buffer_for_each_neighbour_and_microbatch(stage, neighbours):
    case = small_case(layers=6, devices=3, batch=6, per_node=3)
    found = rank_figures(case, Layout(pipeline_parallel=3, num_microbatches=6), stage)
    assert found.buffer_bytes == 6 * neighbours * 2 * case.batch.sequence_tokens * case.model.hidden


@pytest.mark.parametrize("shards", [1, 2])
def test_both_ends_of_a_pipeline_add_up_their_shard_of_a_tied_table(shards):
    case = small_case("gemma2-9b", layers=4, devices=4, batch=4)
    layout = Layout(
        pipeline_parallel=2, data_parallel=2, num_microbatches=2, optimizer_shards=shards, gradient_shards=shards,
    )
    tied = [each for each in rank_figures(case, layout, 0).messages if (each.operation, each.ranks) == ("all-reduce", 2)]
    untied = replace(case, model=replace(case.model, tied_embeddings=False))
    plain = [each for each in rank_figures(untied, layout, 0).messages if (each.operation, each.ranks) == ("all-reduce", 2)]
    before = sum(each.payload_bytes for each in plain)
    assert sum(each.payload_bytes for each in tied) - before == 4 * case.model.vocabulary * case.model.hidden // shards


def test_ratios_of_the_peak_are_per_device():
    case = small_case(layers=4)
    whole = Layout(data_parallel=8, num_microbatches=2)
    for layout in (whole, replace(whole, recompute=Full())):
        found = estimate(case, layout)
        assert found.hfu_ratio == pytest.approx(found.hardware_flops_per_s_per_device / found.peak_flops_per_s, rel=1e-12)
        assert found.mfu_ratio == pytest.approx(found.model_flops_per_s_per_device / found.peak_flops_per_s, rel=1e-12)
        assert found.hfu_ratio / found.mfu_ratio == pytest.approx(4 / 3 if layout.recompute == Full() else 1.0, rel=0.1)
