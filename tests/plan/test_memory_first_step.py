"""Memory up to the end of the first step: the moments take the place of the activations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.domain.layout import Layout
from meshwright.plan.evaluate import evaluate
from strategies import small_case


def _allocated(case, layout, *, first_step):
    training = replace(case.training, first_step=first_step)
    return evaluate(replace(case, training=training), layout).memory


@pytest.mark.parametrize("microbatch", [1, 8])
def test_moments_and_activations_share_the_peak_of_the_first_step(microbatch):
    case = small_case(devices=8)
    layout = Layout(
        data_parallel=8, microbatch_sequences=microbatch,
        num_microbatches=case.batch.global_batch_sequences // (8 * microbatch) or 1,
    )  # fmt: skip
    later, first = (_allocated(case, layout, first_step=flag) for flag in (False, True))
    states = later.parameters + later.gradients + later.optimizer
    moments = later.optimizer * 8.0 / 12.0
    expected = np.maximum(states, states - moments + later.activations + later.temporary)
    np.testing.assert_allclose(first.allocated_bytes, expected)
