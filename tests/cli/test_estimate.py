"""``estimate``, ``explain`` and ``catalog`` on the real catalogue and cost model."""

from __future__ import annotations

import pytest
from cli_case import CASE

from meshwright.api.verbs.catalog import KINDS


def test_an_estimate_has_the_figures_of_its_layout(cli):
    view = cli("estimate", *CASE, "--layout", "tp2 mb1 sp zero1", "--json").json
    assert view["label"] == "tp2 pp1 dp4 mb1 sp zero1"
    assert view["step_s"] == pytest.approx(sum(view["time"].values()))
    assert view["tokens_per_s"] == pytest.approx(128 * 8192 / view["step_s"])
    assert view["layout"]["num_microbatches"] == 32
    assert view["calibration"].startswith("shipped@")
    assert view["interval"]["level"] == 0.9
    low, high = view["interval"]["step_s"]
    assert low < view["step_s"] < high
    alone = cli("estimate", *CASE, "--layout", "tp2 mb1 sp zero1", "--calibration", "none", "--json").json
    assert (alone["calibration"], alone["calibrated"], alone["interval"]) == ("none@0", False, None)


def test_the_report_of_an_estimate(cli):
    printed = cli("estimate", *CASE, "--layout", "tp2 mb1 sp zero1").out
    assert "UNCALIBRATED" not in printed
    assert "UNCALIBRATED" in cli("estimate", *CASE, "--layout", "tp2 mb1 sp zero1", "--calibration", "none").out
    assert "dense bf16 peak of" in printed
    assert "Memory by stage" in printed


def test_terms_are_printed_on_request(cli):
    assert "formula" in cli("estimate", *CASE, "--layout", "tp2 mb1 sp zero1", "--terms").out


def test_a_layout_that_does_not_fit_is_an_estimate_all_the_same(cli):
    answer = cli("estimate", "llama3-70b", *CASE[1:], "--layout", "dp8 mb1")
    assert answer.status == 0
    assert "DOES NOT FIT" in answer.out


@pytest.mark.parametrize(
    ("layout", "lines"),
    [
        ("tp3 mb1", ["3 does not divide it"]),
        ("tp2 mb7 zero9", ["zero9: ZeRO stages are 0 to 3", "no multiple of dp x mb"]),
        ("tp2 layers=[3]", ["places 3 layers, llama3-8b has 32"]),
        ("mb1 zero3 pp2 interleaved", ["unknown word 'interleaved'"]),
    ],
)
def test_faults_of_the_layout(cli, layout, lines):
    answer = cli("estimate", *CASE, "--layout", layout)
    assert answer.status == 2
    assert len(answer.lines) == len(lines)
    assert all(any(line in each for each in answer.lines) for line in lines)


def test_a_layout_that_breaks_arithmetic_is_refused(cli):
    where = ["--device", "h100-sxm", "--devices", "6", "--global-batch", "6", "--sequence", "8k"]
    answer = cli("estimate", "gpt-oss-120b", *where, "--layout", "tp3 mb1")
    assert answer.status == 2
    assert "tp does not divide the attention heads" in answer.err


def test_what_only_the_default_framework_lacks_is_a_remark(cli):
    layout = ["--layout", "pp2 zero3 mb1"]
    answer = cli("estimate", *CASE, *layout)
    assert answer.status == 0, answer.err
    assert "note: megatron cannot run this" in answer.out
    assert cli("estimate", *CASE, *layout, "--json").json["framework_limits"]
    asked = cli("estimate", *CASE, *layout, "--framework", "megatron")
    assert asked.status == 2
    assert not asked.out


def test_explain_without_a_layout_explains_the_best_plan(cli, search):
    document = cli("explain", *CASE, "--json").json
    assert document["estimate"]["label"] == "tp2 pp1 dp4 mb1 sp zero1"
    assert cli("explain", *CASE, "--layout", "tp4 mb1", "--json").json["estimate"]["label"] == "tp4 pp1 dp2 mb1 zero0"


def test_explain_shows_the_constants_with_their_grade_and_what_moved_them(cli):
    asked = ("explain", *CASE, "--layout", "tp4 mb1")
    constants = {each["name"]: each for each in cli(*asked, "--json").json["constants"]}
    assert constants["gemm_ratio"]["grade"] == "calibrated"
    assert {"all", "framework"} <= set(constants["gemm_ratio"]["moved_by"])
    assert constants["pressure_slowdown"] == constants["pressure_slowdown"] | {"grade": "analytic", "moved_by": {}}
    printed = cli(*asked, "--all").out
    assert "Constants  shipped@" in printed
    assert "at their priors" in printed
    assert cli(*asked, "--calibration", "none", "--json").json["constants"] == []


def test_explain_says_no_where_nothing_fits(cli, search):
    search.fits = False
    answer = cli("explain", *CASE)
    assert answer.status == 1
    assert answer.lines == ["error: nothing fits; what would close the gap:", "error: buy more"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_catalogue_lists_every_kind(cli, kind):
    document = cli("catalog", kind, "--json").json
    assert document["kind"] == kind
    assert len(document["entries"]) >= 2
    printed = cli("catalog", kind).out
    assert f"{len(document['entries'])} {kind}" in printed


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("devices", "h100-sxm", ["peak_flops_per_s.bf16", "Sources", "datasheet"]),
        ("clusters", "dgx-h100", ["devices_per_node", "Sources"]),
        ("models", "llama3-70b", ["num_key_value_heads", "0 x 80", "Sources"]),
        ("frameworks", "megatron", ["features.schedules", "limits"]),
        ("implementations", "megatron-te", ["flash_attention"]),
    ],
)
def test_an_entry_shows_its_figures_and_sources(cli, kind, name, words):
    answer = cli("catalog", kind, name)
    assert answer.status == 0, answer.err
    assert all(word in answer.out for word in words)
    assert "<function" not in answer.out
    assert cli("catalog", kind, name, "--json").json["facts"]["name"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "KIND is missing"),
        (["device"], "did you mean devices?"),
        (["devices", "h100-smx"], "did you mean h100-sxm"),
        (["models", "lama3-8b"], "did you mean"),
        (["frameworks", "megatorn"], "did you mean megatron"),
    ],
)
def test_misspelt_names_are_answered_with_a_suggestion(cli, arguments, line):
    answer = cli("catalog", *arguments)
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert line in answer.lines[0]
