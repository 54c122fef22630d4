"""Claims against each other, against the machine and against the prediction."""

from __future__ import annotations

from functools import cache, partial

import pytest
from check_cases import case_of, found, ids, judged, megatron_text, picotron
from check_cases import megatron as whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.check import NAMES, claim
from meshwright.check.claims import claims
from meshwright.errors import InputError
from meshwright.perf.parameters import active_parameters
from meshwright.units import TERA

megatron = partial(whole, checks=(claims,))


@cache
def exact() -> dict[str, float]:
    """Every claim as it follows from the prediction of the good script."""
    estimate = megatron().estimate
    assert estimate is not None
    return {
        "tokens_per_s": estimate.tokens_per_s, "tokens_per_s_per_device": estimate.tokens_per_s_per_device,
        "tflops_per_device": estimate.model_flops_per_s_per_device / TERA, "mfu": estimate.mfu_ratio, "step_s": estimate.step_s,
        "samples_per_s": estimate.samples_per_s, "memory_gb": estimate.memory_peak_bytes / 2**30,
    }


def test_the_predictions_own_figures_are_no_findings():
    assert set(exact()) == set(NAMES)
    assert not {each for each in ids(megatron(**exact())) if each.startswith("check.claim")}


@settings(examples(25), suppress_health_check=list(HealthCheck))
@given(names=st.lists(st.sampled_from([name for name in NAMES if name != "memory_gb"]), min_size=2, max_size=2, unique=True),
       factor=st.floats(2.0, 50.0))
def test_any_two_claims_that_differ_are_apart_by_what_they_differ(names, factor):
    first, second = names
    values = exact()
    faster = values[second] / factor if second == "step_s" else values[second] * factor
    if second == "mfu" and faster > 1:
        faster *= 100  # as percent
    (finding,) = found(megatron(**{first: values[first], second: faster}), "check.claims-disagree")
    assert finding.value["ratio"] == pytest.approx(factor, rel=1e-6)
    assert finding.severity == "error"


@pytest.mark.parametrize("factor", [0.2, 0.4, 1.9])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "memory_gb"])
def test_a_claim_is_set_against_the_prediction_in_its_own_figure(name, factor):
    """Of 30 s it was said that they are 3.94 times the predicted 118 s, "139.9 to 99.82"."""
    (finding,) = found(megatron(**{name: exact()[name] * factor}), "check.claim-unlikely")
    values = finding.message.values
    assert values["ratio"] == pytest.approx(factor)
    assert finding.expected == pytest.approx(exact()[name])
    low, high = (float(str(values[end]).replace(",", "").replace("K", "e3").replace("M", "e6")) for end in ("low", "high"))
    assert low < finding.expected < high


def test_150_tflops_on_1024_a100_are_not_15000_tokens():
    case = case_of("llama2-70b", "a100-80g-sxm", 1024, 2048, 4096, "megatron")
    text = megatron_text({"--global-batch-size": 2048}, nodes=128)
    checked = judged(
        {"train.sh": text}, "megatron@0.16", case, {"tokens_per_s": 15_000, "tflops_per_device": 150}, checks=(claims,)
    )
    (finding,) = found(checked, "check.claims-disagree")
    six_n = 150e12 * 1024 / (6 * active_parameters(case.model)) / 15_000
    assert finding.value["ratio"] == pytest.approx(six_n, rel=0.05)  # attention is what 6N leaves out
    assert 23 < finding.value["ratio"] < 25
    assert finding.value["tokens_per_s"] == pytest.approx(15_000 / 1024)
    unlikely = next(each for each in found(checked, "check.claim-unlikely") if "tokens_per_s=15,000" in str(each.message))
    assert unlikely.expected == pytest.approx(checked.estimate.tokens_per_s)


def test_claims_are_compared_without_a_layout_where_model_and_devices_are_known():
    checked = picotron({"training.micro_batch_size": 0}, tokens_per_s_per_device=100, tflops_per_device=400)
    assert found(checked, "check.claims-disagree")


def test_a_claim_that_cannot_be_converted_is_skipped_aloud():
    checked = picotron(alone=True, mfu=0.4)
    assert any("mfu=0.4" in line for line in checked.skipped)


def test_a_factor_that_is_the_number_of_devices_is_named():
    speed = exact()["tokens_per_s"]
    (finding,) = found(megatron(tokens_per_s=speed / 64, tokens_per_s_per_device=speed / 64), "check.claims-disagree")
    assert "of all" in str(finding.message)


@pytest.mark.parametrize(("name", "value"), [("mfu", 150), ("tflops_per_device", 2000), ("memory_gb", 500)])
def test_claims_beyond_the_device(name, value):
    assert found(megatron(**{name: value}), "check.claim-impossible")


def test_a_claim_of_memory_far_from_the_prediction():
    memory = exact()["memory_gb"]
    assert found(megatron(memory_gb=memory / 4), "check.claim-unlikely")


@pytest.mark.parametrize(("name", "value"), [("tokens", 1.0), ("", 1.0), ("mfu", 0.0), ("mfu", -1.0), ("step_s", float("nan"))])
def test_unknown_names_and_impossible_values_are_refused(name, value):
    with pytest.raises(InputError):
        claim(name, value)


def test_an_mfu_above_one_is_percent():
    assert claim("mfu", 45.0) == claim("mfu", 0.45)
