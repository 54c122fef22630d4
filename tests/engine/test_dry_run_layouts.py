"""The cost model against dry runs of the reference step: an independent oracle, layout by layout.

Exact: parameters, gradients, optimizer states, FLOPs of products and of attention, bytes and number of messages. Activations:
what the tables leave out are the norms' FP32 scales, indices and scalars, below 3 % even at a hidden size of 128.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.engine.dry_run_layouts import TRIALS, Trial, case_of

from meshwright.domain.label import label
from meshwright.engine.dry_run import Found, in_process
from meshwright.engine.refusals import refused
from meshwright.engine.request import Request
from meshwright.plan.rank import rank_figures

pytest.importorskip("torch")

ACTIVATION_TOLERANCE = 0.03
FAST, SLOW = ([trial for trial in TRIALS if trial.slow is slow] for slow in (False, True))


def _parameter(trial: Trial) -> object:
    name = f"{trial.model.name} {label(trial.layout)} r{trial.rank}"
    return pytest.param(trial, marks=[pytest.mark.slow] if trial.slow else [], id=name)


@cache
def findings(slow: bool) -> dict[Trial, Found]:
    """All trials of one sort, in one process."""
    trials = SLOW if slow else FAST
    return dict(zip(trials, in_process([trial.job for trial in trials]), strict=True))


@pytest.mark.parametrize("trial", [_parameter(trial) for trial in TRIALS])
def test_the_cost_model_says_what_a_dry_run_finds(trial: Trial) -> None:
    found = findings(trial.slow)[trial]
    stage = trial.rank // (trial.layout.world // trial.layout.pipeline_parallel)
    said = rank_figures(case_of(trial.model, trial.layout), trial.layout, stage)
    assert said.parameters == found.parameters
    assert said.parameter_bytes == found.parameter_bytes
    assert said.parameter_bytes == found.gradient_bytes or trial.layout.schedule == "zb1p"  # PyTorch holds a loss's gradient, too
    assert said.optimizer_bytes == found.optimizer_bytes
    assert said.product_flops == found.product_flops
    assert said.attention_flops == found.attention_flops
    assert [(each.operation, each.ranks, each.calls, each.payload_bytes) for each in said.messages] == [
        (each.operation, each.ranks, each.calls, each.payload_bytes) for each in found.collectives
    ]
    assert said.activation_bytes == pytest.approx(found.activation_bytes, rel=ACTIVATION_TOLERANCE)
    assert sum(found.peak_by_purpose.values()) == found.peak_bytes


def test_there_are_enough_layouts_and_the_reference_step_runs_them_all() -> None:
    assert len({(trial.model.name, label(trial.layout)) for trial in TRIALS}) >= 40
    for trial in TRIALS:
        request = Request(model=trial.model, layout=trial.layout, sequence_tokens=64, bf16=True)
        assert not refused(request, world=trial.layout.world)


def test_states_of_the_cost_model_are_those_of_pytorch_where_its_parameters_are_whole() -> None:
    """ZeRO-2: an FP32 parameter, which is the master copy, and a 16-bit one gathered: 2 P + 12 P / K, as the model counts.

    ZeRO-3 gathers layer by layer, so nothing of 16 bits is held for good, where the cost model counts 2 P / K.
    """
    from meshwright.plan.evaluate import evaluate

    trial = next(trial for trial in TRIALS if not trial.slow and trial.layout.zero_stage == 2)
    found, case = findings(False)[trial], case_of(trial.model, trial.layout)
    memory = evaluate(case, trial.layout).memory
    said = float((memory.parameters + memory.optimizer)[0])
    assert found.parameter_bytes + found.gathered_bytes + found.optimizer_bytes == said
    trial = next(trial for trial in TRIALS if not trial.slow and trial.layout.zero_stage == 3)
    found, case = findings(False)[trial], case_of(trial.model, trial.layout)
    memory = evaluate(case, trial.layout).memory
    said = float((memory.parameters + memory.optimizer)[0])
    assert said - (found.parameter_bytes + found.optimizer_bytes) == 2 * found.parameters
