"""Memory is said once: parts of a stage, what the search bounds by, and what an anchored estimate says are the same terms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.api import make_case
from meshwright.domain.layout import Full, Layout
from meshwright.estimate import estimate
from meshwright.estimate.anchor import Probe, anchored
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.memory import dynamic_bytes, static_bytes

CASE = make_case("llama3-8b", "dgx-h100", global_batch_sequences=64, sequence_tokens=8192)
ODD = replace(
    CASE, calibration=replace(
        CASE.calibration,
        constants=replace(
            CASE.calibration.constants, fragmentation_ratio=0.25, context_bytes=1000.0, communicator_bytes=10.0,
            upper_margin_ratio=0.5,
        ),
    ),
)
"""Constants that no sum can hide."""
UNKNOWN = replace(ODD, calibration=replace(ODD.calibration, uncertainty=None))
"""The same where nothing is known about the error: an upper bound is a margin then."""
LAYOUTS = (
    (Layout(data_parallel=8, optimizer_shards=8, num_microbatches=8), 2),
    (Layout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2, num_microbatches=32, recompute=Full()), 4),
    (Layout(data_parallel=8, optimizer_shards=8, gradient_shards=8, parameter_shards=8, num_microbatches=8), 2),
    (Layout(tensor_parallel=2, context_parallel=2, pipeline_parallel=2, num_microbatches=64, stage_layers=((20, 12),)), 5),
)
"""A layout, and its communicators: the world, and where they are several TP, CP, PP and the ranks of one parameter (dp x cp)."""


@pytest.mark.parametrize(("layout", "communicators"), LAYOUTS)
def test_what_a_stage_reserves_is_its_tensors_once_and_a_quarter_and_what_lies_outside(layout, communicators):
    found = evaluate(ODD, layout)
    memory = found.memory
    assert memory.reserved_bytes == pytest.approx(1.25 * memory.allocated_bytes + 1000.0 + 10.0 * communicators, rel=1e-12)
    parts = static_bytes(ODD, found.state) + dynamic_bytes(ODD, found.activation)
    assert np.broadcast_to(parts, memory.reserved_bytes.shape) == pytest.approx(memory.reserved_bytes, rel=1e-12)
    kept = memory.parameters + memory.gradients + memory.optimizer + found.state.gathered_bytes
    assert static_bytes(ODD, found.state) == pytest.approx(1.25 * kept + 1000.0 + 10.0 * communicators, rel=1e-12)


@pytest.mark.parametrize(("layout", "communicators"), LAYOUTS)
def test_an_anchored_estimate_says_its_bounds_by_the_same_formulas(layout, communicators):
    plain, prior = estimate(ODD, layout), estimate(UNKNOWN, layout)
    stages = [stage.memory for stage in plain.stages]
    varying = [memory.activations + memory.temporary for memory in stages]
    assert prior.memory_upper_bytes == pytest.approx(
        max(memory.reserved_bytes + 0.5 * own for memory, own in zip(stages, varying, strict=True))
    )
    probes = [Probe(stage=stage.stage, predicted=stage.memory, peak_bytes=stage.memory.allocated_bytes) for stage in plain.stages]
    seen = anchored(UNKNOWN, prior, probes)
    assert seen.memory_upper_bytes == pytest.approx(prior.memory_upper_bytes, rel=1e-12)
    assert (seen.fits, seen.memory_fit_probability, seen.fit_probability) == (
        prior.fits, prior.memory_fit_probability, prior.fit_probability
    )
    higher = [replace(each, peak_bytes=each.peak_bytes + own) for each, own in zip(probes, varying, strict=True)]
    more = anchored(ODD, plain, higher)
    twice = max(memory.reserved_bytes + 1.25 * own for memory, own in zip(stages, varying, strict=True))
    assert more.memory_reserved_bytes == pytest.approx(twice, rel=1e-12)
