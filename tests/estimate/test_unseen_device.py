"""How much wider intervals are of a device that no run had: what the regime says of its cell already is not added again."""

import math

import pytest

from meshwright.domain.uncertainty import FitCurve, Scale, Uncertainty
from meshwright.estimate.certainty import unseen_device

KNOWN_CASE = {"framework": "megatron", "cell": "megatron new dense 16-bit"}


def _effect(shifts, seen, features):
    scale = Scale(
        base=0.0, effects={"framework": {"megatron": 0.0, "*": 0.0}}, quantiles={"0.9": 1.0}, shifts=shifts,
        runs={"framework": {"megatron": math.inf}, "cell": {"megatron h100 dense 16-bit": math.inf}},
    )
    known = Uncertainty(
        step=scale, memory=scale, fit=FitCurve(edge=0.0, width=0.1, failures=0.0), ranking_ratio=0.03, seen=seen
    )
    return unseen_device(known, scale, features, 0.85, 1.25)


@pytest.mark.parametrize(("cell", "framework", "family", "wanted"), [
    (0.0, 1.0, 9, 0.85), (0.0, 1.0, 0, 1.25),  # cells say nothing: shares of a framework
    (0.9, 0.1, 9, 0.0), (0.9, 0.1, 0, 0.35),  # cells say 0.9 of it already
    (0.4, 0.6, 9, 0.45), (0.4, 0.6, 0, 0.85),
])
def test_a_device_without_runs_is_as_uncertain_in_all_as_its_share_of_a_framework(cell, framework, family, wanted):
    whole, of_cell = math.exp(2.0 * (cell + framework)) - 1.0, math.exp(2.0 * cell) - 1.0
    shifts = {"cell": of_cell, "framework": whole - of_cell}  # how much wider: variances, so that logs are these
    assert _effect(shifts, {"device": 0, "family": family}, KNOWN_CASE) == pytest.approx(wanted)
    assert _effect(shifts, {"device": 3, "family": 3}, KNOWN_CASE) == 0.0
    assert _effect(shifts, {"device": 0, "family": 3}, {**KNOWN_CASE, "framework": "unheard of"}) == 0.0
