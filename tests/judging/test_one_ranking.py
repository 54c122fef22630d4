"""What the guides' contests call best is what ``plan`` ranks first: by the step with the risk of not fitting."""

from __future__ import annotations

from types import SimpleNamespace as Some

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import meshwright as mw
from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.check.advice import _costs, _pays
from meshwright.domain.label import parse_layout
from meshwright.domain.layout import Layout
from meshwright.domain.uncertainty import expected_s
from meshwright.estimate.certainty import memory_curve
from meshwright.judging import predicates
from meshwright.judging.alternatives import _Pool
from meshwright.judging.contests import CONTESTS, _by_grid
from meshwright.judging.facts import Facts
from meshwright.judging.finding import number, ratio
from meshwright.judging.predicates import PREDICATES, against, contest, takes
from meshwright.judging.questions import columns_of_layouts, questions

CASE = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=64, sequence_tokens=4096)
ALIKE = some.lists(some.tuples(some.floats(9.0, 11.0), some.floats(0.5, 1.3)), min_size=1, max_size=12)
"""Steps within ten percent of each other, and what they need over what there is."""


def risked(step_s: float, need_ratio: float) -> float:
    """By the curve itself, apart from the functions under test."""
    curve = memory_curve(CASE)
    assert curve is not None
    likely = curve.memory_probability(need_ratio * CASE.capacity_bytes, CASE.offered_bytes)
    return float(expected_s(step_s, likely))


@examples(120)
@given(ALIKE, some.integers(0, 12))
def test_the_winner_of_a_question_is_the_one_of_least_expected_step(rows: list[tuple[float, float]], cut: int) -> None:
    pool = _Pool({"any": lambda columns: np.ones(len(columns), dtype=bool)}, CASE)  # type: ignore[arg-type, return-value]
    for part in (rows[:cut], rows[cut:]):
        if part:
            steps, needs = (np.array(each) for each in zip(*part, strict=True))
            layouts = [Layout(num_microbatches=1 + rows.index(row)) for row in part]
            pool.add(part, steps, steps, needs * CASE.capacity_bytes, np.arange(len(part)), layouts.__getitem__)  # type: ignore[arg-type]
    best = pool.answers(Layout(num_microbatches=1).overlap)["any"]
    fitting = [risked(*row) for row in rows if row[1] <= 1.0]
    assert best.fits == bool(fitting)
    if fitting:
        assert best.expected_step_s == pytest.approx(min(fitting), rel=1e-12)
    else:
        assert best.memory_reserved_bytes == pytest.approx(min(need for _, need in rows) * CASE.capacity_bytes)


@examples(120)
@given(ALIKE)
def test_of_trials_the_answer_is_the_first_by_expected_step(rows: list[tuple[float, float]]) -> None:
    facts = Some(label=lambda layout: "tp2")
    facts.alternative = lambda trial: Facts.alternative(facts, trial)  # type: ignore[arg-type]
    trials = [
        Some(
            layout=None, step_s=step, expected_step_s=risked(step, need), reserved_bytes=need,
            estimate=Some(fits=need <= 1.0, chance_s=0.0),
        )
        for step, need in rows
    ]
    found = Facts._answer(facts, trials)  # type: ignore[arg-type]
    fitting = [each.expected_step_s for each in trials if each.estimate.fits]
    assert found.expected_step_s == min(fitting) if fitting else not found.fits


def alternative(step_s: float, expected_step_s: float, label: str = "tp2", fits: bool = True, chance_s: float = 0.0) -> Some:
    return Some(
        step_s=step_s, expected_step_s=expected_step_s, label=label, fits=fits, layout=Layout(num_microbatches=1),
        memory_reserved_bytes=6e10, chance_s=chance_s,
    )


def test_a_shorter_step_that_is_less_likely_to_fit_is_said_to_be_so() -> None:
    facts = Some(best={"mb1": alternative(16.0, 17.6, "tp4"), "any": alternative(16.7, 16.7)}, case=CASE, error_ratio=0.03)
    found = contest(facts, "mb1", "any", "micro-batch 1", "best of all")  # type: ignore[arg-type]
    assert (found.verdict, found.figure.name) == ("fails", "expected_change_ratio")
    assert found.figure.value == pytest.approx(17.6 / 16.7 - 1.0)
    assert found.sentence == (
        "micro-batch 1: 16.0 s where it fits, 17.6 s expected (tp4); best of all: 16.7 s (tp2); the advice is 5.4 % slower; "
        "faster where it fits, but less likely to fit: micro-batch 1"
    )
    own, words = _by_grid(facts, CONTESTS[0], ("a",))  # type: ignore[arg-type]
    assert (own.name, words) == ("expected_spread_ratio", "")
    facts.best["mb2"] = alternative(16.5, 16.6)
    assert _by_grid(facts, CONTESTS[0], ("a",))[1] == "faster where it fits, but less likely to fit: micro-batch 1"  # type: ignore[arg-type]
    words = _by_grid(facts, CONTESTS[0], ())[1]  # type: ignore[arg-type]
    assert words == "the best of all takes 16.7 s (tp2); faster where it fits, but less likely to fit: micro-batch 1"


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, ""),
        ({"a": alternative(9.0, 9.5)}, ""),
        ({"a": alternative(9.0, 9.5), "b": alternative(9.2, 9.6)}, ""),
        ({"a": alternative(9.0, 9.9), "b": alternative(9.2, 9.6)}, "; faster where it fits, but less likely to fit: a"),
        (
            {"a": alternative(9.0, 9.9, chance_s=0.9), "b": alternative(9.2, 9.6)},
            "; faster in most runs, but expected to take longer: a",
        ),
        ({"a": alternative(9.599, 9.9), "b": alternative(9.6, 9.6)}, ""),
        ({"a": alternative(9.0, 99.0, fits=False), "b": alternative(9.2, 9.6)}, ""),
    ],
)
def test_who_is_called_riskier(named: dict[str, Some], words: str) -> None:
    assert predicates.riskier(named) == words  # type: ignore[arg-type]


def test_the_expected_step_is_shown_where_it_shows() -> None:
    assert takes(alternative(15.0, 15.0001)) == "15.0 s"  # type: ignore[arg-type]
    assert takes(alternative(15.0, 15.9)) == "15.0 s where it fits, 15.9 s expected"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "device", "nodes", "batch", "tokens"),
    [
        ("llama2-7b", "a100-40g-sxm", 1, 128, 4096), ("llama3-8b", "h100-sxm", 1, 64, 8192),
        pytest.param("llama2-13b", "a100-40g-sxm", 2, 256, 4096, marks=pytest.mark.matrix),
        pytest.param("llama3-70b", "h100-sxm", 8, 256, 4096, marks=pytest.mark.matrix),
    ],
)
def test_the_best_of_all_of_the_contests_is_no_better_than_the_first_plan(
    model: str, device: str, nodes: int, batch: int, tokens: int
) -> None:
    """Models that fill their devices: what is fastest where it fits is not what is planned."""
    case = mw.make_case(
        model, cluster_for(device, num_devices=8 * nodes), global_batch_sequences=batch, sequence_tokens=tokens,
        framework="megatron",
    )
    features = mw.framework("megatron").features
    options = {"model": model, "device": device, "nodes": nodes, "global_batch": batch, "sequence": tokens}
    first = mw.plan(mw.PlanRequest(**options, top=1)).to_json()["plans"][0]
    layout = parse_layout(first["label"], num_devices=8 * nodes, global_batch_sequences=batch, model=case.model)
    facts = Facts(case, layout, features)
    best = facts.best["any"]
    assert best.expected_step_s == pytest.approx(first["estimate"]["expected_step_s"], rel=1e-9)
    asked = questions(case, facts.parameters)
    for name, answer in facts.best.items():
        others = [facts.best[other] for other in facts.best if facts.best[other].fits]
        own = asked[name](columns_of_layouts([each.layout for each in others]))
        rivals = [each.expected_step_s for each, yes in zip(others, own, strict=True) if yes]
        assert not answer.fits or answer.expected_step_s <= min(rivals), name


def tried(step_s: float, expected_s: float | None = None, *, fits: bool = True, chance_s: float = 0.0) -> Some:
    """A trial as judges see it."""
    time = Some(bubble_s=1.0, pipeline_exposed_s=0.1, data_parallel_exposed_s=2.0)
    return Some(
        step_s=step_s, expected_step_s=expected_s or step_s, reserved_bytes=2e10, refused_because=(), layout=OWN,
        estimate=Some(fits=fits, time=time, bubble_ratio=0.1, step_s=step_s, chance_s=chance_s),
    )


OWN = Layout(pipeline_parallel=2, virtual_stages=2, data_parallel=4, num_microbatches=8, schedule="interleaved", optimizer_shards=4)
RISKY, SAFE = tried(10.0, 12.0), tried(10.5, 10.5)
"""The first is faster where it fits, the second is what plans rank first."""


@pytest.mark.parametrize(("then", "now", "better", "words"), [
    (tried(9.0), tried(10.0), True, "10.0 % faster"),
    (SAFE, RISKY, True, "12.5 % faster by what is expected of it (5.0 % slower where it fits)"),
    (RISKY, SAFE, False, "14.3 % slower by what is expected of it (4.8 % faster where it fits)"),
    (SAFE, tried(10.0, 12.0, chance_s=2.0), True, "12.5 % faster by what is expected of it (5.0 % slower in most runs)"),
    (tried(9.0, fits=False), tried(10.0), False, "10.0 % faster and does not fit"),
    (tried(11.0), tried(10.0, fits=False), True, "10.0 % slower and fits, where the other does not"),
    (tried(9.0, fits=False), tried(10.0, fits=False), False, "10.0 % faster; neither fits"),
])
def test_one_layout_against_another_goes_by_what_is_expected_and_fits(then: Some, now: Some, better: bool, words: str) -> None:
    found = against(Some(error_ratio=0.01), then, now)  # type: ignore[arg-type]
    assert (found.better, found.words) == (better, words)


@pytest.mark.parametrize(("rule", "own", "other", "verdict"), [
    ("virtual-pipeline", SAFE, RISKY, "holds"),
    ("virtual-pipeline", RISKY, SAFE, "fails"),
    ("data-parallel-bottleneck", RISKY, SAFE, "holds"),
    ("data-parallel-bottleneck", SAFE, RISKY, "fails"),
    ("distributed-optimizer", SAFE, RISKY, "holds"),
    ("distributed-optimizer", RISKY, SAFE, "fails"),
    ("distributed-optimizer", SAFE, tried(9.0, 9000.0, fits=False), "holds"),
])
def test_judges_of_one_knob_rank_as_plan_does(rule: str, own: Some, other: Some, verdict: str) -> None:
    layout = own.layout
    facts = Some(
        layout=layout, estimate=own.estimate, step_s=own.step_s, error_ratio=0.01, varied=lambda **_: other, case=CASE,
        trial=lambda each: own if each == layout else other, features=Some(shards_over_context=True, zero_stages=(0, 1)),
    )
    assert PREDICATES[rule](facts, None).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["step_change_ratio", "expected_change_ratio"])
def test_check_knows_every_figure_of_time(name: str) -> None:
    """Advice that costs less than the model's error is not worth a finding, and advice that gains more is."""
    facts = Some(error_ratio=0.03, case=CASE)
    for value, costs, pays in ((0.05, True, False), (0.01, False, False), (-0.01, False, False), (-0.05, False, True)):
        judged = Some(figure=ratio(name, value))
        assert (_costs(judged, facts), _pays(judged, facts)) == (costs, pays)  # type: ignore[arg-type]
    assert _costs(Some(figure=number("tensor_parallel", 16)), facts)  # type: ignore[arg-type]
