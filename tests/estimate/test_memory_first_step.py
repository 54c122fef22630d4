"""Memory up to the end of the first step: the moments take the place of the activations."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.domain.layout import Layout
from meshwright.domain.memory_reading import MemoryReading
from meshwright.estimate.evaluate import evaluate
from strategies import small_case


@pytest.mark.parametrize("microbatch", [1, 8])
def test_moments_and_activations_share_the_peak_of_the_first_step(microbatch):
    case = small_case(devices=8)
    layout = Layout(
        data_parallel=8, microbatch_sequences=microbatch,
        num_microbatches=case.batch.global_batch_sequences // (8 * microbatch) or 1,
    )
    found = evaluate(case, layout)
    memory = found.memory
    states = memory.parameters + memory.gradients + memory.optimizer
    expected = np.maximum(states, states - memory.optimizer * 8.0 / 12.0 + memory.activations + memory.temporary)
    shown = memory.shown(MemoryReading(kind="first step"), found.composition, 80e9)
    np.testing.assert_allclose(shown, expected.max())
