"""A diagnosis of round figures, as ``diagnose --json`` has it with steps and ranks beside it."""

from __future__ import annotations

from typing import Any


def part(observed_s: float | None, predicted_s: float, interval: list[float] | None = None) -> dict[str, Any]:
    return {"observed_s": observed_s, "predicted_s": predicted_s, "interval": interval}


def finding(**changed: Any) -> dict[str, Any]:
    return {
        "id": "pipeline.bubble", "severity": "warning", "message": "the pipeline fills and drains for 20.0 % of the step",
        "evidence": [{"text": "timer forward-recv: 100 ms of 1.00 s", "file": "run.log", "line": 21}], "loss_ratio": 0.2,
        "predicted_gain_ratio": 0.1, "gain_is_bound": False, "change": "tp2 pp2", "remedy": ["fewer stages"],
    } | changed


def view_of(**changed: Any) -> dict[str, Any]:
    """Eight steps of 1 s, a first one of 5 s and one spike; four ranks of which the last is slow."""
    steps = [{"number": 1, "step_s": 5.0, "kind": "left out"}]
    steps += [{"number": number, "step_s": 1.0, "kind": "steady"} for number in range(2, 9)]
    steps += [{"number": 9, "step_s": 1.8, "kind": "spike"}]
    return {
        "verdict": "slow", "label": "tp2 pp4 dp1 mb1",
        "observed": {"step_s": 1.0, "tokens_per_s_per_device": 2048.0, "mfu_ratio": 0.25, "devices": 8, "memory_bytes": None,
                     "steady": 7, "iterations": 9, "step_low_s": 0.98, "step_high_s": 1.02, "tflops_per_device": None},
        "model": "opt-6.7b", "dropped": 1, "bandwidths": [], "guides": [
            {"rule": "003:103", "says": "communication at most 20 % of the step", "source": "003:103", "bound_ratio": 0.2,
             "observed_ratio": 0.25, "holds": False},
        ],
        "expected": {"step": part(1.0, 0.8, [0.7, 0.9]), "compute": part(0.5, 0.45), "tp": part(None, 0.05, [0.04, 0.06]),
                     "bubble": part(0.2, 0.1), "cp": part(None, 0.0)},
        "split": {"step_s": 1.0, "about": "the timers of run.log", "communication_exposed": {},
                  "compute_ratio": 0.5, "communication_exposed_ratio": None, "waiting_ratio": 0.0,
                  "bubble_ratio": 0.2, "data_ratio": 0.1, "host_ratio": None, "idle_ratio": None, "other_ratio": 0.2},
        "phases": None,
        "findings": [finding(), finding(id="data.loading", severity="advice", gain_is_bound=True, change=None)],
        "notes": ["A note."], "steps": steps,
        "read": [{"file": "run.log", "formats": ["megatron"]}], "left": [],
        "ranks": [{"rank": rank, "compute_s": 0.4 + 0.1 * (rank == 3), "window_s": 1.0} for rank in range(4)],
    } | changed


PHASES = {
    "about": "the timers of run.log", "step_s": 10.0, "other_s": 0.5, "actor_mfu_ratio": 0.3, "optimizer_steps": 4,
    "optimizer_step_tokens": None, "response_mean_tokens": 300.0, "response_most_tokens": 1200.0, "host_bytes": None, "phases": [
        {"phase": "generation", "time_s": 6.0, "ratio": 0.6, "timers": {"gen": 6.0}},
        {"phase": "reference_log_probs", "time_s": 1.5, "ratio": 0.15, "timers": {"ref": 1.5}},
        {"phase": "actor", "time_s": 2.0, "ratio": 0.2, "timers": {"update_actor": 2.0}},
    ],
}
"""A step of reinforcement learning."""
