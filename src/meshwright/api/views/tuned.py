"""JSON of ``tune``: the trials, and in one sentence what was gained, what it cost and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number
from meshwright.api.views.trials import trials_view
from meshwright.words import about, percent, plural, rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.measuring.tuned import Tuned

    View = Mapping[str, Any]


def tuned_view(tuned: Tuned) -> dict[str, Any]:
    """The document of what was run, or would be."""
    view = trials_view(tuned.given, tuned.where, tuned.candidates, tuned.cost, tuned.described, tuned.conducted)
    view |= {
        "sampler": tuned.sampler, "layouts": len(tuned.candidates),
        "probability_better": number(tuned.prospect.probability_better if tuned.prospect else None),
        "expected_gain_ratio": number(tuned.prospect.expected_gain_ratio if tuned.prospect else None),
    }
    if tuned.written:
        view |= {"out": tuned.written, "left_out": dict(tuned.left_out or {})}
    return view if tuned.conducted is None else {**view, "verdict": verdict(view)}


def verdict(view: View) -> str:
    """What was gained, what it cost and what is left, in one sentence: of all trials, those of earlier calls too."""
    hours = about(sum(each["device_hours"] for each in view["trials"]))
    cost = f"{plural(len(view['trials']), 'trial')} of {plural(view['layouts'], 'layout')}, {hours} device-hours"
    best = view["best"]
    if best is None:
        return f"{cost}: none ended with a measured step."
    found = f"{cost}: {best['label']} does {rate(best['tokens_per_s_per_device'])} tokens/s a device, {_gained(view)}"
    if view["probability_better"] is None:
        return f"{found}; {view['sampler']} does not say what is left."
    return (
        f"{found}; another layout is more than 1 % faster with a probability of {percent(view['probability_better'])}, "
        f"and what is left is worth {percent(view['expected_gain_ratio'])} on average."
    )


def _gained(view: View) -> str:
    """The best beside the plan's first choice."""
    first, best = view["planned"][0], view["best"]
    if best["label"] == first["label"]:
        return "and is the plan's first choice"
    tried = next((each for each in view["trials"] if each["label"] == first["label"]), None)
    if tried is not None and tried["status"] == "ok" and tried["step_s"]:
        return f"{percent(tried['step_s'] / best['step_s'] - 1.0)} more than the plan's first choice"
    if tried is not None:
        return f"where the plan's first choice ended with {tried['status']}"
    return "and the plan's first choice was not run"
