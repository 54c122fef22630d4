"""What a report says of its own error: brackets, chances, grades, what moved the constants, which plans to measure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from report_samples import GIB, case, estimate, result, text

from meshwright.api.views.constants import constants_view
from meshwright.api.views.estimates import plan_view
from meshwright.domain.calibration import Calibration, Key, Move, Offsets
from meshwright.domain.estimate import Interval
from meshwright.report.constants import constants_section
from meshwright.report.headline import headline, standing
from meshwright.report.plan import plan_report
from meshwright.report.ranking import ranked_table


def certain(**changes: Any) -> Any:
    """An estimate with an interval of a fifth either way."""
    plain = estimate()
    ends = (plain.step_s / 1.2, plain.step_s * 1.2)
    interval = Interval(level=0.9, step_s=ends, memory_peak_bytes=(40 * GIB, 52 * GIB),
                        memory_reserved_bytes=(44 * GIB, 57 * GIB))
    return replace(
        plain, **{"calibrated": True, "interval": interval, "fit_probability": 0.91, "memory_fit_probability": 0.95} | changes
    )


def fitted(seen: dict[str, int]) -> Any:
    """The sample case under a calibration that saw so many runs."""
    known: Any = SimpleNamespace(seen=seen, fit=SimpleNamespace(usable_bytes=lambda _: 1e15))
    named: Any = SimpleNamespace(name="megatron-te", family="megatron", masks_selection=False)
    calibration: Any = SimpleNamespace(label="shipped@1", uncertainty=known)
    return replace(case(), implementation=named, calibration=calibration)


def test_every_figure_of_the_headline_has_its_bracket():
    printed = " ".join(text(headline(certain())).split())
    for words in (
        "15.0 s per step (12.5-18.0 s)",
        "45.5 % MFU (37.9-54.6 %)",
        "tokens/s/device (910-1,311)",
        "tokens/s (466K-671K)",
        "GiB allocated (40.0-52.0 GiB)",
        "brackets hold 90 % of runs",
        "fits in memory with 95 % probability",
        "a run finishes with 91 % probability",
    ):
        assert words in printed


def test_without_an_interval_there_are_no_brackets():
    printed = text(headline(estimate()))
    assert "brackets" not in printed
    assert "probability" not in printed
    assert "(12" not in printed


def test_a_share_of_the_peak_is_never_above_all_of_it():
    wide = replace(certain().interval, step_s=(0.1, 900.0))
    assert "-100.0 %)" in text(headline(certain(interval=wide)))


@pytest.mark.parametrize(
    ("fits", "finishes", "words"),
    [
        (0.004, 0.003, "fits in memory with under 1 % probability"),
        (0.999, 0.96, "fits in memory with over 99 % probability"),
        (1.0, 0.0, "no run finishes: refused, see the notes"),
    ],
)
def test_chances_are_never_rounded_to_certainty(fits, finishes, words):
    assert words in " ".join(text(headline(certain(memory_fit_probability=fits, fit_probability=finishes))).split())


@pytest.mark.parametrize(
    ("grade", "seen", "words"),
    [
        ("calibrated", {"cell": 105, "device": 300}, "calibrated on 105 runs of h100-sxm under megatron in bf16"),
        (
            "kin",
            {"framework": 485},
            "KIN no run of h100-sxm under megatron in bf16 stands behind this; borrowed from its kin: 485",
        ),
        ("kin", {"family": 1104}, "borrowed from its kin: 1,104 runs of hopper devices"),
        ("analytic", {}, "ANALYTIC no run of h100-sxm under megatron in bf16 or of its kin stands behind this"),
    ],
)
def test_what_stands_behind_the_figures_is_said(grade, seen, words):
    lines = text(standing(fitted(seen), certain(grades={"step_s": grade, "memory_peak_bytes": grade})))
    assert words in " ".join(lines.split())


def test_priors_say_uncalibrated_and_nothing_else():
    assert text(standing(case(), estimate())) == ""


def test_how_many_plans_are_within_the_error_is_one_sentence_and_one_key():
    asked = replace(result(), ranking_error_ratio=0.042)
    assert "plans 1-3 differ by less than the error of the model (4.2 %): measure these three" in text(plan_report(case(), asked))
    view = plan_view({}, asked)
    assert (view["within_error"], view["ranking_error_ratio"]) == (3, 0.042)
    assert plan_view({}, replace(asked, plans=()))["within_error"] == 0


def test_a_group_that_ends_with_the_list_may_go_on():
    assert "--top lists more of them" in " ".join(text(ranked_table(result().plans[:3], 0.042)).split())


def test_a_first_plan_that_leads_says_so():
    apart = [replace(plan, group=plan.rank) for plan in result().plans]
    assert "plan 1 leads the others by more than the error of the model (4.2 %)" in text(ranked_table(apart, 0.042))
    assert "leads" not in text(ranked_table(apart[:1], 0.042))


def test_plans_are_listed_with_what_they_are_ranked_by_where_the_risk_is_known():
    plain = text(ranked_table(result().plans))
    assert "by step time" in plain
    assert "expected" not in plain.splitlines()[1]
    sure = [replace(plan, estimate=certain(memory_fit_probability=0.999, step_s=15.0)) for plan in result().plans]
    doubtful = [*sure[:3], replace(sure[3], estimate=certain(memory_fit_probability=0.6, step_s=15.0))]
    printed = text(ranked_table(doubtful))
    assert "by expected step time: the step over the probability that it fits in memory" in printed
    rows = [line.split() for line in printed.splitlines() if " s " in line]
    assert [(row[row.index("s") - 1], "60" in row) for row in rows] == [("15.0", False)] * 3 + [("25.0", True)]
    assert printed.count("> 99 %") == 3


def moved() -> Calibration:
    constants: Any = None
    return Calibration(
        name="shipped", version="1", constants=constants, fitted=True, moved=(
            Move(name="gemm_ratio", prior=0.7, value=0.63, offsets={"all": -0.02, "device": -0.08536}),
            Move(name="launch_s", prior=8e-6, value=8e-6, offsets={}),
        ),
    )


def test_constants_say_their_grade_and_what_moved_them():
    printed = " ".join(text([constants_section(moved(), certain(grades={"step_s": "kin"}))]).split())
    assert "gemm_ratio 63.0 % 70.0 % kin device x0.92, all runs x0.98" in printed
    assert "at their priors (analytic): launch_s" in printed
    views = constants_view(moved(), certain(grades={"step_s": "calibrated"}))
    assert [each["grade"] for each in views] == ["calibrated", "analytic"]
    assert views[0]["moved_by"]["device"] == pytest.approx(0.918, abs=1e-3)


def test_priors_have_no_constants_that_moved():
    constants: Any = None
    priors = Calibration(name="none", version="0", constants=constants)
    assert "no run moved them" in text([constants_section(priors, estimate())])
    assert constants_view(priors, estimate()) == []


def test_a_key_has_the_offsets_of_its_own_levels_alone():
    key = Key(device="a", device_family="f", cluster="c", framework="m", release="", precision="bf16")
    offsets = Offsets(
        by_level={"all": {"": 0.1}, "device": {"a": 0.2, "b": 9.0}, "cell": {"a|m|bf16": 0.0}, "own": {"a|m|bf16": 0.3}}
    )
    assert offsets.of(key) == {"all": 0.1, "device": 0.2, "own": 0.3}
