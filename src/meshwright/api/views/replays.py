"""JSON of ``tune --replay``: the document of the contract, and what it comes to in one sentence."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.api.views.estimates import number
from meshwright.words import percent, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.api.replaying import Replay
    from meshwright.measure.tuning.replay import Replayed

    View = Mapping[str, Any]


def replay_view(found: Replay) -> dict[str, Any]:
    """The document: the first seed's run, and each seed's in short."""
    first, cell = found.runs[0], found.cell
    predicted = dict(zip((each.label for each in cell.candidates), np.exp(found.known.log_step), strict=True))
    best = first.best
    view = {
        "cell": cell.id, "cells": list(found.cells), "sampler": found.sampler, "calibration": found.calibration,
        "layouts": len(cell.candidates), "measured": cell.measured, "known_configurations": cell.known,
        "noise_ratio": cell.noise_ratio, **_short(first),
        "best_label": best.label if best else None, "best_id": best.id if best else None,
        "best_step_s": number(best.outcome.step_s if best else None),
        "best_tokens_per_s_per_device": number(best.outcome.tokens_per_s_per_device if best else None),
        "regret_by_trial": list(first.regret_by_trial), "stopped": first.stopped,
        "probability_better": number(found.prospect.probability_better if found.prospect else None),
        "expected_gain_ratio": number(found.prospect.expected_gain_ratio if found.prospect else None),
        "runs": [
            {
                "label": each.label, "id": each.id, "status": each.outcome.status, "predicted_s": float(predicted[each.label]),
                "step_s": number(each.outcome.step_s), "tokens_per_s_per_device": number(each.outcome.tokens_per_s_per_device),
            }
            for each in first.tried
        ],
        "seeds": [{"seed": seed, **_short(each)} for seed, each in enumerate(found.runs)],
    }
    near = [each.trials_to_near for each in found.runs if each.trials_to_near is not None]
    view["trials_to_2_percent_median"] = median(near) if near else None
    return {**view, "verdict": verdict(view)}


def _short(each: Replayed) -> dict[str, Any]:
    return {
        "trials": len(each.tried), "trials_to_2_percent": each.trials_to_near, "stopped_after": len(each.tried),
        "implied_failures_tried": each.implied_failures,
    }


def verdict(view: View) -> str:
    """What was gained, what it cost and what is left, in one sentence."""
    trials = f"{plural(view['trials'], 'trial')} of {view['layouts']} layouts"
    ran = [each for each in view["runs"] if each["status"] == "ok"]
    if not ran:
        return f"{trials}: none ran."
    first = view["runs"][0]
    gained = f"the first choice did not end well ({first['status']})" if first["step_s"] is None else (
        f"{percent(first['step_s'] / view['best_step_s'] - 1.0)} faster than the first choice"
        if view["best_step_s"] < first["step_s"] else "the first choice"
    )
    left = "" if view["probability_better"] is None or not view["stopped"] else (
        f"; {view['stopped']}, worth {percent(view['expected_gain_ratio'])} on average"
    )
    regret = view["regret_by_trial"][-1]
    faster = percent(1.0 / (1.0 - regret) - 1.0) if regret < 1.0 else ""
    truth = f"the fastest recorded one is {faster} faster" if regret > 0.0 else "nothing recorded is faster"
    return f"{trials} found {view['best_label']}, {gained}{left}. In fact {truth}."
