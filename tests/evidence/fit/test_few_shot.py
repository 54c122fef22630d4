"""Own runs that contradict nature or each other are said; what they moved and how intervals narrow is what the tables say."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.own_shares import OF_MEMORY
from tests.evidence.fit.test_fit import FREEDOMS, LAYOUTS, TRUTH, base, invented

from meshwright.catalog.calibrations import freedoms, own_shares
from meshwright.evidence.fit.few_shot import APART, contradictions, impossible, interval_ratio, moved
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.fit.linear import ideal_s
from meshwright.evidence.fit.own import calibrate_on_top, own_freedoms
from meshwright.report.few_shot import WORDS

RUNS = invented(TRUTH)


def refined(runs, known):
    case = predictor_of(known)
    return calibrate_on_top(
        known, [replace(each, case=case(each)) for each in runs], own_freedoms(FREEDOMS, {}), groups=[each.id for each in runs],
        fold_of=list(range(len(runs))), name="mine", version="1", provenance={},
    )


def test_no_device_is_faster_than_its_peak_and_no_run_holds_less_than_its_states():
    assert not impossible(RUNS)
    least = ideal_s(RUNS[0])
    fast, just = (replace(RUNS[0], step_s=least * factor) for factor in (0.99, 1.01))
    assert [each.rows for each in impossible([fast, just, RUNS[1]])] == [(RUNS[0].id,)]
    # 8.03e9 parameters: 16 bytes of each in all, sharded over 8 by ZeRO-3 on one stage
    states = 16 * 8.03e9 / 8
    small, enough = (replace(RUNS[0], memory_bytes=states * factor) for factor in (0.5, 1.5))
    found = impossible([small, enough])
    assert [each.why.id for each in found] == ["few-shot.states"]
    assert found[0].physics


def test_a_step_in_milliseconds_teaches_nothing_and_a_stalled_one_is_kept():
    exact = invented({}, noise=np.zeros(len(LAYOUTS)))
    usual = exact[0].step_s
    found = impossible([replace(exact[0], step_s=1000.0 * usual), replace(exact[1], step_s=100.0 * exact[1].step_s)])
    assert [(each.rows, each.why.id, each.physics) for each in found] == [((exact[0].id,), "few-shot.units", True)]
    assert "milliseconds" in found[0].why.words


def test_a_failed_run_with_a_step_is_asked_which_it_is():
    found = impossible([replace(RUNS[0], failed=True), replace(RUNS[1], failed=True, step_s=None), RUNS[2]])
    assert [(each.rows, each.why.id) for each in found] == [((RUNS[0].id,), "few-shot.failed")]


def test_one_configuration_measured_apart_is_said_and_noise_is_not():
    again = replace(RUNS[0], id="again", step_s=RUNS[0].step_s * math.exp(0.9 * APART))
    assert not contradictions([RUNS[0], again], base())
    apart = replace(again, step_s=RUNS[0].step_s * math.exp(1.1 * APART))
    for runs in ([RUNS[0], apart], [apart, RUNS[0]]):
        found = contradictions(runs, base())
        assert [sorted(each.rows) for each in found] == [sorted((RUNS[0].id, "again"))]


def test_runs_that_no_constants_can_both_give_are_said():
    # the base's interval is a factor of exp(1.6 exp(-2 + 0.5)) = exp(0.357) either way: twice sqrt(2) of that is exp(1.01)
    exact = invented({}, noise=np.zeros(len(LAYOUTS)))
    for factor, count in ((math.exp(0.97), 0), (math.exp(1.05), 1)):
        found = contradictions([exact[0], replace(exact[1], step_s=exact[1].step_s * factor)], base())
        assert len(found) == count
    assert found[0].why.id == "few-shot.unlike"
    assert found[0].rows == (exact[0].id, exact[1].id)


def test_what_moved_is_the_difference_of_the_tables():
    known = base()
    table = refined(RUNS[:5], known)
    found = moved(RUNS[:5], known, table)
    assert found
    assert [abs(math.log(each.after / each.before)) for each in found] == sorted(
        (abs(math.log(each.after / each.before)) for each in found), reverse=True)
    for each in found:
        assert each.cell == "h800|megatron|bf16"
        offset = table.offsets[each.constant].by_level["own"][each.cell]
        assert each.change_ratio == pytest.approx(math.expm1(offset), abs=1e-3)
    assert not moved(RUNS[:5], known, known)


def test_intervals_narrow_with_runs_that_agree():
    known = base()
    before = interval_ratio(RUNS[:5], known)
    assert before == pytest.approx(math.exp(2.0 * 1.6 * math.exp(-1.5)), rel=1e-6)
    after = interval_ratio(RUNS[:5], refined(RUNS[:5], known))
    assert after < before
    assert interval_ratio([], known) is None


def test_how_far_constants_are_from_somebody_new_is_a_share_of_all_levels_together():
    """Only of constants that a fit moves, and never of what peaks of memory teach."""
    shares, known = own_shares(), {each.name: each for each in freedoms()}
    assert set(shares) <= set(known) - OF_MEMORY
    assert all(0.05 < share < 10.0 for share in shares.values())
    for each in own_freedoms(freedoms(), shares):
        sizes = known[each.name].spreads.values()
        assert each.spreads["cell"] == pytest.approx(shares.get(each.name, 1.0) * math.hypot(*sizes))


def test_every_constant_that_may_move_has_words():
    assert {each.name for each in freedoms()} == set(WORDS)
