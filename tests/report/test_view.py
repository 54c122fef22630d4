"""JSON has the keys of the contract, in plain types, and nothing that JSON cannot say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from report_samples import case, comparison, estimate, nothing, result

from meshwright.api.views.estimates import comparison_view, estimate_view, layout_view, plain, plan_view, verdict_view
from meshwright.domain.layout import Layout, Overlap

PLAN = ["request", "legal", "evaluated", "bounded", "fitting", "rejected", "search_s", "evaluations_per_s", "plans"]
RANKED = ["rank", "label", "layout", "estimate", "reasons"]
LAYOUT = [
    "tensor_parallel",
    "sequence_parallel",
    "context_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "expert_parallel",
    "expert_tensor_parallel",
    "data_parallel",
    "optimizer_shards",
    "gradient_shards",
    "parameter_shards",
    "microbatch_sequences",
    "num_microbatches",
    "recompute",
    "schedule",
    "stage_layers",
    "offload",
    "overlap",
]
ESTIMATE = [
    "label",
    "layout",
    "fits",
    "calibrated",
    "memory_fit_probability",
    "fit_probability",
    "step_s",
    "tokens_per_s",
    "tokens_per_s_per_device",
    "samples_per_s",
    "model_flops_per_s_per_device",
    "mfu_ratio",
    "hfu_ratio",
    "bubble_ratio",
    "linearity_ratio",
    "memory_peak_bytes",
    "memory_reserved_bytes",
    "memory_upper_bytes",
    "memory_capacity_bytes",
    "host_memory_per_node_bytes",
    "stages",
    "time",
    "interval",
    "calibration",
    "grades",
]
STAGE = ["stage", "layers", "chunk_layers", "parameters", "memory_bytes", "forward_s", "backward_s"]
STAGE_MEMORY = ["parameters", "gradients", "optimizer", "activations", "temporary", "overhead"]
TIME = [
    "compute_s",
    "tensor_parallel_s",
    "context_parallel_s",
    "expert_parallel_s",
    "pipeline_exposed_s",
    "bubble_s",
    "data_parallel_exposed_s",
    "optimizer_s",
    "host_s",
]


def test_plan_has_the_keys_of_the_contract():
    view = plan_view({"model": "llama3-70b", "pin": [("tp", "8")]}, result())
    assert set(PLAN) <= set(view)
    assert all(set(RANKED) <= set(plan) for plan in view["plans"])
    assert view["legal"] == view["evaluated"] + view["bounded"]
    assert view["evaluations_per_s"] == 400_000
    assert view["notes"] == ["2 knobs are pinned"]
    assert json.loads(json.dumps(view, allow_nan=False)) == json.loads(json.dumps(view))


def test_estimate_has_the_keys_of_the_contract():
    view = estimate_view(estimate())
    assert set(ESTIMATE) <= set(view)
    assert set(view["time"]) == set(TIME)
    assert sum(view["time"].values()) == view["step_s"]
    for stage in view["stages"]:
        assert set(stage) == set(STAGE)
        assert list(stage["memory_bytes"]) == STAGE_MEMORY
        assert all(isinstance(value, int) for value in stage["memory_bytes"].values())
    assert all(isinstance(view[key], int) for key in view if key.endswith("_bytes") and key != "host_memory_bytes")
    assert list(view["host_memory_bytes"]) == ["offload", "pinned", "checkpoint", "loader", "other"]
    assert view["interval"] is None
    assert view["fits"] is True


def test_layout_has_the_keys_of_the_contract():
    split = Layout(stage_layers=((3, 2),), pipeline_parallel=2, overlap=Overlap(tensor=True))
    view = layout_view(replace(split, tensor_parallel=2, data_parallel=2, optimizer_shards=2))
    assert set(LAYOUT) <= set(view)
    assert view["recompute"] == "none"
    assert view["stage_layers"] == [[3, 2]]
    assert view["overlap"] == ["grad", "param", "tp", "p2p"]
    assert layout_view(split)["overlap"] == ["p2p"], "nothing else is communicated"


def test_an_infeasible_verdict_says_demand_bound_and_gap():
    view = verdict_view(nothing().verdict)
    assert view["fits"] is False
    [unmet] = view["unmet"]
    assert unmet["demand"] - unmet["bound"] == unmet["gap"] > 0
    assert unmet["levers"]
    assert verdict_view(result().verdict)["fits"] is True


def test_a_comparison_names_the_winner():
    view = comparison_view(comparison())
    assert view["winner"] == result().plans[0].label
    assert (view["rank"], view["better_listed"], view["better"]) == (None, 3, 16)


def test_numpy_and_what_is_not_finite_become_plain():
    view = plain({"a": np.float64(1.5), "b": np.int64(3), "c": float("inf"), "d": np.bool_(True), "e": (1, None)})
    assert json.dumps(view) == '{"a": 1.5, "b": 3, "c": null, "d": true, "e": [1, null]}'
    assert plain(case().batch)["sequence_tokens"] == 8192
