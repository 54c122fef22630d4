"""The closed loop with a runner that knows the answer, and once for real with ranks that are forked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from run_cases import OPTIONS, case, cluster

from meshwright.engine.nursery import Nursery
from meshwright.engine.request import Options
from meshwright.errors import InputError, Message, NoAnswerError
from meshwright.estimate.single import estimate
from meshwright.measure.rehearse.rehearsal import check_ranks, entries_of, rehearsed
from meshwright.measure.rehearse.rounds import Ran, real
from meshwright.measure.rehearse.small import SIZES, cases, layers_for, predicted_s, small_case
from meshwright.measure.rehearse.store import Store

if TYPE_CHECKING:
    from meshwright.measure.rehearse.rounds import Job


def exactly(job: Job) -> Ran:
    return Ran([job.predicted_s] * 3, 7 * 2**30)


def test_a_machine_that_does_what_was_predicted_has_no_error_and_no_regret() -> None:
    found = rehearsed(case(2), cluster(2), OPTIONS, layouts=6, rounds=2, store=Store(None, "here"), runner=exactly)
    assert found.complete and not found.profiled
    assert found.scores is not None and found.prior_scores == found.scores
    assert (found.scores.regret_ratio, found.scores.worst_error_ratio, found.scores.order) == (0.0, 0.0, 1.0)
    assert [entry.planned for entry in found.entries[:3]] == [1, 2, 3]
    assert {entry.memory_measured_bytes for entry in found.entries} == {7 * 2**30}
    assert all(entry.error_ratio == 0.0 and len(entry.runs_s) == 2 for entry in found.entries)


def test_predictions_are_those_of_the_cost_model() -> None:
    for entry in entries_of(case(2), case(2), OPTIONS, 6):
        assert entry.predicted_s == entry.prior_s == float(estimate(case(2), entry.layout).step_s)


def test_a_layout_that_fails_has_its_cause_and_no_time() -> None:
    def most(job: Job) -> Ran:
        if job.layout.tensor_parallel > 1:
            raise NoAnswerError(Message("engine.killed", "rank {rank}: killed", {"rank": 0}))
        return Ran([1.0])

    found = rehearsed(case(2), None, OPTIONS, layouts=8, rounds=1, store=Store(None, "here"), runner=most)
    failed = [entry for entry in found.entries if entry.cause]
    assert failed and all(entry.layout.tensor_parallel == 2 and entry.measured_s is None for entry in failed)
    assert found.scores is not None and found.scores.layouts == len(found.entries) - len(failed)
    assert found.prior_scores is None and {entry.prior_s for entry in found.entries} == {None}, "the catalogue knows nothing"


def test_nothing_that_runs_has_no_scores() -> None:
    def none(job: Job) -> Ran:
        raise NoAnswerError(Message("engine.killed", "killed", {}))

    found = rehearsed(case(2), None, OPTIONS, layouts=2, rounds=2, store=Store(None, "here"), runner=none)
    assert found.scores is None and found.complete


def test_an_interrupted_loop_shows_what_it_has() -> None:
    runs: list[Job] = []

    def twice(job: Job) -> Ran:
        if len(runs) == 2:
            raise KeyboardInterrupt
        runs.append(job)
        return Ran([1.0])

    found = rehearsed(case(2), None, OPTIONS, layouts=4, rounds=2, store=Store(None, "here"), runner=twice)
    assert not found.complete
    assert [entry.measured_s for entry in found.entries] == [1.0, 1.0, None, None]


def test_a_model_that_does_not_fit_is_an_answer() -> None:
    small = replace(case(2), cluster=replace(cluster(2), device=replace(cluster(2).device, memory_bytes=1000)))
    with pytest.raises(NoAnswerError, match="no layout of decoder-64x4 over 2 ranks fits"):
        entries_of(small, small, OPTIONS, 3)


def test_ranks_are_those_that_one_machine_starts() -> None:
    assert check_ranks(4) == 4
    for ranks in (0, 65, 1000):
        with pytest.raises(InputError, match="not within 1 and 64"):
            check_ranks(ranks)


def test_the_small_model_grows_with_the_time_that_it_may_take() -> None:
    steps = []
    for target_s in (1e-6, 0.05, 0.2, 1.0, 5.0):
        found = small_case(cluster(2), target_s=target_s)
        assert predicted_s(found) <= target_s or found.model.hidden == SIZES[0][0]
        assert found.model.num_layers == layers_for(2)
        steps.append(predicted_s(found))
    assert steps == sorted(steps) and steps[0] < steps[-1]


def test_one_device_has_several_cases_of_different_shape() -> None:
    found = cases(cluster(1), target_s=0.5)
    assert len({(each.model.hidden, each.model.num_layers, each.batch.sequence_tokens) for each in found}) == 3
    assert len({each.batch.tokens for each in found}) == 1
    assert len(cases(cluster(2), target_s=0.5)) == 1


def test_two_layouts_for_real() -> None:
    """The whole loop, with ranks; structure only, for this machine may do anything else meanwhile."""
    pytest.importorskip("torch")
    options = Options(steps=2, warmup_steps=0, saved=False)
    with Nursery() as nursery:
        found = rehearsed(
            case(2, sequences=4, tokens=16), None, options, layouts=2, rounds=1, store=Store(None, "here"),
            runner=real(nursery.start),
        )
    assert found.complete
    assert [entry.cause for entry in found.entries] == ["", ""]
    assert all(len(entry.runs_s) == 1 and entry.runs_s[0] > 0.0 for entry in found.entries)
    assert found.scores is not None and found.scores.layouts == 2 and found.scores.noise is None
