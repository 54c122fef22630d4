"""Samples in packs: none is split, none is lost, and what a step has does not depend on how it is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import one_of

import meshwright as mw
from meshwright.api import packed_search
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.packed_search import best_packs
from meshwright.api.packs import (
    batch_of_packs,
    batch_of_samples,
    even_packs,
    least_packs,
    num_packs,
    pack_counts,
    samples_of,
    samples_per_pack,
)
from meshwright.errors import InputError, Message, NoAnswerError

pytestmark = pytest.mark.usefixtures("alone")

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "task": "sft"}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(100, 400))
def test_packs_hold_all_samples_and_are_not_many_more_than_needed(lengths, cap):
    packs = num_packs(lengths, cap)
    least = -(-sum(lengths) // cap)
    assert least <= packs <= len(lengths)
    assert packs <= 2 * least, "two packs that are half empty would be one"
    assert num_packs(lengths, 2 * cap) <= packs
    assert num_packs(sorted(lengths), cap) == packs


@pytest.mark.parametrize(
    ("lengths", "cap", "packs"),
    [([5, 5, 5, 5], 10, 2), ([6, 6, 6], 10, 3), ([10], 10, 1), ([7, 3, 6, 4, 5, 5], 10, 3), ([9, 2, 2, 2, 2], 10, 2)],
)
def test_packs_by_hand(lengths, cap, packs):
    assert num_packs(lengths, cap) == packs


def test_a_step_by_hand():
    """Two of three samples have 4,096 tokens, one 8,192: three samples are two packs of 8,192, without padding."""
    samples = samples_of([4096, 4096, 8192] * 100, None)
    assert samples.longest_tokens == 8192
    assert (least_packs(samples, 300, 8192), pack_counts(samples, 300, 8192)) == (200, (200, 208, 224))  # 25 x 8, 13 x 16, 7 x 32
    batch = batch_of_samples(samples, 300, 8192, packs=200)
    assert batch.samples == pytest.approx(300)
    assert batch.padding_ratio == pytest.approx(0.0, abs=1e-12)
    assert batch.mean_square_document_tokens == pytest.approx((2 * 4096**2 + 8192**2) / 2)
    looser = batch_of_samples(samples, 300, 8192, packs=250)
    assert (looser.global_batch_sequences, looser.samples) == (250, 300)
    assert looser.padding_ratio == pytest.approx(0.2)
    assert looser.mean_square_document_tokens == pytest.approx((2 * 4096**2 + 8192**2) / 2.5)
    assert batch_of_packs(samples, 200, 8192).samples == pytest.approx(300, rel=0.02)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=300), st.integers(1, 500), st.integers(1, 8),
)
def test_every_step_has_its_samples_in_packs_that_can_hold_them(lengths, num_samples, times):
    samples = samples_of(lengths, None)
    assert samples.longest_tokens % 512 == 0
    cap = times * samples.longest_tokens
    least = least_packs(samples, num_samples, cap)
    assert least == -(-num_samples // samples_per_pack(samples, num_samples, cap))
    for packs in pack_counts(samples, num_samples, cap):
        batch = batch_of_samples(samples, num_samples, cap, packs)
        assert least <= packs <= max(least, min(num_samples, 1.25 * least))
        assert batch.samples == pytest.approx(num_samples)
        assert batch.sequence_tokens == cap
        assert 0 < batch.mean_square_document_tokens <= cap**2 * (1 + 1e-12)
        assert batch.padding_ratio < 1
    assert batch_of_samples(samples, num_samples, cap).global_batch_sequences in pack_counts(samples, num_samples, cap)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_counts_of_packs_are_as_even_as_there_is_room_for(least, share):
    most = int(least * (1 + share))
    packs = even_packs(least, most)
    assert least <= packs <= most
    power = packs & -packs
    assert not any(count & -count > power for count in range(least, most + 1))


def test_nothing_is_split_unasked():
    with pytest.raises(InputError) as caught:
        samples_of([100_000, 500, 8192], 8192)
    assert "1 of 3 samples are longer than --sequence 8,192, the longest has 100,000 tokens" in str(caught.value)
    cut = samples_of([100_000, 500, 8192], 8192, split_long=True)
    assert cut.lengths.tolist() == [8192] * 12 + [100_000 - 12 * 8192, 500, 8192]
    assert (cut.documents, cut.longest_tokens, sum(cut.lengths)) == (3, 8192, 108_692)


@pytest.mark.parametrize(
    ("lengths", "sequence", "words"),
    [([10**12], None, "a sample of 1,000,000,000,000 tokens: more than 1,073,741,824 are not taken"),
     ([2**30] * 2, 1, "cut to 1 tokens the samples would be 2,147,483,648 pieces, more than 10,000,000")],
)
def test_samples_without_measure_are_refused(lengths, sequence, words):
    with pytest.raises(InputError) as caught:
        samples_of(lengths, sequence, split_long=True)
    assert words in str(caught.value)


def test_too_few_packs_are_refused():
    samples = samples_of([4096] * 64, None)
    with pytest.raises(InputError) as caught:
        batch_of_samples(samples, 64, 8192, packs=31)
    assert "31 packs of at most 8,192 tokens do not hold 64 samples: 32 are needed" in str(caught.value)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("lengths") / "lengths.txt"
    path.write_text("\n".join(["1000", "3000", "2000", "4000"] * 50))
    return str(path)


@pytest.fixture(scope="module")
def planned(file):
    return mw.plan(mw.PlanRequest(**CASE, lengths=file, top=2, no_balance=True))


def test_the_global_batch_counts_samples_and_the_cap_is_searched(planned):
    document = planned.to_json()
    lengths, best = document["lengths"], document["plans"][0]
    assert {name: lengths[name] for name in ("samples", "documents", "tokens", "mean", "max")} == {
        "samples": 200, "documents": 200, "tokens": 500_000, "mean": 2500, "max": 4000,
    }
    assert lengths["packs"] * lengths["samples_per_pack"] == pytest.approx(64)
    assert lengths["padding_ratio"] == pytest.approx(1 - 64 * 2500 / (lengths["packs"] * document["max_tokens"]))
    assert best["estimate"]["samples_per_s"] == pytest.approx(64 / best["estimate"]["step_s"])
    left = best["estimate"]["memory_capacity_bytes"] - best["estimate"]["memory_reserved_bytes"]
    assert document["max_tokens_headroom_bytes"] == pytest.approx(left, abs=1)
    assert {each.max_tokens for each in planned.tried} <= {4096, 5120, 6144, 8192, 10240, 12288, 16384, 32768}
    steps = {(each.max_tokens, each.packs): each.step_s for each in planned.tried}
    assert min(step for step in steps.values() if step) == steps[document["max_tokens"], lengths["packs"]]


def test_what_plan_chose_is_what_estimate_predicts(planned):
    request = planned.to_json()["request"]
    named = {name: value for name, value in request.items() if name in mw.EstimateRequest.__dataclass_fields__}
    again = mw.estimate(mw.EstimateRequest(**named, layout=planned.result.plans[0].label)).to_json()
    first = planned.to_json()["plans"][0]["estimate"]
    assert (again["step_s"], again["memory_reserved_bytes"]) == (first["step_s"], first["memory_reserved_bytes"])
    assert again["max_tokens"] == request["max_tokens"]


@pytest.mark.parametrize("drawn", one_of(2, ["lognormal:median=1500,sigma=0.8,max=8192,n=2048", "uniform:min=100,max=4000,n=1500"]))
def test_plan_finds_no_slower_packs_than_pack(drawn, tmp_path):
    """Both count the packs of one file, and both fill stages: where `pack` fills 496, `plan` does not pay for 512."""
    case = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "task": "sft"}
    packed = mw.pack(mw.PackRequest(**case, distribution=drawn)).to_json()
    file = tmp_path / "lengths.txt"
    lengths = mw.pack(mw.PackRequest(distribution=drawn, max_tokens=8192)).packed.lengths.lengths
    file.write_text(" ".join(map(str, lengths)))
    case |= {"lengths": str(file), "global_batch": len(lengths)}
    best = mw.plan(mw.PlanRequest(**case, top=1)).to_json()["plans"][0]
    recommended = next(each for each in packed["curve"] if each["max_tokens"] == packed["recommended_max_tokens"])
    assert best["estimate"]["expected_step_s"] <= recommended["step_s"] / recommended["memory_fit_probability"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"sequence": 2048}, "100 of 200 samples are longer than --sequence 2,048"),
        ({"max_tokens": 2048}, "2,048 is less than the longest sample of 4,096 tokens"),
        ({"max_tokens": 4096, "packs": 2}, "2 packs of at most 4,096 tokens do not hold 64 samples"),
    ],
)
def test_what_cannot_be_packed_is_said(file, asked, words):
    with pytest.raises(InputError) as caught:
        mw.plan(mw.PlanRequest(**CASE, lengths=file, **asked))
    assert words in str(caught.value)


@pytest.mark.parametrize("option", ["max_tokens", "packs", "split_long"])
def test_packs_need_lengths(option):
    with pytest.raises(InputError) as caught:
        mw.plan(mw.PlanRequest(**CASE, sequence=4096, **{option: 8192 if option != "split_long" else True}))
    assert str(caught.value) == f"--{option.replace('_', '-')} needs --lengths: a file of lengths of samples"


def test_files_count_packs_and_lengths_say_what_is_in_them(file, tmp_path):
    asked = {**CASE, "task": "pretrain", "lengths": file, "max_tokens": 8192, "packs": 32}
    saved = mw.plan(mw.PlanRequest(**asked, top=1, no_balance=True, save=str(tmp_path / "out")))
    named = {name: CASE[name] for name in ("model", "device", "nodes")}
    files = [str(tmp_path / "out" / "train.sh")]
    predicted = mw.check(mw.CheckRequest(**named, lengths=file, files=files, from_="megatron")).checked.estimate
    first = saved.result.plans[0].estimate
    assert predicted.label == first.label
    assert predicted.memory_reserved_bytes == pytest.approx(first.memory_reserved_bytes)
    assert predicted.step_s == pytest.approx(first.step_s, rel=0.05)


def test_a_plan_from_before_packs_had_a_cap_opens_as_it_was(file, tmp_path):
    """Its global batch counted packed sequences, and longer documents were cut."""
    request = {**CASE, "lengths": file, "sequence": 2048, "framework": "megatron"}
    lines = ["meshwright_plan: 1", "request:", *(f"  {key}: {value}" for key, value in request.items()), "layout: tp1 mb1 zero1"]
    (tmp_path / "plan.yaml").write_text("\n".join(lines) + "\n")
    batch = mw.estimate(mw.EstimateRequest(request=str(tmp_path / "plan.yaml"))).given.case.batch
    assert (batch.global_batch_sequences, batch.sequence_tokens) == (64, 2048)
    assert batch.mean_square_document_tokens <= 2048**2


def test_a_layout_that_does_not_share_the_packs_is_told_how_many_it_would(file):
    asked = {**CASE, "lengths": file, "layout": "dp8 mb1 zero1"}
    with pytest.raises(InputError) as caught:
        mw.estimate(mw.EstimateRequest(**asked, packs=42))
    assert "42 packs are no multiple of dp x mb = 8 x 1 = 8; --packs 48 gives replicas as many each" in str(caught.value)
    assert mw.estimate(mw.EstimateRequest(**asked, packs=48)).given.case.batch.samples == pytest.approx(64)


@pytest.mark.parametrize("caps", [(8192, 16384), (16384, 8192)])
def test_a_cap_that_a_framework_runs_nothing_of_does_not_hide_another(caps):
    refused, runs = caps
    case = SimpleNamespace(
        samples=samples_of([8192] * 8, None), request={"global_batch": 8},
        packed=lambda cap, packs: SimpleNamespace(case=SimpleNamespace(
            batch=SimpleNamespace(sequence_tokens=cap, global_batch_sequences=packs))),
    )
    first = SimpleNamespace(estimate=SimpleNamespace(expected_step_s=1.0))

    def searched(packed):
        if packed.case.batch.sequence_tokens == runs:
            return SimpleNamespace(plans=[first], verdict=None)
        raise NoAnswerError([Message("plan.framework", "runs none", {})])

    best, _, tried = best_packs(case, searched)
    assert best.case.batch.sequence_tokens == runs
    assert {each.max_tokens for each in tried} == {runs}
    case.request["max_tokens"] = refused
    with pytest.raises(NoAnswerError):
        best_packs(case, searched)


def test_explain_tries_the_caps_that_plan_tries(file, monkeypatch):
    """Not the longest sample, which is the cap elsewhere where none is named."""
    monkeypatch.setattr(packed_search, "TIMES", (4,))
    monkeypatch.setattr(packed_search, "BETWEEN", ())
    plan = mw.plan(mw.PlanRequest(**CASE, lengths=file, top=1))
    explained = mw.explain(mw.ExplainRequest(**CASE, lengths=file))
    assert plan.given.case.batch.sequence_tokens == 4 * 4096
    assert explained.given.case.batch == plan.given.case.batch
    assert explained.to_json()["estimate"]["label"] == plan.to_json()["plans"][0]["estimate"]["label"]
    assert explained.estimate.step_s == plan.result.plans[0].estimate.step_s


@pytest.mark.parametrize("cap", [1024, 1536, 4096])
def test_images_of_the_samples_stay_as_many_whatever_the_cap_and_are_read_back(cap, tmp_path):
    lengths = tmp_path / "lengths.jsonl"
    lengths.write_text("\n".join(f'{{"length": {100 + 37 * index % 900}}}' for index in range(300)) + '\n{"length": 1024}')
    values = {"model": "qwen2.5-vl-3b", "device": "h100-sxm", "nodes": 1, "global_batch": 256, "lengths": str(lengths)}
    values |= {"framework": "accelerate", "launch": "vision=frozen image_tokens=100"}
    faults = Faults()
    found = setup(values, faults)
    assert not faults.messages
    packed = found.packed(cap, 256)
    tower = packed.case.model.tower
    assert tower.image_ratio == pytest.approx(100 / 1024, rel=0.01)
    again = setup({**values, "max_tokens": cap, "packs": 256, "launch": packed.request["launch"]}, faults)
    assert again.case == packed.case
