"""The report of ``balance``: what stands in it for a placement that is known, on narrow and wide terminals."""

from __future__ import annotations

import io

import numpy as np
import pytest

from meshwright.api.views.balance import FILE_UNITS, SECONDS_AND_BYTES, BalanceShown, balance_view, rival, stage_lines
from meshwright.domain.balance import Balance, BalanceProblem, Body, BubbleSplit, End, Overfull
from meshwright.frameworks.stage_lists import Words
from meshwright.report.balance import balance_report, overfull_report, ranking_report, setting_text, setting_word
from meshwright.report.console import show
from meshwright.search.balance.solve import place
from meshwright.words import unitless

BODY = Body(layers=10, forward_time=10.0, backward_times=(20.0, 30.0), static_memory=100.0, activation_memory=(50.0, 5.0))


def problem(**changes):
    given = {"stages": 2, "microbatches": 4, "treatments": ("none", "full"), "bodies": (BODY,), "memory_bounds": (1100.0, 1000.0),
             "first": End(static_memory=50.0), "last": End(forward_time=5.0, backward_time=10.0)}
    return BalanceProblem(**given | changes)


def answer(asked, counts, **changes):
    placement = place(asked, np.array(counts, dtype=np.int64))
    split = BubbleSplit(ideal_ratio=0.25, imbalance_ratio=0.1, recompute_ratio=0.05, communication_ratio=0.0)
    found = Balance(
        problem=asked, objective="slot", best=placement, slot_found=placement.slot_time, slot_bound=placement.slot_time,
        simulated_bound=0.9 * placement.simulated_time, status="optimal", gap_ratio=0.0, bubble=split, solve_s=0.5,
    )
    return BalanceShown(balance=found, units=changes.pop("units", FILE_UNITS), **changes)


def printed(parts, width=110):
    stream = io.StringIO()
    show(parts, stream, width)
    return stream.getvalue()


FOUR_FIVE = [[[[3, 5]], [[2, 0]]]]
"""Five layers a stage, two of the first in full."""


def test_a_stage_line_is_what_its_layers_come_to():
    asked = problem()
    first, last = stage_lines(asked, place(asked, np.array(FOUR_FIVE)))
    assert (first.layers, first.recompute) == ((5,), {"full": (2,)})
    assert first.memory == 50 + 500 + 2 * (3 * 50 + 2 * 5)
    assert first.memory_slack == 1100 - first.memory
    assert (first.slot, last.slot) == (170.0, 165.0)
    assert (first.slot_slack, last.slot_slack) == (0.0, 5.0)
    assert first.busy_ratio == pytest.approx(4 * 170 / place(asked, np.array(FOUR_FIVE)).simulated_time)


@pytest.mark.parametrize("width", [80, 110, 140])
def test_the_report_fits_its_terminal_and_has_every_unitless(width):
    asked = problem()
    words = (Words(framework="MindFormers", settings={"offset": [0, 0]}), Words(framework="Megatron-LM", lacks=("two counts",)))
    text = printed(balance_report(answer(asked, FOUR_FIVE, words=words), "small"), width)
    assert all(len(line) <= width for line in text.splitlines())
    for part in ("10 layers on 2 stages", "slot 170", "bubble 40.0 %", "ideal 25.0 % + imbalance 10.0 % + recomputation 5.0 %",
                 "optimal: no slot is shorter than 170 (proved)", "offset: [0, 0]", "cannot: two counts"):
        assert part in " ".join(text.split()), part


def test_the_json_has_the_same_figures():
    view = balance_view(answer(problem(), FOUR_FIVE))
    assert (view["stage_layers"], view["recompute"]) == ([[5, 5]], {"full": [[2, 0]]})
    assert (view["slot_time"], view["status"], view["stage_memory_mb"]) == (170.0, "optimal", [870.0, 750.0])
    assert view["bubble"]["total_ratio"] == pytest.approx(0.4)
    seconds = balance_view(answer(problem(), FOUR_FIVE, units=SECONDS_AND_BYTES))
    assert seconds["slot_time_s"] == 170.0
    assert seconds["stage_memory_bytes"] == [870, 750]


def test_a_rival_that_does_not_fit_says_so():
    asked = problem()
    heavy = rival(asked, "by hand", place(asked, np.array([[[[9, 1]], [[0, 0]]]])))
    assert not heavy.fits
    text = printed(balance_report(answer(asked, FOUR_FIVE, rivals=(heavy,)), "small"))
    assert "by hand" in text
    assert "nothing: does not fit" in text


def test_many_stages_are_not_all_shown():
    body = Body(layers=80, forward_time=1.0, backward_times=(2.0,))
    asked = BalanceProblem(stages=40, microbatches=40, bodies=(body,), memory_bounds=(10.0,) * 40)
    text = printed(balance_report(answer(asked, np.full((1, 1, 1, 40), 2)), "long"))
    assert "8 stages between are not shown" in " ".join(text.split())


def test_what_does_not_fit_says_by_how_much():
    verdict = Overfull(stage=1, demand=1200.0, bound=1000.0, proved=True, levers=("more memory: fits",))
    text = printed(overfull_report(problem(), verdict, "small", FILE_UNITS))
    for part in ("Nothing fits.", "memory of stage 1", "demanded at least  1,200 MB", "200 MB", "- more memory: fits"):
        assert part in text
    unsure = Overfull(stage=1, demand=1200.0, bound=1000.0, proved=False)
    assert "Nothing was found that fits." in printed(overfull_report(problem(), unsure, "small", FILE_UNITS))


def test_one_answer_needs_no_ranking():
    one = answer(problem(), FOUR_FIVE)
    assert not printed(ranking_report([one], []))
    assert "too many chunks" in printed(ranking_report([one], [(9, "too many chunks")]))


def test_settings_as_they_are_written():
    assert setting_text("--flag", "Et*2|t*3L") == "--flag 'Et*2|t*3L'"
    assert setting_text("--flag", True) == "--flag"
    assert setting_text("--flag", (1, 2)) == "--flag 1 2"
    assert setting_text("offset", [0, 1]) == "offset: [0, 1]"
    assert setting_word("parts", [["tok", "layers.0", "layers.1"], ["layers.2"]]).startswith(
        "parts: the modules of 2 parts with 2, 1"
    )
    assert len(setting_word("offset", list(range(1000)))) < 500
    assert [unitless(value) for value in (110070.0, 12.5, 3.0, 0.12345)] == ["110,070", "12.5", "3", "0.1235"]


def test_of_several_bodies_the_document_says_which_is_recomputed():
    dense, experts = (Body(name=name, layers=5, forward_time=10.0, backward_times=(20.0, 30.0)) for name in ("dense", "experts"))
    asked = problem(bodies=(dense, experts))
    found = answer(asked, [[[[3, 0]], [[2, 0]]], [[[0, 4]], [[0, 1]]]])
    view = balance_view(found)
    assert view["recompute_by_body"] == {"dense": {"full": [[2, 0]]}, "experts": {"full": [[0, 1]]}}
    assert view["recompute"] == {"full": [[2, 1]]}
    assert "recompute_by_body" in " ".join(printed(balance_report(found, "x")).split())
    assert "recompute_by_body" not in balance_view(answer(problem(), FOUR_FIVE))
