"""What one framework does and another does not: transfers, splits, launches, and how parameters come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.domain.layout import Layout
from meshwright.estimate import evaluate
from meshwright.estimate.costs import hop_s
from meshwright.estimate.evaluate import split_of
from meshwright.estimate.split import fill_split
from meshwright.perf.operators import work_shape
from meshwright.perf.placement import layer_groups
from strategies import small_case

DEEPSPEED = small_case("gpt2", "a100-80g-sxm", devices=64, batch=64, sequence=1024, implementation="megatron-deepspeed")


def _with(case, **what):
    return replace(case, implementation=replace(case.implementation, **what))


def test_deepspeed_fills_stages_in_order():
    """BigScience's chronicles, "Re-do": 78 layers on 12 stages leave one layer for the last."""
    assert fill_split(78, 12) == ((7,) * 11 + (1,),)
    assert split_of(DEEPSPEED, Layout(pipeline_parallel=5)) == ((3, 3, 3, 3, 0),)


def test_a_scattered_transfer_sends_a_slice_and_gathers_it_inside_the_node():
    shape = work_shape(microbatch_sequences=8, sequence_tokens=1024, tensor_parallel=8)
    groups = layer_groups(8, 1, 1, 1, 8, 4, DEEPSPEED.cluster)
    whole, scattered = (float(hop_s(_with(DEEPSPEED, pipeline_scatter=each), shape, groups)) for each in (False, True))
    message = 2.0 * 8 * 1024 * DEEPSPEED.model.hidden
    rate = DEEPSPEED.cluster.network.bytes_per_s * DEEPSPEED.calibration.constants.network_ratio
    assert scattered < whole
    assert whole - scattered < message / rate


@pytest.mark.parametrize(("head_dim", "slower"), [(64, False), (108, True), (112, False), (150, True)])
def test_heads_off_the_grid_of_16_bytes_slow_unfused_attention(head_dim, slower):
    """BLOOM's sweep: 128 heads of 108 took 147 s where 96 heads of 144 took 107 s."""

    def core(case):
        evaluation = evaluate(case, Layout(data_parallel=64, num_microbatches=1))
        return float(evaluation.costs.kinds[0].time.pieces.attention_forward)

    def of(dim):
        (kind,) = DEEPSPEED.model.kinds
        kinds = (replace(kind, attention=replace(kind.attention, head_dim=dim)),)
        return replace(DEEPSPEED, model=replace(DEEPSPEED.model, kinds=kinds))

    aligned = core(of(-(-head_dim // 8) * 8))
    assert (core(of(head_dim)) > 3.0 * aligned) == slower


def test_launches_that_block_add_to_the_step():
    layout = Layout(tensor_parallel=8, data_parallel=8, num_microbatches=8)
    free, blocked = (float(evaluate(_with(DEEPSPEED, blocking_launches=each), layout).time.step_s) for each in (False, True))
    assert blocked > free


def test_broadcasts_of_whole_tensors_cost_latency_over_many_ranks():
    layout = Layout(data_parallel=64, optimizer_shards=64, num_microbatches=1)
    gathered, sent = (
        float(evaluate(_with(DEEPSPEED, broadcast_tensors=each), layout).state.times.synchronisation.gather_s) for each in (0, 9)
    )
    assert sent > gathered
