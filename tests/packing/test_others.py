"""Modes are exactly what the programs packed, kept by ``python -m benchmarks.packing --record`` from their own sources."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.packing.modes import MODES, chatlearn, nemo_rl, slime, trl, verl
from meshwright.packing.modes.chatlearn import fitting
from meshwright.packing.modes.differencing import differenced
from meshwright.packing.modes.nemo_rl import with_count

KEPT = json.loads((Path(__file__).parent / "others.json").read_text(encoding="utf-8"))


def packed(mode, case):
    lengths, limit, ranks = np.array(case["lengths"]), case["limit"], case["ranks"]
    if mode == "slime-flops":
        return slime(lengths, limit, ranks, workloads=np.array(case["workloads"]), balance_data=True, balance_by_flops=True)
    return {"chatlearn": chatlearn, "verl": verl, "slime": slime, "nemo-rl": nemo_rl, "trl": trl}[mode](lengths, limit, ranks)


@pytest.mark.parametrize("case", KEPT["cases"], ids=lambda case: f"{len(case['lengths'])} samples, {case['ranks']} ranks")
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_what_the_program_packed(mode, case):
    mine, theirs = packed(mode, case), case["packed"][mode]
    if mode == "trl":  # of samples as long the order is Arrow's
        mine, theirs = ([[[case["lengths"][item] for item in each] for each in rank] for rank in dealt] for dealt in (mine, theirs))
    assert mine == theirs


def test_every_program_was_asked():
    assert set(KEPT["sources"]) == {"chatlearn", "verl", "slime", "nemo-rl", "trl"}
    assert all(set(case["packed"]) == set(MODES) for case in KEPT["cases"])
    over = dict.fromkeys(MODES, 0)
    for case in KEPT["cases"]:
        for mode, ranks in case["packed"].items():
            over[mode] += any(sum(case["lengths"][item] for item in each) > case["limit"] for rank in ranks for each in rank)
    assert over["verl"] > 0 and over["slime-flops"] > 0 and not over["slime"] + over["nemo-rl"] + over["trl"]


def test_by_hand():
    assert fitting(np.array([4096, 4096]), 8192) == [[0], [1]], "an exact fit opens a new one"
    assert differenced([8, 7, 6, 5, 4], 2, equal_size=False) == [[1, 3, 4], [0, 2]], "16 and 14: the method's own classic"
    assert trl(np.array([9, 3]), 5, 1) == [[[0], [1]]], "the nine are cut to five"
    assert with_count([[0, 1, 2], [3]], 2) == [[0, 1, 2], [3]] and with_count([[0, 1, 2]], 2) == [[0, 1], [2]]
    assert slime(np.array([3, 3, 3]), 9, 2) == [[[0, 2]], [[1]]]


def test_verl_fills_up_where_ranks_do_not_share_the_samples():
    dealt = verl(np.array([100, 200, 300]), 1000, 2)
    assert sorted(item for rank in dealt for each in rank for item in each) == [0, 1, 2]


@pytest.mark.parametrize(
    ("mode", "lengths", "ranks", "words"),
    [
        (verl, [20], 1, "verl refuses a sample of 20 tokens"), (nemo_rl, [20], 1, "NeMo-RL refuses a sample of 20 tokens"),
        (nemo_rl, [5], 2, "NeMo-RL cannot make 2 micro-batches of 1 samples"), (slime, [5], 2, "slime cannot make 2 micro-batches"),
    ],
)
def test_what_a_program_refuses(mode, lengths, ranks, words):
    with pytest.raises(InputError, match=words):
        mode(np.array(lengths), 10, ranks)
