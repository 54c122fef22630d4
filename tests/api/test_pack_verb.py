"""``pack``: the contract's keys, each limit as ``estimate`` predicts it, what others would do, and one line for what is wrong."""

from __future__ import annotations

import builtins
import json
import xml.etree.ElementTree as tree
from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from meshwright.api.lengths import read_lengths
from meshwright.api.packed_steps import Rules, outcome, steps_of
from meshwright.cli import main
from meshwright.errors import InputError
from meshwright.packing import Cost, figures, pack
from meshwright.packing.modes import MODES

DRAWN = "lognormal:median=1500,sigma=0.8,max=8192,n=256"
CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "task": "sft", "layout": "tp2 mb1 sp zero1"}
KEYS = {
    "microbatches", "padding_ratio_before", "padding_ratio_after", "speedup_estimate", "imbalance_ratio", "recommended_max_tokens",
    "max_tokens_used", "overflows", "lower_bound", "interval", "curve",
}


@pytest.fixture(scope="module")
def answer():
    return mw.pack(mw.PackRequest(distribution=DRAWN, **CASE))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("100\n4000\n2500\n1500\n")
    return path


def test_without_a_model_tokens_decide(file):
    found = mw.pack(mw.PackRequest(lengths=file, max_tokens=4096, data_parallel=1)).to_json()
    assert set(found) >= KEYS
    by_hand = {"microbatches": 3, "lower_bound": 3, "overflows": 0, "max_tokens_used": 4000, "imbalance_ratio": 1.0}
    assert {name: found[name] for name in by_hand} == by_hand, "4000, 2500 + 1500 and 100: nothing has room for 100"
    assert found["padding_ratio_before"] == pytest.approx(1 - 8100 / 16_000)
    assert found["padding_ratio_after"] == pytest.approx(1 - 8100 / (3 * 4000)), "no micro-batch needs more than the fullest"
    low, high = found["interval"]["speedup_estimate"]
    assert low == pytest.approx(16_000 / (3 * 4000)) == found["speedup_estimate"]
    assert high == pytest.approx(4 * 4000**2 / (100**2 + 4000**2 + 2500**2 + 1500**2))
    assert found["curve"] == [] and found["label"] is None


@pytest.mark.parametrize("limit", [8192, 131_072, 10**6, 10**9])
def test_a_limit_far_above_the_samples_costs_nothing(limit):
    """A micro-batch is as long as the fullest needs: the limit says what it may have, not what it has."""
    asked = {"distribution": "lognormal:n=64", "max_tokens": limit, "data_parallel": 2}
    found = mw.pack(mw.PackRequest(**asked)).to_json()
    low, high = found["interval"]["speedup_estimate"]
    assert 1 < low == found["speedup_estimate"] < high and 0 <= found["padding_ratio_after"] < found["padding_ratio_before"]
    if limit > 131_072:
        assert found["speedup_estimate"] == mw.pack(mw.PackRequest(**{**asked, "max_tokens": 10**8})).to_json()["speedup_estimate"]


def test_nor_does_it_with_a_model():
    found = mw.pack(mw.PackRequest(distribution="lognormal:n=64", max_tokens=10**6, **CASE)).to_json()
    here = next(each for each in found["curve"] if each["max_tokens"] == 10**6)
    assert found["max_tokens_used"] <= here["microbatch_tokens"] < found["max_tokens_used"] + 128
    assert found["speedup_by"] == "cost model" and found["speedup_estimate"] > 1


def test_context_parallelism_by_sample(capsys):
    words = ["pack", "--distribution", "lognormal:median=2000,sigma=1.4,max=65536,n=128", "--tokens-per-rank", "16384"]
    case = {**CASE, "nodes": 2, "layout": "tp1 cp2 mb1 zero3 recompute=full"}
    assert main([*words, *(f"--{name}={value}" for name, value in case.items()), "--json"]) in {0, 1}
    found = json.loads(capsys.readouterr().out)["dynamic"]
    assert (found["ranks"], found["static_context_parallel"]) == (16, 4) and found["max_rank_tokens_used"] <= 16384
    assert sum(found["samples_by_degree"].values()) == 128 and found["imbalance_ratio"] < 1.05
    assert found["static_step_ratio"] > 1 and found["microbatches"] == len(found["groups"])
    assert main([*words, "--data-parallel", "8"]) == 0
    said = capsys.readouterr().out
    assert "Context parallelism by sample, at most 16,384 tokens of each of 8 ranks" in said
    assert "with --model on a cluster: how much faster than cp4 for all" in said
    assert main([*words, "--data-parallel", "2"]) == 2
    assert "does not fit on 2 ranks of 16,384" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [list, np.array])
def test_lengths_may_be_values(kind):
    found = mw.pack(mw.PackRequest(lengths=kind([100, 4000, 2500, 1500]), max_tokens=4096, **CASE, oversize="alone"))
    assert found.packed.outcome.total.microbatches == 4 and found.to_json()["request"]["model"] == "llama3-8b"


def test_the_call_of_a_data_loader():
    lengths = [6, 5, 4, 3, 2]
    assert mw.pack(lengths, max_tokens=10, data_parallel=2) == [[[0, 2]], [[1, 3, 4]]]
    cost = Cost(token_s=1.0, square_s=1.0)
    assert mw.pack(np.array(lengths), 10, 1, cost) == pack(lengths, 10, 1, cost)
    with pytest.raises(InputError, match="max_tokens is missing"):
        mw.pack(lengths)
    with pytest.raises(InputError, match="1 of 5 samples are longer than 5 tokens"):
        mw.pack(lengths, 5)


def test_each_limit_is_what_estimate_predicts_of_it(answer, tmp_path):
    path = tmp_path / "drawn.txt"
    path.write_text("\n".join(map(str, answer.packed.lengths.lengths.tolist())))
    points = answer.to_json()["curve"]
    assert len(points) > 5 and [each["max_tokens"] for each in points] == sorted(each["max_tokens"] for each in points)
    for each in (points[0], points[3], points[-1]):
        said = mw.estimate(mw.EstimateRequest(
            **CASE, lengths=path, global_batch=256, max_tokens=each["max_tokens"], packs=each["packs"],
        )).to_json()
        for name in ("step_s", "tokens_per_s", "memory_peak_bytes", "memory_reserved_bytes", "memory_fit_probability", "fits"):
            assert each[name] == pytest.approx(said[name]), name
        assert each["trained_tokens_per_s"] == pytest.approx(said["tokens_per_s"] * (1 - said["lengths"]["padding_ratio"]))
    assert points[-1]["memory_reserved_bytes"] > points[0]["memory_reserved_bytes"]


def test_the_recommended_limit_is_the_smallest_of_the_best(answer):
    found = answer.to_json()
    expected = {each.max_tokens: each.estimate.expected_step_s for each in answer.packed.curve if each.estimate.fits}
    best = min(expected.values())
    chosen = found["recommended_max_tokens"]
    assert expected[chosen] <= 1.005 * best
    assert all(step > 1.005 * best for cap, step in expected.items() if cap < chosen)
    point = next(each for each in found["curve"] if each["max_tokens"] == chosen)
    assert found["recommended_headroom_bytes"] == pytest.approx(
        point["memory_capacity_bytes"] - point["memory_reserved_bytes"], rel=1e-9,
    )
    assert (found["max_tokens"], found["align"], found["overflows"]) == (chosen, 4, 0)  # 2 x tp2
    assert found["max_tokens_used"] <= chosen and found["imbalance_ratio"] < 1.02


def test_the_cost_is_the_models_own(answer):
    """More of attention where sequences are long beside the width: the crossover of 8 B parameters is some tens of thousands."""
    cost = answer.packed.rules.cost
    assert 10_000 < cost.crossover_tokens() < 100_000
    slot = next(each for each in answer.packed.curve if each.max_tokens == 8192).estimate
    squares = answer.packed.lengths.mean_square_tokens * 256 / slot.layout.num_microbatches / 4
    stage = slot.stages[0]
    said = cost.microbatch_s + cost.token_s * 8192 + cost.square_s * squares
    assert said == pytest.approx(stage.forward_s + stage.backward_s, rel=0.02)
    small = mw.pack(mw.PackRequest(distribution=DRAWN, max_tokens=8192, **{**CASE, "model": "qwen2.5-7b", "layers": 2}))
    assert small.packed.rules.cost.token_s < cost.token_s / 4


def test_where_no_limit_fits_the_answer_is_no(capsys):
    asked = {**CASE, "model": "llama3-70b", "layout": "tp8 mb1 zero0"}
    assert main(["pack", "--distribution", "lognormal:n=64", *(f"--{name}={value}" for name, value in asked.items())]) == 1
    assert "No limit fits in memory: the smallest lacks" in capsys.readouterr().out


def test_context_parallelism_and_interleaved_stages_have_their_multiples():
    asked = {**CASE, "layout": "tp2 cp2 pp2 vp2 mb1 sp zero1"}
    found = mw.pack(mw.PackRequest(distribution=DRAWN, **asked)).to_json()
    assert found["align"] == 8 and all(each["max_tokens"] % 8 == 0 for each in found["curve"])
    assert found["microbatches_of_a_rank"] % 2 == 0 and all(each["packs"] % 2 == 0 for each in found["curve"])


def test_the_gain_is_that_of_the_padded_case(answer):
    before = mw.estimate(mw.EstimateRequest(**CASE, global_batch=256, sequence=8192)).estimate
    here = next(each for each in answer.packed.curve if each.max_tokens == answer.packed.rules.max_tokens).estimate
    assert answer.packed.speedup.by == "cost model"
    ratio = before.step_s / here.step_s / answer.packed.outcome.total.imbalance_ratio
    assert answer.packed.speedup.ratio == pytest.approx(ratio, rel=0.05)
    low, high = answer.packed.speedup.interval
    assert 1 < low < answer.packed.speedup.ratio < high


def test_pictures_and_micro_batches_are_written(file, tmp_path, capsys):
    out, picture = tmp_path / "packs.jsonl", tmp_path / "cap.svg"
    words = ["pack", str(file), "--max-tokens", "4096", "--data-parallel", "3", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["saved"] == [str(out)]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["rank"] for row in rows] == [0, 1, 2]
    assert sorted(sample for row in rows for sample in row["samples"]) == [0, 1, 2, 3]
    assert sum(row["tokens"] for row in rows) == 8100
    assert main([*words, "--picture", str(picture)]) == 0
    assert "no curve" in picture.read_text()


def test_the_picture_has_both_curves(answer):
    from meshwright.api.renderers import render

    view = answer.to_json()
    drawn = tree.fromstring(render("packing.svg", view))
    words = " ".join(each.text or "" for each in drawn.iter() if each.tag.endswith("text"))
    assert "tokens/s without padding" in words and "GiB reserved" in words


def test_a_picture_called_html_is_the_page_of_the_answer(tmp_path, file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["pack", str(file), "--max-tokens", "4096", "--data-parallel", "3"]
    assert main([*words, "--picture", "cap.html"]) == 0
    assert main([*words, "--html", "page.html"]) == 0
    pictured, paged = ((tmp_path / name).read_text(encoding="utf-8") for name in ("cap.html", "page.html"))
    assert pictured.replace(" --picture cap.html", "") == paged and "<h1" in paged


def test_the_report_says_limit_padding_and_gain(capsys):
    assert main(["pack", "--distribution", "lognormal:n=64", "--max-tokens", "8192", "--data-parallel", "2", "--mode", "verl"]) == 0
    said = capsys.readouterr().out
    assert "as verl packs them" in said and "above the limit" in said and "times as fast" not in said
    assert "times the tokens" in said and "in seconds with --model on a cluster" in said
    assert main(["pack", "--distribution", DRAWN, *(f"--{name}={value}" for name, value in CASE.items())]) == 0
    said = capsys.readouterr().out
    assert "Recommended limit" in said and "of memory left" in said and said.count("|") < 3


@pytest.mark.parametrize("mode", MODES)
def test_what_others_do_loses_no_sample(mode):
    rng = np.random.default_rng(4)
    lengths = np.minimum(np.exp(rng.normal(7.3, 0.8, 96)).astype(int) + 64, 8000)
    rules = Rules(max_tokens=8192, data_parallel=4, mode=mode, cost=Cost(token_s=20_000.0, square_s=1.0))
    dealt = rules.ranks(lengths)
    assert sorted(item for rank in dealt for each in rank for item in each) == list(range(96))
    mine = replace(rules, mode="meshwright").figures(lengths)
    theirs = figures(dealt, lengths, 8192, rules.cost)
    assert mine.overflows == 0 and mine.imbalance_ratio <= theirs.imbalance_ratio + 1e-5
    assert (theirs.overflows > 0) == (mode in ("verl", "slime-flops"))


def test_chatlearn_overflows_its_own_limit():
    """64 samples a rank on 4 ranks: some rank batches are above the limit, none of ours."""
    rng = np.random.default_rng(7)
    over = 0
    for _ in range(30):
        lengths = np.minimum(np.exp(rng.normal(7.3, 0.8, 256)).astype(int) + 64, 8000)
        rules = Rules(max_tokens=8192, data_parallel=4, mode="chatlearn")
        theirs, mine = rules.figures(lengths), replace(rules, mode="meshwright").figures(lengths)
        over += theirs.overflows > 0
        assert mine.overflows == 0
        assert mine.microbatches <= theirs.microbatches
    assert over > 3


@pytest.mark.parametrize("mode", ["chatlearn", "verl"])
def test_the_limit_to_give_to_a_program_that_exceeds_it(mode):
    """Its own packing under that limit, each sample padded to 16 tokens, stays within ours."""
    found = mw.pack(mw.PackRequest(distribution=DRAWN, max_tokens=8960, data_parallel=2, mode=mode, align=16))
    keeping, lengths = found.to_json()["keeping_max_tokens"], found.packed.lengths.lengths
    assert found.packed.outcome.total.overflows > 0 and 8192 <= keeping < 8960
    dealt = Rules(max_tokens=keeping, data_parallel=2, mode=mode).ranks(lengths)
    padded = -(-lengths // 16) * 16
    assert max(padded[each].sum() for rank in dealt for each in rank) <= 8960


def test_steps_of_a_global_batch_and_what_is_left_over():
    lengths = np.arange(1, 12)
    steps, left = steps_of(lengths, 4)
    assert ([each.tolist() for each in steps], left) == ([[1, 2, 3, 4], [5, 6, 7, 8]], 3)
    found = outcome(lengths, 4, Rules(max_tokens=20, data_parallel=2))
    assert (found.steps, found.left_over, found.step_samples, found.total.microbatches) == (2, 3, 4, 4)
    many = outcome(np.full(1000, 7), 10, Rules(max_tokens=20))
    assert (many.steps, many.looked_at) == (100, 50)
    with pytest.raises(InputError, match="a step of 12 samples needs more than the 11 there are"):
        steps_of(lengths, 12)


@pytest.mark.parametrize(
    ("text", "name", "field", "lengths"),
    [
        ('{"n": 5}\n{"n": 7}\n', "a.jsonl", "n", [5, 7]), ('{"ids": [1, 2, 3]}\n{"ids": [9]}\n', "a.jsonl", "ids", [3, 1]),
        ("id,mine\na,5\nb,6\n", "a.csv", "mine", [5, 6]), ('{"length": 4}\n', "a.jsonl", None, [4]),
        ("[5, 6]\n7 8\n", "a.txt", None, [5, 6, 7, 8]),
    ],
)
def test_lengths_of_files(tmp_path, text, name, field, lengths):
    (tmp_path / name).write_text(text)
    assert list(read_lengths(str(tmp_path / name), field)) == lengths


@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        ("", {}, "holds no lengths"), ("5\n0\n", {}, ":2: '0' is not a length"), ("5 -2", {}, "'-2' is not a length"),
        ("hello", {}, "'hello' is not a length"), ('{"a": 5}', {"field": "b"}, ":1: no key 'b'; it has a"),
        ('{"a": 5}', {}, "none of the keys length"), ('{"a": "long text"}', {"field": "a"}, "'long text' is not a length"),
        ("5\n", {"field": "b"}, "no column 'b'"), ('{"a": 5', {}, "not one JSON value"),
        ("9000", {"max_tokens": 8192}, "1 of 1 samples are longer"),
        ("100", {"max_tokens": 1000, "align": 16}, "1,000 tokens are no multiple of 16; 992 or 1,008 would be"),
        ("100", {"data_parallel": 2}, "1 samples do not make the 2 micro-batches"),
        ("100", {"seed": 3}, "--seed needs --distribution"),
        ("100", {"distribution": "fixed"}, "contradict each other"),
        ("100", {"global_batch": 5}, "needs more than the 1 there are"),
        ("9000", {"mode": "verl", "max_tokens": 8192}, "verl refuses a sample of 9,000 tokens"),
        ("100", {"layout": "tp2 mb1"}, "MODEL is missing"), ("100", {"model": "llama3-8b"}, "the cluster is missing"),
        ("100", {**CASE, "layout": "tp2 mb2 zero1"}, "mb2: a micro-batch is one pack"),
        ("100", {**CASE, "data_parallel": 3}, "--data-parallel 3, but the layout has dp4"),
        ("100", {"out": "{}/no/such/folder.jsonl"}, "no/such"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, text, asked, words, capsys):
    path = tmp_path / "lengths.txt"
    path.write_text(text)
    asked = {name: value.format(tmp_path) if name == "out" else value for name, value in asked.items()}
    assert main(["pack", str(path), *(f"--{name.replace('_', '-')}={value}" for name, value in asked.items())]) == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said and all(line.startswith("error: ") for line in said.splitlines())


def test_nothing_is_packed_without_lengths():
    with pytest.raises(InputError, match="LENGTHS or --distribution is missing"):
        mw.pack(mw.PackRequest(max_tokens=10))


def test_a_parquet_file_without_its_reader_says_which(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + bytes(40))
    real = builtins.__import__

    def refusing(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(InputError, match=r"is a Parquet file; pip install 'meshwright\[arrow\]' reads it"):
        read_lengths(str(path))


def test_columns_of_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"length": [5, 6], "ids": [[1, 2, 3], [4]], "text": ["a", "b"]})
    path = str(tmp_path / "a.parquet")
    parquet.write_table(table, path)
    assert list(read_lengths(path)) == [5, 6]
    assert list(read_lengths(path, "ids")) == [3, 1]
    for field, words in (("no", "no column 'no'; it has length, ids, text"), ("text", "'a' is not a length")):
        with pytest.raises(InputError, match=words):
            read_lengths(path, field)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_lengths(path)


def test_ten_million_lengths_are_read_a_piece_at_a_time(tmp_path, monkeypatch):
    from meshwright.api import lengths

    monkeypatch.setattr(lengths, "MAX_LENGTHS", 5)
    path = tmp_path / "many.txt"
    path.write_text("1\n" * 6)
    with pytest.raises(InputError, match="holds more than 5 lengths"):
        read_lengths(str(path))
