"""Peaks of stages taken apart: SAPP's goldens, oracles, and what is refused in words.

Goldens (truncated to whole MB) and inputs: mindspore-ai/toolkits e0486ee, tests/st/test_pipeline_balance,
test_compute_memory.py, mem.yaml, mem_pp4.yaml, mem_lstsq.yaml; those of the constant: pipeline-balance reference, section 4.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.domain.dry_runs import DryRuns, StagePeak
from meshwright.errors import InputError
from meshwright.readers.sapp import problem
from meshwright.readers.sapp.init_file import init_file_from
from meshwright.search.balance.decompose import decompose, layer_file
from meshwright.search.balance.equations import equations, flights
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.student import two_sided, within


def runs_of(stages: int, layers: int, offset: object, ends: tuple[int, int], ids: list, memories: list, **lists: object) -> DryRuns:  # type: ignore[type-arg]
    """Dry runs as SAPP's file would say them."""
    return init_file_from(
        {
            "pipeline_config": {"pipeline_num": stages, "num_layer": layers, "offset": offset},
            "recompute_config": lists,
            "memory_usage": {
                "head_memory": ends[0], "tail_memory": ends[1], "body_memories": {"stage_id": ids, "memories": memories},
            },
        },
        where="runs",
    ).runs


def t2() -> DryRuns:
    rows = [(0, 1, 1, 80267), (1, 0, 1, 71519), (2, 0, 1, 67376), (3, 0, 2, 52962), (9, 2, 0, 39373), (15, 0, 1, 16386)]
    peaks = [StagePeak(stage=s, counts=((6 - comm - full,), (comm,), (full,)), peak_mb=mb) for s, comm, full, mb in rows]
    return DryRuns(stages=16, treatments=("none", "communication", "full"), peaks=tuple(peaks))


def t3() -> DryRuns:
    return runs_of(16, 96, [-1, 1] * 8, (77698, 21822), [6, 9, 10, 11, 12, 13], [49732, 50435, 32341, 41228, 23134, 30998],
                   select_recompute=[1, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 1, 2, 0, 0, 1],
                   select_comm_recompute=[1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 1, 2, 0, 0, 1])


def t4() -> DryRuns:
    return runs_of(4, 80, [[0, 1, -1, 0], [0, -1, 1, 0]], (66502, 25599), [[1, 2], [1, 2]], [[52536, 35595], [45439, 35700]],
                   recompute=[[1, 2, 1, 1], [1, 3, 4, 1]])


def t5() -> DryRuns:
    return runs_of(16, 96, [0, 0, -4, -2, 2, -2, -2, 10, -2, -2, -2, 0, 2, 2, 0, 0], (96643, 23531), list(range(1, 15)),
                   [60854, 27620, 54533, 100631, 31713, 38874, 146986, 31713, 24553, 24553, 28484, 45016, 33763, 20463],
                   select_recompute=[5, 5, 2, 1, 4, 3, 2, 14, 4, 4, 4, 6, 1, 5, 5, 6],
                   select_comm_recompute=[0, 5, 0, 1, 1, 4, 2, 2, 1, 3, 2, 6, 4, 5, 5, 1])


GOLDENS = {
    "T2": (t2, {"head": 9785, "parameters": 1562, "none": 822, "tail": 2868, "full": 32, "communication": 498}),
    "T3": (t3, {"head": 4245, "parameters": 2141, "none": 852, "tail": 1203, "both": 511, "communication": 535,
                "selective": 767, "constant": -1896}),
    "T4": (t4, {"head": 1459, "parameters": 400, "none": 743, "full": 131, "tail": 3329, "constant": 955}),
    "T5": (t5, {"head": 4614, "parameters": 2217, "none": 1002, "both": 423, "selective": 783, "communication": 695,
                "tail": 5885, "constant": 1206}),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_published_coefficients_within_a_megabyte(name: str) -> None:
    runs, golden = GOLDENS[name]
    found = decompose(runs(), force=True)
    assert {each.name for each in found.components} == set(golden)
    for component, value in golden.items():
        assert abs(found.value_mb(component) - value) <= 1 + 1e-6, component


def test_least_squares_says_how_good_it_is() -> None:
    found = decompose(t5())
    assert not found.exact
    by_stage = {each.peak.stage: each for each in found.residuals}
    golden = [-434, 41, -157, 263, 20, 277, 17, -552, 107, -3, 1279, -19, -556, -286]
    assert [by_stage[stage].residual_mb for stage in range(1, 15)] == pytest.approx(golden, abs=0.51)
    assert [stage for stage in by_stage if not by_stage[stage].judged] == [0, 15]
    assert found.rms_mb == pytest.approx(440, abs=1)
    assert found.freedom == 8
    assert found.max_residual_mb == pytest.approx(1279, abs=0.51)
    assert found.margin_mb >= found.max_residual_mb
    for each in found.components:
        low, high = each.interval_mb or (math.nan, math.nan)
        assert low < each.value_mb < high
        assert each.standard_error_mb is not None
        assert high - low == pytest.approx(2 * 2.306 * each.standard_error_mb, rel=1e-3)
    assert found.warnings == ()


def test_exact_solutions_say_that_nothing_judges_them() -> None:
    found = decompose(t4())
    assert found.exact
    assert (found.margin_mb, found.freedom, found.rms_mb) == (0, 0, 0)
    assert all(each.interval_mb is None for each in found.components)
    assert [message.id for message in found.warnings] == ["decompose.exact"]


def test_negative_memories_are_refused_with_what_they_would_be() -> None:
    with pytest.raises(InputError) as caught:
        decompose(t3(), constant=True)
    assert str(caught.value) == (
        "runs: constant of a stage would be -1897 MB: no memory is negative; without a constant all peaks are met within 225 MB; "
        "force takes it as it is"
    )
    without = decompose(t3(), constant=False)
    assert without.component("constant") is None
    assert without.max_residual_mb == pytest.approx(225, abs=0.5)
    (left_out, *_) = decompose(t3()).warnings
    assert decompose(t3()).component("constant") is None
    assert str(left_out).startswith("runs: constant of a stage would be -1897 MB, and no memory is negative: it is left out; ")
    forced = decompose(t3(), force=True)
    assert [message.id for message in forced.warnings] == ["decompose.exact", "decompose.negative_forced"]


def peak(stage: int, mb: float, *counts: int) -> StagePeak:
    return StagePeak(stage=stage, counts=tuple((count,) for count in counts), peak_mb=mb)


def drawn(stages: int, rows: list[tuple[int, ...]], treatments: tuple[str, ...] = ("none", "full")) -> DryRuns:
    return DryRuns(
        stages=stages, treatments=treatments, peaks=tuple(peak(row[0], 1000 + 37 * i, *row[1:]) for i, row in enumerate(rows))
    )


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (drawn(6, [(0, 4, 0), (1, 3, 1), (2, 4, 0), (3, 2, 2), (4, 1, 3), (5, 4, 0)]), "shift a layer"),
        (drawn(8, [(0, 4, 0), (1, 3, 1), (7, 4, 0)]), "3 peaks for 5 unknowns"),
        (drawn(8, [(0, 2, 2), (1, 4, 0), (2, 5, 0), (3, 3, 0), (4, 4, 0), (7, 4, 0)]), "only on the first stage"),
        (drawn(8, [(0, 4, 0), (1, 4, 0), (2, 5, 0), (3, 3, 0), (4, 4, 0), (7, 1, 2)]), "only on the last stage"),
        (drawn(8, [(0, 4, 0), (1, 4, 0), (2, 5, 0), (3, 3, 0), (4, 4, 0), (7, 1, 0)]), "no measured stage has a layer "
         "with full recomputation"),
        (drawn(3, [(0, 4, 1), (1, 2, 1), (2, 3, 1), (1, 4, 2), (1, 5, 3), (1, 6, 3)]), "only stage 1 of the middle stages"),
        (replace(drawn(8, [(0, 4, 0), (1, 3, 1), (2, 4, 1), (3, 2, 2), (4, 6, 3), (5, 4, 0), (7, 3, 1)]), microbatches=1),
         "as many micro-batches at once (1)"),
        (drawn(8, [(0, 4, 0, 0), (1, 3, 1, 1), (2, 4, 1, 1), (3, 2, 2, 2), (4, 6, 3, 3), (5, 4, 0, 0), (7, 3, 1, 1)],
               ("none", "selective", "full")), "activations under selective recomputation and activations under full"),
        (replace(t2(), chunks=2), "need the number of micro-batches"),
        (replace(t2(), chunks=2, microbatches=10**9 + 1, schedule="interleaved"), "too many to follow"),
        (replace(t2(), chunks=2, microbatches=16, schedule="zigzag"), "zigzag is no schedule"),
        (replace(t2(), microbatches=32, schedule="dualpipev", chunks=2), "first stage"),
    ],
)
def test_what_cannot_be_told_apart_is_said_in_words(runs: DryRuns, words: str) -> None:
    with pytest.raises(InputError) as caught:
        decompose(runs)
    assert len(caught.value.messages) == 1
    assert words in str(caught.value)


def test_two_stages_that_never_change_tell_nothing() -> None:
    with pytest.raises(InputError) as caught:
        decompose(DryRuns(stages=2, peaks=(peak(0, 90, 4), peak(1, 70, 4), peak(0, 90, 4), peak(1, 70, 4))))
    parameters, activations = map(str, caught.value.messages)
    assert parameters.startswith("head, tail and parameters of a layer cannot be told apart")
    assert activations.startswith("head, tail and activations cannot be told apart")


def test_equal_layers_are_enough_without_a_constant() -> None:
    runs = drawn(6, [(0, 4, 0), (1, 3, 1), (2, 4, 0), (3, 2, 2), (4, 1, 3), (5, 4, 0)])
    assert decompose(runs, constant=False, force=True).component("constant") is None


def test_ill_conditioned_equations_are_explained() -> None:
    rows = [(0, 900, 100), (1, 899, 101), (2, 1000, 0), (3, 998, 2), (4, 1001, 0), (5, 1000, 1), (7, 1000, 0)]
    truth = {"parameters": 100.0, "none": 50.0, "full": 5.0, "constant": 700.0, "head": 900.0, "tail": 800.0}
    found = decompose(with_peaks(drawn(8, rows), truth), force=True)
    message = next(str(each) for each in found.warnings if each.id == "decompose.condition")
    assert found.condition > 300
    assert "parameters of a layer" in message
    assert "constant of a stage" in message


def with_peaks(runs: DryRuns, truth: dict[str, float], noise: list[float] | None = None) -> DryRuns:
    """The same runs with the peaks that memories give, by plain arithmetic."""
    found = []
    for place, each in enumerate(runs.peaks):
        flying = flights(runs)[each.stage]
        end = {0: "head", runs.stages - 1: "tail"}.get(each.stage, "constant")
        parts = [sum(h * counts[v] * truth[name] for name, counts in zip(runs.treatments, each.counts, strict=True)
                     for v, h in enumerate(moment)) for moment in flying]
        mb = max(parts) + each.layers * truth["parameters"] + truth.get(end, 0.0) + (noise[place] if noise else 0.0)
        found.append(replace(each, peak_mb=mb))
    return replace(runs, peaks=tuple(found))


def fullest(runs: DryRuns, truth: dict[str, float]) -> list[int]:
    """The moment of each peak at which the stage holds most."""
    amounts = [truth[name] for name in runs.treatments]
    return [
        int(np.argmax([sum(float(moment @ row) * mb for row, mb in zip(np.array(each.counts), amounts, strict=True))
                       for moment in flights(runs)[each.stage]]))
        for each in runs.peaks
    ]


AMOUNT = st.floats(1, 5000)


@examples(60)
@given(st.data())
def test_memories_come_back_from_their_peaks(data: st.DataObject) -> None:
    stages = data.draw(st.integers(5, 12))
    m = data.draw(st.one_of(st.none(), st.integers(2, 16)))
    rows = [(s, *data.draw(st.tuples(st.integers(0, 8), st.integers(0, 8)))) for s in range(stages)]
    runs = replace(drawn(stages, [*rows, *((s, n + 1, f) for s, n, f in rows[1:3])]), microbatches=m)
    truth = {name: data.draw(AMOUNT) for name in ("parameters", "none", "full", "constant", "head", "tail")}
    assume(equations(runs, constant=True).condition < 1e5)
    found = decompose(with_peaks(runs, truth))
    for name, value in truth.items():
        assert found.value_mb(name) == pytest.approx(value, rel=1e-4, abs=1e-2)


@examples(25)
@given(st.data())
def test_memories_come_back_under_virtual_stages(data: st.DataObject) -> None:
    stages, chunks = data.draw(st.sampled_from([(4, 2), (4, 3), (6, 2)]))
    schedule = data.draw(st.sampled_from(["interleaved", "interleaved-less-memory"]))
    cell = st.tuples(*[st.integers(1, 6)] * chunks)
    peaks = tuple(
        StagePeak(stage=s, round=r, counts=(data.draw(cell), data.draw(cell)), peak_mb=1.0) for r in range(2) for s in range(stages)
    )
    runs = DryRuns(
        stages=stages, chunks=chunks, treatments=("none", "full"), peaks=peaks, microbatches=2 * stages, schedule=schedule
    )
    truth = {"parameters": 900.0, "none": 500.0, "full": 40.0, "constant": 700.0, "head": 3000.0, "tail": 2500.0}
    assume(equations(runs, constant=True).condition < 300)
    assume(equations(runs, constant=True, chosen=fullest(runs, truth)).condition < 300)
    found = decompose(with_peaks(runs, truth), force=True)
    assert found.max_residual_mb < 1
    for name, value in truth.items():
        assert found.value_mb(name) == pytest.approx(value, rel=1e-3, abs=0.5)


VIRTUAL = {"parameters": 900.0, "none": 500.0, "full": 40.0, "constant": 700.0, "head": 3000.0, "tail": 2500.0}


def under_virtual_stages(chunks: int, cells: list[tuple[int, ...]]) -> DryRuns:
    """Two rounds of four stages; what is kept and what is recomputed by chunk, one after the other."""
    pairs = zip(cells[::2], cells[1::2], strict=True)
    peaks = tuple(StagePeak(stage=n % 4, round=n // 4, counts=pair, peak_mb=1.0) for n, pair in enumerate(pairs))
    return DryRuns(stages=4, chunks=chunks, treatments=("none", "full"), peaks=peaks, microbatches=8, schedule="interleaved")


def test_moments_that_few_guesses_lead_to_are_found() -> None:
    ones = [(1, 1, 1)] * 16
    for place, cell in ((2, (1, 1, 2)), (5, (2, 1, 1)), (7, (2, 1, 1)), (13, (3, 1, 2)), (15, (3, 3, 1))):
        ones[place] = cell
    found = decompose(with_peaks(under_virtual_stages(3, ones), VIRTUAL), force=True)
    assert {name: found.value_mb(name) for name in VIRTUAL} == pytest.approx(VIRTUAL, rel=1e-6)


def test_unknowns_that_the_fullest_moments_do_not_determine_are_refused() -> None:
    """Told apart at other moments, but not at those at which these stages are fullest."""
    runs = under_virtual_stages(2, [(1, 1), (1, 1), (1, 2), *[(1, 1)] * 5, (1, 6), *[(1, 1)] * 7])
    assert equations(runs, constant=True).condition < 100
    assert equations(runs, constant=True, chosen=fullest(runs, VIRTUAL)).condition > 1e9
    with pytest.raises(InputError, match="cannot be told apart"):
        decompose(with_peaks(runs, VIRTUAL), force=True)


@examples(40)
@given(st.lists(st.floats(-50, 50), min_size=16, max_size=16))
def test_least_squares_is_least(noise: list[float]) -> None:
    """No small step of any memory lowers the sum of squares; all measured peaks lie within the margin."""
    truth = {"parameters": 2000.0, "none": 900.0, "both": 400.0, "selective": 700.0, "communication": 600.0, "constant": 5000.0,
             "head": 9000.0, "tail": 8000.0}
    runs = with_peaks(t5(), truth, noise)
    found = decompose(runs)
    system = equations(runs, constant=True)
    mb = np.array([each.peak_mb for each in runs.peaks])
    values = np.array([found.value_mb(name) for name in system.columns])

    def squares(tried: np.ndarray) -> float:
        return float(((mb - system.matrix @ tried) ** 2).sum())

    for place in range(len(values)):
        for step in (-1e-3, 1e-3):
            assert squares(values + step * np.eye(len(values))[place]) >= squares(values) - 1e-6
    assert all(abs(each.residual_mb) <= found.margin_mb + 1e-9 for each in found.residuals)


def test_intervals_hold_what_they_promise() -> None:
    """Of 400 draws of normal noise about 95 % of each component's intervals hold the truth."""
    draw = np.random.default_rng(5)
    truth = {"parameters": 2000.0, "none": 900.0, "both": 400.0, "selective": 700.0, "communication": 600.0, "constant": 5000.0,
             "head": 9000.0, "tail": 8000.0}
    hits = dict.fromkeys(truth, 0)
    for _ in range(400):
        found = decompose(with_peaks(t5(), truth, list(draw.normal(0, 100, 16))), force=True)
        for each in found.components:
            low, high = each.interval_mb or (0, 0)
            hits[each.name] += low <= truth[each.name] <= high
    assert all(0.92 < hits[name] / 400 < 0.98 for name in truth), hits


def test_students_t() -> None:
    """Two-sided 95 % and 99 % points of any printed table."""
    for freedom, at95, at99 in [(1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (8, 2.306, 3.355), (30, 2.042, 2.750)]:
        assert two_sided(freedom) == pytest.approx(at95, abs=6e-4)
        assert two_sided(freedom, 0.99) == pytest.approx(at99, abs=6e-4)
    assert within(0, 4) == 0
    assert within(1.96, 10**5) == pytest.approx(0.95, abs=1e-3)


@pytest.mark.parametrize("make", [t4, t5])
def test_a_problem_of_the_parts_has_the_measured_peaks(make: object) -> None:
    """The constant stands once: every stage of the dry run holds again what was measured, give or take its residual."""
    runs = make()  # type: ignore[operator]
    found = decompose(runs)
    total = sum(each.layers for each in runs.peaks if each.round == 0)
    layers = layer_file(found, layers=total, head_time=30, body_time=90, tail_time=180)
    assert layers.constant_in_ends
    assert layers.bodies[0].backward_times[0] == 180
    assert (layers.first.forward_time, layers.first.backward_time, layers.last.backward_time) == (30, 60, 360)
    asked = problem(layers, stages=runs.stages, microbatches=runs.stages, memory_mb=1e6)
    counts = np.zeros((1, len(runs.treatments), 1, runs.stages), dtype=np.int64)
    first = [each for each in found.residuals if each.peak.round == 0]
    for each in first:
        counts[0, :, :, each.peak.stage] = each.peak.counts
    memory = stage_memory(asked, counts)
    for each in first:
        assert memory[each.peak.stage] + each.residual_mb == pytest.approx(each.peak.peak_mb, abs=1e-3)


def test_coefficients_of_a_user_reach_the_problem() -> None:
    layers = layer_file(decompose(t4()), layers=80, head_time=1, body_time=10, tail_time=2, coefficients={"full": 0.4})
    assert layers.bodies[0].backward_times == pytest.approx((20, 28))
