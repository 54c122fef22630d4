"""Dry runs that are asked for make the memories determinable, in as few rounds as there can be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.domain.dry_runs import DryRuns
from meshwright.errors import InputError
from meshwright.readers.sapp import separated
from meshwright.readers.sapp.treatments import ORDER
from meshwright.search.balance.decompose import decompose
from meshwright.search.balance.equations import equations
from meshwright.search.balance.probes import ProbeProposal, questions

KINDS = st.lists(st.sampled_from(ORDER[1:]), unique=True)


def answered(proposal: ProbeProposal, truth: dict[str, float], microbatches: int | None = None) -> DryRuns:
    """The proposal's dry runs with the peaks that memories give: P - i micro-batches in flight."""
    peaks = []
    for each in proposal.rounds:
        stages, row = len(each.offset), []
        for stage in each.stages:
            flying = stages - stage if microbatches is None else min(stages - stage, microbatches)
            end = {0: "head", stages - 1: "tail"}.get(stage, "constant")
            counts = [by_stage[stage] for by_stage in each.treated]
            kept = sum(count * truth[name] for name, count in zip(proposal.treatments, counts, strict=True))
            row.append(sum(counts) * truth["parameters"] + flying * kept + truth[end])
        peaks.append(row)
    return proposal.runs(peaks, microbatches)


TRUTH = {"parameters": 1500.0, "none": 800.0, "selective": 600.0, "communication": 500.0, "both": 300.0, "full": 30.0,
         "constant": 900.0, "head": 9000.0, "tail": 4000.0}


@examples(40)
@given(st.integers(2, 24), st.integers(1, 6), st.integers(0, 10), KINDS)
def test_what_is_asked_for_is_enough(stages: int, share: int, more: int, kinds: list[str]) -> None:
    layers = stages * share + 1 + more % stages
    found = questions(stages=stages, layers=layers, treatments=kinds)
    assert found.treatments == ("none", *(name for name in ORDER if name in kinds))
    assert math.isfinite(found.condition)
    assert found.equations == sum(len(each.stages) for each in found.rounds) >= len(found.unknowns)
    for each in found.rounds:
        held = [layers // stages + offset for offset in each.offset]
        assert sum(held) == layers
        assert min(held) >= 1
        for stage in range(stages):
            counts = separated(held[stage], full=each.recompute[stage], select=each.select_recompute[stage],
                               comm=each.select_comm_recompute[stage])
            assert {name: count for name, count in zip(ORDER, counts, strict=True) if name in found.treatments} == {
                name: row[stage] for name, row in zip(found.treatments, each.treated, strict=True)
            }
            assert sum(row[stage] for row in each.treated) == held[stage]
    runs = answered(found, TRUTH)
    assert equations(runs, constant=stages > 2).condition == pytest.approx(found.condition)
    parts = decompose(runs, constant=stages > 2, force=True)
    for name in found.unknowns:
        assert parts.value_mb(name) == pytest.approx(TRUTH[name], rel=1e-4, abs=0.1)


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6, 8, 16])
@pytest.mark.parametrize("kinds", [0, 1, 2, 4])
def test_as_few_rounds_as_there_are_unknowns(stages: int, kinds: int) -> None:
    """A round gives at most a peak a stage; SAPP's guide notes both ends once and never needs fewer (nor answers two stages)."""
    found = questions(stages=stages, layers=8 * stages, treatments=ORDER[1 : 1 + kinds])
    assert len(found.rounds) == math.ceil(len(found.unknowns) / stages)
    if stages > 2:
        assert len(found.rounds) <= math.ceil((2 + 1 + kinds) / (stages - 2))
    assert found.condition < 60


@pytest.mark.parametrize(("stages", "layers"), [(16, 17), (4, 5)])
def test_sapps_own_guide_cases(stages: int, layers: int) -> None:
    """tests/st/test_pipeline_balance/test_dryrun_guide.py: selective, communication and both, one layer more than stages."""
    found = questions(stages=stages, layers=layers, treatments=("both", "selective", "communication"))
    assert equations(answered(found, TRUTH), constant=True).rank == len(found.unknowns)
    assert len(found.rounds) == (1 if stages == 16 else 2)


def test_spare_peaks_judge_the_fit_where_they_are_free() -> None:
    found = questions(stages=16, layers=96, treatments=("full",))
    assert found.equations == len(found.unknowns) + 2
    noisy = answered(found, TRUTH)
    peaks = tuple(replace(peak, peak_mb=peak.peak_mb + (-1) ** place * 40) for place, peak in enumerate(noisy.peaks))
    parts = decompose(replace(noisy, peaks=peaks), force=True)
    assert not parts.exact
    assert 0 < parts.rms_mb < 40


@examples(12)
@given(st.integers(4, 12), st.integers(1, 4), KINDS)
def test_known_peaks_count(stages: int, some: int, kinds: list[str]) -> None:
    """Four peaks are fewer than the least that there is to tell apart: parameters, activations, constant, head, tail."""
    whole = answered(questions(stages=stages, layers=6 * stages, treatments=kinds), TRUTH)
    part = replace(whole, peaks=whole.peaks[:some])
    rest = questions(stages=stages, layers=6 * stages, treatments=kinds, known=part)
    assert rest.missing
    more = answered(rest, TRUTH)
    joined = replace(more, peaks=(*part.peaks, *(replace(peak, round=peak.round + whole.rounds) for peak in more.peaks)))
    assert equations(joined, constant=True).condition == pytest.approx(rest.condition, rel=1e-6)
    assert len(rest.rounds) <= len(questions(stages=stages, layers=6 * stages, treatments=kinds).rounds)
    done = questions(stages=stages, layers=6 * stages, treatments=kinds, known=joined)
    assert done.rounds == ()
    assert done.missing == ()


def test_what_known_peaks_lack_is_said() -> None:
    whole = answered(questions(stages=8, layers=48), TRUTH)
    new = questions(stages=8, layers=48, treatments=("full",), known=whole)
    assert [message.id for message in new.missing] == ["decompose.never"]
    assert new.treatments == ("none", "full")
    assert len(new.rounds) == 1
    assert new.equations == len(whole.peaks) + 3


def test_same_question_same_answer() -> None:
    assert questions(stages=7, layers=40, treatments=ORDER) == questions(stages=7, layers=40, treatments=ORDER)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"stages": 1, "layers": 4}, "two are the least"),
        ({"stages": 4, "layers": 3}, "3 layers for 4 stages"),
        ({"stages": 4, "layers": 4}, "none can be shifted"),
        ({"stages": 2, "layers": 2}, "parameters and ends cannot be told apart"),
        ({"stages": 4, "layers": 40, "treatments": ("half",)}, "'half' is none of none, selective"),
        ({"stages": 4, "layers": 40, "microbatches": 1}, "run more of them"),
        ({"stages": 4, "layers": 40, "known": DryRuns(stages=3, peaks=())}, "of 3 stages, not 4"),
    ],
)
def test_questions_without_an_answer(asked: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        questions(**asked)  # type: ignore[arg-type]


def test_as_many_layers_as_stages_do_without_a_constant() -> None:
    assert math.isfinite(questions(stages=6, layers=6, treatments=("full",), constant=False).condition)


@pytest.mark.parametrize(("stages", "layers"), [(16, 96), (4, 80), (3, 12), (2, 9)])
def test_the_lists_of_a_guide_name_no_layer_twice_and_are_read_back_as_they_are_meant(stages: int, layers: int) -> None:
    """Guide 002:179, which ``check`` holds files to: full and either of the others together are at most the stage's layers."""
    asked = questions(stages=stages, layers=layers, treatments=("selective", "communication", "both", "full"))
    assert asked.rounds
    for each in asked.rounds:
        for stage in range(stages):
            counts = layers // stages + each.offset[stage]
            table = {"full": each.recompute, "select": each.select_recompute, "comm": each.select_comm_recompute}
            lists = {name: row[stage] for name, row in table.items()}
            assert lists["full"] + lists["select"] <= counts and lists["full"] + lists["comm"] <= counts
            meant = {name: row[stage] for name, row in zip(asked.treatments, each.treated, strict=True)}
            if any(meant.values()):
                assert separated(counts, **lists) == tuple(meant.get(name, 0) for name in ORDER)
