"""What is said of a label that is wrong, every figure of it."""

from __future__ import annotations

from functools import cache

import pytest

from meshwright.catalog import load_model
from meshwright.domain.label import label_faults


@cache
def model():
    return load_model("llama3-8b")  # 32 layers


@pytest.mark.parametrize(
    ("text", "known", "said"),
    [
        ("tp2 ep8 etp4", {"num_devices": 8}, ["ep x etp = 8 x 4 does not divide the 8 devices of a stage (tp x cp x dp)"]),
        ("tp2 ep2 etp4", {"num_devices": 8}, []),
        ("pp2 ep8", {"num_devices": 8}, ["ep x etp = 8 x 1 does not divide the 4 devices of a stage (tp x cp x dp)"]),
        ("tp3", {"num_devices": 8}, ["tp x cp x pp x dp = 3 x 2 = 6 devices, but the world is 8: 3 does not divide it"]),
        (
            "mb3",
            {"num_devices": 8, "global_batch_sequences": 64},
            ["global batch 64 is no multiple of dp x mb = 8 x 3 = 24: micro-batches = batch / (dp x mb)"],
        ),
        (
            "mb2",
            {"num_devices": 8, "global_batch_sequences": 8},
            ["global batch 8 is no multiple of dp x mb = 8 x 2 = 16: micro-batches = batch / (dp x mb)"],
        ),
        ("mb1", {"num_devices": 8, "global_batch_sequences": 8}, []),
        ("zero1 shard=3", {"num_devices": 8}, ["shard3 does not split the 8 data-parallel ranks: divisors above 1 do"]),
        ("zero1 shard=4", {"num_devices": 8}, []),
        ("tp2 pp4 layers=[9,9,9,9]", {"num_devices": 8, "model": True}, ["layers= places 36 layers, llama3-8b has 32"]),
        ("tp2 pp4 layers=[8,8,8,8]", {"num_devices": 8, "model": True}, []),
        (
            "tp2 pp4 layers=[8,8,8]",
            {"num_devices": 8, "model": True},
            ["layers needs 1 list(s) of 4 counts (vp x pp), separated by ';'", "layers= places 24 layers, llama3-8b has 32"],
        ),
        ("dp3 tp2", {"num_devices": 8}, ["tp x cp x pp x dp = 2 x 3 = 6 devices, but the world is 8: dp4 fills it"]),
        ("dp3 tp2", {"num_devices": 8, "max_idle_devices": 2}, []),
        (
            "dp3 tp2",
            {"num_devices": 8, "max_idle_devices": 1},
            ["tp x cp x pp x dp = 2 x 3 = 6 devices, but the world is 8: dp4 fills it"],
        ),
        ("tp0", {}, ["tp0: must be at least 1"]),
        ("tp1", {}, []),
    ],
)
def test_every_fault_has_its_figures(text, known, said):
    known = {**known, **({"model": model()} if "model" in known else {})}
    assert [str(message) for message in label_faults(text, **known)] == [f"layout: {each}" for each in said]


COUNTS = "recompute needs {chunks} list(s) of {stages} counts (vp x pp), separated by ';'"


@pytest.mark.parametrize("treatment", ["full:{}", "selective:mlp:{}", "full:{}+selective:mlp:{}"])
@pytest.mark.parametrize(
    ("degrees", "counts", "wrong"),
    [
        ("pp2", "[1,2]", None),
        ("pp2", "[1,2,3]", (1, 2)),
        ("pp2", "[1]", (1, 2)),
        ("pp2 vp2", "[1,2;1,2]", None),
        ("pp2 vp2", "[1,2]", None),
        ("pp2 vp2", "[1,2;1,2;1,2]", (2, 2)),
        ("pp3 vp2", "[1,2,1;1,2]", (2, 3)),
    ],
)
def test_counts_of_what_is_recomputed_have_the_shape_of_the_pipeline(treatment, degrees, counts, wrong):
    text = f"{degrees} recompute={treatment.format(counts, counts)}"
    found = [str(message) for message in label_faults(text, num_devices=6)]
    assert found == ([] if wrong is None else [f"layout: {COUNTS.format(chunks=wrong[0], stages=wrong[1])}"]), found
