"""The cost model against dry runs of the reference step: an independent oracle, layout by layout.

Exact: parameters, gradients, optimizer states, FLOPs of products and of attention, bytes and number of messages. Activations:
what the tables leave out are the norms' FP32 scales, indices and scalars, below 3 % even at a hidden size of 128.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.engine.dry_run_layouts import DENSE, TOKENS, TRIALS, Trial, case_of, zero

from meshwright.api.verbs.dryrun import IMPLEMENTATION
from meshwright.api.views.dryrun import figures
from meshwright.catalog import load_model
from meshwright.catalog.implementations import implementation
from meshwright.domain.label import label
from meshwright.domain.layout import Layout
from meshwright.domain.mixers import GatedDelta
from meshwright.engine.dry_run import Found, Job, in_process
from meshwright.engine.refusals import refused
from meshwright.engine.request import Request
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.rank import rank_figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytest.importorskip("torch")

ACTIVATION_TOLERANCE = 0.03
FAST = [trial for trial in TRIALS if not trial.slow]
SORTS = 9
"""So many come first of the fast ones, one of each sort."""
QUICK = FAST[:SORTS] + FAST[SORTS + 3 :: 6]
"""In one process: importing torch is most of a single one's time."""
REST = [trial for trial in TRIALS if trial not in QUICK]


def differences(trial: Trial, found: Found) -> Iterator[tuple[object, object]]:
    """What the cost model says, and what the dry run found instead."""
    stage = trial.rank // (trial.layout.world // trial.layout.pipeline_parallel)
    said = rank_figures(case_of(trial.model, trial.layout), trial.layout, stage)
    gradients = said.parameter_bytes + (_held_by_split_backward(trial, stage) if trial.layout.schedule == "zb1p" else 0)
    pairs: list[tuple[object, object]] = [
        (said.parameters, found.parameters), (said.parameter_bytes, found.parameter_bytes),
        (gradients, found.gradient_bytes), (said.optimizer_bytes, found.optimizer_bytes),
        (said.product_flops, found.product_flops), (said.attention_flops, found.attention_flops),
        ([(each.operation, each.ranks, each.calls, each.payload_bytes) for each in said.messages],
         [(each.operation, each.ranks, each.calls, each.payload_bytes) for each in found.collectives]),
        (pytest.approx(found.scan_flops, rel=_scan_tolerance(trial)), said.scan_flops),
        (pytest.approx(found.activation_bytes, rel=ACTIVATION_TOLERANCE), said.activation_bytes),
        (found.peak_bytes, sum(found.peak_by_purpose.values())),
    ]
    yield from ((one, other) for one, other in pairs if one != other)


def _scan_tolerance(trial: Trial) -> float:
    """Mamba-2 is exact; the triangular system of a delta rule has a product more in its backward than the formula counts."""
    return 0.05 if any(isinstance(mixer, GatedDelta) for mixer in trial.model.mixers) else 0.0


def _held_by_split_backward(trial: Trial, stage: int) -> int:
    """Where the backward is split, PyTorch drops the gradient of the last micro-batch's BF16 logits only in the next step."""
    last = stage == trial.layout.pipeline_parallel - 1
    return 2 * trial.layout.microbatch_sequences * TOKENS * trial.model.vocabulary if last else 0


def found_by(trials: Sequence[Trial]) -> list[Found]:
    """All of them in one process."""
    return in_process([trial.job for trial in trials])


def name(trial: Trial) -> str:
    """A trial in words."""
    return f"{trial.model.name} {label(trial.layout)} r{trial.rank}"


@pytest.mark.parametrize("trials", [QUICK, pytest.param(REST, marks=pytest.mark.matrix)], ids=["quick", "rest"])
def test_the_cost_model_says_what_a_dry_run_finds(trials: list[Trial]) -> None:
    wrong = {name(trial): list(differences(trial, found)) for trial, found in zip(trials, found_by(trials), strict=True)}
    assert not {one: pairs for one, pairs in wrong.items() if pairs}


def test_there_are_enough_layouts_and_the_reference_step_runs_them_all() -> None:
    assert len({(trial.model.name, label(trial.layout)) for trial in TRIALS}) >= 40
    for trial in TRIALS:
        request = Request(model=trial.model, layout=trial.layout, sequence_tokens=64, bf16=True)
        assert not refused(request, world=trial.layout.world)


def test_states_of_the_cost_model_are_those_of_pytorch_where_its_parameters_are_whole() -> None:
    """ZeRO-2: an FP32 parameter, which is the master copy, and a 16-bit one gathered: 2 P + 12 P / K, as the model counts.

    ZeRO-3 gathers layer by layer, so nothing of 16 bits is held for good, where the cost model counts 2 P / K.
    """
    trials = [next(trial for trial in FAST if trial.layout.zero_stage == stage) for stage in (2, 3)]
    counted = []
    for trial in trials:
        memory = evaluate(case_of(trial.model, trial.layout), trial.layout).memory
        counted.append(float((memory.parameters + memory.optimizer)[0]))
    two, three = found_by(trials)
    assert two.parameter_bytes + two.gathered_bytes + two.optimizer_bytes == counted[0]
    assert counted[1] - (three.parameter_bytes + three.optimizer_bytes) == 2 * three.parameters


@pytest.mark.parametrize("stage", [0, 1])
def test_the_peak_of_a_step_is_the_reference_implementations(stage: int) -> None:
    """12 bytes a logit at the loss, and FP32 parameters whole on every rank under ZeRO-1: both are seen at real widths alone."""
    model = replace(load_model("llama3-8b"), pattern=(0,) * 2)
    layout = Layout(data_parallel=8, num_microbatches=2, **zero(stage, 8))
    (found,) = in_process([Job(model=model, layout=layout, rank=0, sequence_tokens=4096)])
    case = replace(case_of(model, layout, 4096), implementation=implementation(IMPLEMENTATION))
    (peak,) = (each for each in figures(case, layout, found) if each.name == "peak")
    assert peak.said == pytest.approx(peak.found, rel=0.01)


def test_a_rank_of_tensor_parallelism_holds_no_gradient_of_the_whole_vocabulary():
    """The embedding's was kept whole between micro-batches, 7.5 GiB of 4 layers of llama3-8b at tp8, not 5.8."""
    wide = replace(DENSE, vocabulary=8192, pattern=(0,))
    layouts = [
        Layout(tensor_parallel=4, num_microbatches=2), Layout(tensor_parallel=4, sequence_parallel=True, num_microbatches=2),
        Layout(tensor_parallel=4, data_parallel=2, num_microbatches=2),
        Layout(tensor_parallel=4, data_parallel=2, num_microbatches=2, **zero(1, 2)),
    ]
    for layout, found in zip(layouts, found_by([Trial(model=wide, layout=each) for each in layouts]), strict=True):
        assert found.peak_by_purpose["gradients"] <= found.gradient_bytes, label(layout)
