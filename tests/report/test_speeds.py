"""Slow runs are told with a decimal wherever a speed is printed: 2.4 tokens a second are no 2."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import meshwright as mw
from meshwright.frameworks.manual import predicted
from meshwright.words import rate, speed

SLOW = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 1, "sequence": 1, "framework": "megatron"}
SOURCE = Path(mw.__file__).parent
UNITS = ("tokens/s", "TFLOP/s", "samples/s", "/s/device")


@pytest.mark.parametrize("value", [0.0234, 0.999, 2.41, 9.96])
def test_a_speed_below_ten_keeps_three_figures(value):
    assert float(speed(value)) == pytest.approx(value, rel=5e-3)
    assert rate(value) == speed(value)


def test_a_slow_plan_says_its_speed_in_the_files_and_in_rulings():
    answer = mw.estimate(mw.EstimateRequest(**SLOW, layout="tp8 mb1"))
    found = answer.estimate
    assert found.tokens_per_s_per_device < 10.0, "slow enough"
    assert f"{speed(found.tokens_per_s_per_device)} per device" in dict(predicted(found))["throughput"]


def _whole(text: str) -> list[str]:
    """f-strings that print a speed in whole ones."""
    found = []
    for node in ast.walk(ast.parse(text)) if ".0f}" in text else ():
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, behind in zip(node.values, node.values[1:], strict=False):
            spec = part.format_spec if isinstance(part, ast.FormattedValue) else None
            whole = spec is not None and ast.unparse(spec).endswith(".0f'")
            says = isinstance(behind, ast.Constant) and str(behind.value).lstrip().startswith(UNITS)
            if whole and says:
                found.append(ast.unparse(node))
    return found


def test_no_report_prints_a_speed_in_whole_ones():
    guides = "150 TFLOP/s a device"  # a figure of a guide, which no model makes small
    wrong = [
        f"{path.relative_to(SOURCE)}: {each}"
        for path in SOURCE.rglob("*.py") for each in _whole(path.read_text(encoding="utf-8")) if guides not in each
    ]
    assert not wrong
