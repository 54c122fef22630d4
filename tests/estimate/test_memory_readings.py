"""What a run's own counter of memory shows, against what the device must offer."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.domain.layout import Layout
from meshwright.domain.memory_reading import MemoryReading
from meshwright.estimate.evaluate import evaluate
from strategies import small_case

LAYOUT = Layout(tensor_parallel=2, sequence_parallel=True, pipeline_parallel=4, microbatch_sequences=1, num_microbatches=8)


def _shown(case, layout, capacity=1e15, **reading):
    found = evaluate(case, layout)
    return found, float(found.memory.shown(MemoryReading(**reading), found.composition, capacity))


def test_readings_are_ordered_and_ends_are_their_stages():
    case = small_case("llama3.2-1b", devices=8, batch=8, implementation="nanotron")
    found, allocated = _shown(case, LAYOUT, kind="allocated")
    assert allocated == float(found.memory.allocated_bytes.max())
    assert _shown(case, LAYOUT, kind="first step")[1] <= allocated <= _shown(case, LAYOUT, kind="allocator")[1]
    assert _shown(case, LAYOUT, kind="allocator")[1] < _shown(case, LAYOUT, kind="device")[1]
    ends = [_shown(case, LAYOUT, kind="allocated", stage=stage)[1] for stage in ("first", "last")]
    assert ends == [float(found.memory.allocated_bytes[0]), float(found.memory.allocated_bytes[-1])]


def test_what_piles_up_needs_no_room_and_is_given_up_where_there_is_none():
    case = small_case("llama3.2-1b", devices=8, batch=8, implementation="nanotron")
    """The allocator waits for the device before it fails, so that these tensors do not decide whether a layout fits."""
    found, roomy = _shown(case, LAYOUT, kind="allocator")
    tight = _shown(case, LAYOUT, capacity=1.0, kind="allocator")[1]
    piled = np.broadcast_to(found.memory.piled, found.memory.allocated_bytes.shape)
    assert tight < roomy
    assert roomy - tight <= float(piled.max()) * (1 + 1e-12)
    plain = replace(case, implementation=replace(case.implementation, streamed_bytes=0.0))
    assert float(evaluate(plain, LAYOUT).memory.reserved_bytes.max()) == pytest.approx(
        float(found.memory.reserved_bytes.max()), rel=1e-12
    )
    assert _shown(plain, LAYOUT, kind="allocator")[1] == pytest.approx(tight, rel=1e-12)


def test_sixteen_bit_gradients_have_their_copies_in_the_update():
    """Megatron-DeepSpeed: FP32 accumulation keeps BF16 gradients beside it; 16-bit gradients are cast in the update."""
    case = small_case("gpt2", devices=4, batch=4, sequence=512, implementation="megatron-deepspeed-bf16")
    layout = Layout(data_parallel=4, optimizer_shards=4)
    half = replace(case, training=replace(case.training, precision=replace(case.training.precision, gradient_bytes=2.0)))
    full, short = evaluate(case, layout), evaluate(half, layout)
    count = float(full.parameters.dense.sum())
    assert float(full.memory.gradients.sum()) == pytest.approx(6.0 * count)
    assert float(short.memory.gradients.sum()) == pytest.approx(2.0 * count)
    assert float(short.memory.optimizer.sum()) == pytest.approx(16.0 * count / 4.0)
    assert float(short.memory.moments.sum()) == pytest.approx(12.0 * count / 4.0), "moments and copies"
