"""Whether a layout fits, as `check` says it: the same answer as `estimate` gives, and no figure without words."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from check_cases import case_of, found, judged, megatron, megatron_text
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from draws import examples
from meshwright.check import claim
from meshwright.check.claims import claims
from meshwright.check.memory import memory
from meshwright.check.rules import file_rules
from meshwright.check.waste import _change, losses, waste
from meshwright.report.findings import findings_report

GIB = 2**30
PLAIN = megatron(checks=(memory,))


@examples(200)
@given(st.floats(0.0, 1.0), st.floats(0.3, 1.4), st.booleans())
def test_the_severity_is_that_of_the_probability(probability, share, calibrated):
    """Error under one half, warning under 0.9; without a calibration the upper bound stands for the probability."""
    estimate = PLAIN.estimate
    assert estimate is not None
    interval = estimate.interval
    if not calibrated:
        interval, probability = None, float(share <= 1.0)
    need = share * estimate.memory_capacity_bytes
    each = replace(
        estimate, memory_fit_probability=probability, fits=probability >= 0.5, memory_reserved_bytes=need, interval=interval,
        memory_upper_bytes=1.1 * need,
    )
    context = SimpleNamespace(estimate=each, case=SimpleNamespace(cluster=SimpleNamespace(host_memory_bytes=1e15)))
    severities = [finding.severity for finding in memory(context)]
    near = share > 0.92 or (not calibrated and 1.1 * share > 1.0)
    expected = ["error"] if probability < 0.5 else ["warning"] if probability < 0.9 or near else []
    assert severities == expected


@pytest.mark.parametrize("layout", ["--pipeline-model-parallel-size 4 --tensor-model-parallel-size 4", "all"])
def test_check_and_estimate_say_the_same_of_one_layout(layout):
    changes = {"--tensor-model-parallel-size": 2, "--sequence-parallel": None} if layout == "all" else {
        "--tensor-model-parallel-size": 4, "--sequence-parallel": None}
    checked = megatron(changes, checks=(memory,))
    assert checked.estimate is not None
    assert checked.ok == checked.estimate.fits


@pytest.mark.parametrize(("size", "impossible"), [(80, False), (79, False), (90, True), (96, True)])
def test_the_memory_on_the_label_of_a_card_may_be_claimed(size, impossible):
    checked = megatron(checks=(claims,), memory_gb=size)
    assert bool(found(checked, "check.claim-impossible")) == impossible
    assert claim("memory_gb", size).value == size


def printed(checked):
    """The report as plain text."""
    console = Console(file=io.StringIO(), width=200)
    for part in findings_report(checked):
        console.print(part)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_figures_of_a_prediction_stand_in_words_and_values_of_files_say_which_they_are():
    words = printed(megatron({"--use-flash-attn": True}, checks=(file_rules,)))
    assert "is on; right would be --attention-backend flash" in words
    assert "True ->" not in words
    case = case_of("llama2-70b", "h100-sxm", 64, 16, 4096, "megatron")
    words = printed(judged({"train.sh": megatron_text({"--global-batch-size": 16})}, "megatron@0.16", case, checks=(losses,)))
    assert "-> 0.1" not in words
    assert "more than 10 %" in words


def test_every_change_is_named_and_says_what_is_done():
    far = megatron({"--micro-batch-size": 4, "--tensor-model-parallel-size": 2, "--sequence-parallel": None}, checks=(waste,))
    (finding,) = found(far, "check.better")
    assert " more" not in str(finding.message).split("change:")[1]

    def edit(key, before, after):
        return _change(SimpleNamespace(key=key, before=before, after=after))

    assert edit("--sequence-parallel", None, True) == "add --sequence-parallel"
    assert edit("--sequence-parallel", True, None) == edit("--sequence-parallel", True, False) == "remove --sequence-parallel"
    assert edit("--tensor-model-parallel-size", 2, 4) == "--tensor-model-parallel-size 2 -> 4"
    assert edit("--recompute-modules", None, ("mlp", "core_attn")) == "add --recompute-modules mlp core_attn"
    assert edit("model.sequence_parallel", True, False) == "model.sequence_parallel on -> off"
