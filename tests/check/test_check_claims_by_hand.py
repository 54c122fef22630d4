"""Claims of a run whose figures are round: what each comes to, from where on it is a finding, and the words of it."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import pytest
from check_cases import case_of

from meshwright.catalog import load_model
from meshwright.check import claim
from meshwright.check.claims import claims, scale_of
from meshwright.estimate.single import model_flops
from meshwright.units import GIB, TERA

DEVICES, SEQUENCE, BATCH = 16, 4096, 128


@cache
def model():
    return load_model("llama3-8b")


SIX_N = 6 * 8_030_261_248  # parameters of Llama 3 8B
PEAK = 1e4 * SIX_N
"""Of a device that would reach 10,000 tokens/s at an MFU of 1 without attention."""


def context(*, estimate=None, device=True, named=True, devices=DEVICES, sequence=None, batch=None, **said):
    card = SimpleNamespace(name="card", peak_flops_per_s={"bf16": PEAK}, memory_bytes=80e9)
    question = SimpleNamespace(
        claims=tuple(claim(name, value) for name, value in said.items()), model=model() if named else None,
        device=card if device else None, num_devices=devices,
    )
    reading = SimpleNamespace(said=SimpleNamespace(devices=None, global_batch_sequences=batch, sequence_tokens=sequence))
    return SimpleNamespace(question=question, case=None, reading=reading, layout=None, estimate=estimate, skipped=[])


def predicted(*, interval=None):
    """1,000 tokens/s and device in steps of 2 s, 40 to 44 GiB."""
    return SimpleNamespace(
        tokens_per_s_per_device=1000.0, step_s=2.0, interval=interval, calibration="none@0", memory_peak_bytes=40.0 * GIB,
        memory_reserved_bytes=44.0 * GIB,
    )


INTERVAL = SimpleNamespace(step_s=(1.6, 2.5), level=0.8, memory_peak_bytes=(36.0 * GIB, 43.0 * GIB),
                           memory_reserved_bytes=(40.0 * GIB, 50.0 * GIB))


def said(given):
    return [(each.message.id, each.severity, str(each.message)) for each in claims(given)]


def test_the_scale_without_a_case_is_that_of_the_case():
    scale = scale_of(context(sequence=SEQUENCE, batch=BATCH))
    case = case_of("llama3-8b", "h100-sxm", DEVICES, BATCH, SEQUENCE, "megatron")
    assert scale.flops_per_token == pytest.approx(model_flops(case) / (BATCH * SEQUENCE))
    assert (scale.six_n, scale.step_tokens, scale.devices) == (pytest.approx(SIX_N), BATCH * SEQUENCE, DEVICES)
    assert scale_of(context(sequence=SEQUENCE)).step_tokens is None
    assert scale_of(context(batch=BATCH)).step_tokens is None
    assert scale_of(context()).flops_per_token == scale.six_n
    nothing = scale_of(context(named=False, device=False, sequence=SEQUENCE))
    assert (nothing.flops_per_token, nothing.six_n, nothing.peak_flops_per_s) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens_per_s", 16e3), ("tflops_per_device", SIX_N / TERA * 1e3), ("mfu", 0.1), ("step_s", BATCH * SEQUENCE / 16e3),
     ("samples_per_s", 16e3 / SEQUENCE)],
)
def test_every_claim_of_speed_comes_to_tokens_of_a_device(name, value):
    scale = scale_of(context(sequence=SEQUENCE, batch=BATCH))
    flops = scale.flops_per_token / SIX_N if name in ("tflops_per_device", "mfu") else 1.0
    assert scale.tokens_per_s_per_device(claim(name, value)) == pytest.approx(1e3 / flops)


@pytest.mark.parametrize(("ratio", "severity"), [(1.14, None), (1.15, "warning"), (1.49, "warning"), (1.5, "error"), (9, "error")])
def test_from_where_on_claims_disagree(ratio, severity):
    found = said(context(devices=1, device=False, tokens_per_s=1.0, tokens_per_s_per_device=ratio))
    assert [each[:2] for each in found] == ([("check.claims-disagree", severity)] if severity else [])
    assert said(context(tokens_per_s=16.0)) == []


def test_the_words_of_claims_that_disagree():
    (found,) = said(context(tokens_per_s_per_device=100.0, mfu=0.25))
    assert found[2] == (
        "--claim: tokens_per_s_per_device=100 is 100 tokens/s/device (1.6K tokens/s), "
        "mfu=0.25 is 2,500 tokens/s/device (40K tokens/s): 25.0 times apart (model FLOPs of a token 48.2B, 6N alone 48.2B)"
    )
    (found,) = said(context(tokens_per_s_per_device=100.0, tokens_per_s=100.0 * 16 * 25))
    assert "FLOPs" not in found[2]
    assert "25.0 times apart" in found[2]


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(5.0, ""), (7.1, ""), (7.3, "of a node"), (8.7, "of a node"), (8.9, ""), (14.3, ""), (14.5, "of all"), (17.5, "of all"),
     (17.7, "")],
)
def test_a_factor_near_a_number_of_devices_is_named(ratio, words):
    (found,) = said(context(tokens_per_s=16.0, tokens_per_s_per_device=ratio))
    assert ("perhaps" in found[2]) == bool(words)
    assert words in found[2]


def test_beyond_the_peak_is_impossible_and_right_would_be_the_peak():
    assert said(context(tokens_per_s_per_device=1e4)) == said(context(tokens_per_s_per_device=1e5, device=False)) == []
    assert said(context(tokens_per_s_per_device=1e5, named=False)) == []
    (found,) = claims(context(tokens_per_s_per_device=2e4))
    words = f"would be an MFU of 200 %, above the dense peak of {PEAK / TERA:.0f} TFLOP/s"
    assert str(found.message) == f"--claim: tokens_per_s_per_device=20,000 {words}"
    assert (found.severity, found.expected) == ("error", pytest.approx(1e4))
    (found,) = claims(context(tokens_per_s=4e4 * DEVICES))
    assert found.expected == pytest.approx(1e4 * DEVICES)
    peak = PEAK / scale_of(context(sequence=SEQUENCE)).flops_per_token
    at_peak_s = BATCH * SEQUENCE / DEVICES / peak
    (found,) = claims(context(step_s=at_peak_s / 4, sequence=SEQUENCE, batch=BATCH))
    assert found.expected == pytest.approx(at_peak_s)


@pytest.mark.parametrize(
    ("interval", "speed", "severity"),
    [
        (None, 1300.0, None), (None, 1301.0, "warning"), (None, 1949.0, "warning"), (None, 1951.0, "error"),
        (None, 770.0, None), (None, 769.0, "warning"), (None, 513.0, "warning"), (None, 512.0, "error"),
        (INTERVAL, 1250.0, None), (INTERVAL, 1251.0, "warning"), (INTERVAL, 1875.0, "warning"), (INTERVAL, 1876.0, "error"),
        (INTERVAL, 800.0, None), (INTERVAL, 799.0, "warning"), (INTERVAL, 534.0, "warning"), (INTERVAL, 533.0, "error"),
    ],
)
def test_from_where_on_a_claim_is_not_what_is_predicted(interval, speed, severity):
    found = list(claims(context(estimate=predicted(interval=interval), tokens_per_s_per_device=speed, device=False)))
    assert [(each.message.id, each.severity) for each in found] == ([("check.claim-unlikely", severity)] if severity else [])
    assert all(each.expected == pytest.approx(1000.0) for each in found)


def test_the_words_of_a_claim_that_is_not_what_is_predicted():
    ((_, _, words),) = said(context(estimate=predicted(interval=INTERVAL), tokens_per_s_per_device=2000.0, device=False))
    assert words == (
        "--claim: tokens_per_s_per_device=2,000 is 2.00 times the prediction of 1,000 for this layout (800 to 1,250, 80 % interval)"
    )
    ((_, _, words),) = said(context(estimate=predicted(), mfu=0.4, device=True))
    assert words == (
        "--claim: mfu=0.4 is 4.00 times the prediction of 0.100 for this layout (0.077 to 0.130, no interval: uncalibrated)"
    )
    ((_, _, words),) = said(context(estimate=predicted(), tokens_per_s=48e3, device=False, devices=100 * DEVICES))
    assert "the prediction of 1.6M for" in words


@pytest.mark.parametrize(
    ("interval", "size", "ids"),
    [
        (None, 61.4, []), (None, 61.5, ["unlikely"]),  # 1.3 x 44 GiB in 10^9 bytes
        (None, 30.8, []), (None, 30.7, ["unlikely"]),  # 40 GiB / 1.3
        (INTERVAL, 50.1, []), (INTERVAL, 53.6, []), (INTERVAL, 53.7, ["unlikely"]),
        (INTERVAL, 36.0, []), (INTERVAL, 35.9, ["unlikely"]),
        (INTERVAL, 80.0, ["unlikely"]), (INTERVAL, 80.1, ["impossible", "unlikely"]),
    ],
)
def test_from_where_on_a_claim_of_memory_is_a_finding(interval, size, ids):
    found = list(claims(context(estimate=predicted(interval=interval), memory_gb=size)))
    assert [each.message.id for each in found] == [f"check.claim-{each}" for each in ids]


def test_a_claim_of_memory_without_a_prediction_is_skipped_aloud():
    given = context(memory_gb=90.0)
    (found,) = claims(given)
    assert str(found.message) == "--claim: memory_gb=90 is more than the 74.5 GiB of a card"
    assert found.expected == pytest.approx(80e9 / GIB)
    assert given.skipped == ["the claim memory_gb=90 is compared with no prediction: there is none"]
    given = context(memory_gb=90.0, tokens_per_s=1.0, devices=None, device=False)
    assert list(claims(given)) == []
    assert "tokens_per_s=1" in given.skipped[0]
    assert len(given.skipped) == 2


def test_claims_of_memory_in_words():
    ((_, severity, words),) = said(context(estimate=predicted(interval=INTERVAL), memory_gb=20.0))
    assert severity == "warning"
    assert words == "--claim: memory_gb=20: 40.0 GiB are predicted for the fullest device (36.0 GiB to 50.0 GiB)"
