"""Keys that other programs read are in the document whatever the case is."""

from __future__ import annotations

import pytest

import meshwright as mw

LAUNCH = {"graphs", "compile", "deterministic", "attention", "dispatcher", "routing", "overlap"}
STALLS = {"model": "llama3-8b", "nodes": 8, "framework": "nanotron", "layout": "tp1 pp4 dp16 mb1 zero1 overlap=none"}
MIXTURE = {"model": "mixtral-8x7b", "nodes": 8, "layout": "tp2 pp4 ep8 dp8 mb1 sp zero1"}
DENSE = {"model": "llama3-8b", "nodes": 1, "layout": "tp2 dp4 mb1 sp zero1"}


@pytest.mark.parametrize(("case", "humps"), [(STALLS, 2), (MIXTURE, 1), (DENSE, 1)])
def test_an_estimate_has_every_setting_and_every_time(case, humps):
    document = mw.estimate(mw.EstimateRequest(device="h100-sxm", global_batch=512, sequence=4096, **case)).to_json()
    assert set(document["launch"]) >= LAUNCH
    assert all({"value", "source", "cost_ratio"} <= set(each) for each in document["launch"].values())
    assert (document["launch"]["dispatcher"]["value"] is None) == (case is not MIXTURE)
    assert len(document["humps"]) == humps
    assert sum(each["probability"] for each in document["humps"]) == pytest.approx(1.0)
    assert document["humps"][0]["step_s"] == document["step_s"]
    if humps == 2:
        assert document["humps"][1]["step_s"] == document["stall"]["step_s"]
