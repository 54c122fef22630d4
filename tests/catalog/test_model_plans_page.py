"""The page of plans (docs/model-plans.md) has a line for every model that holds a published configuration, and its size."""

import re
from pathlib import Path

from benchmarks.plans import mixing, names

from meshwright.catalog import load_model
from meshwright.perf.parameters import total_parameters

PAGE = Path(__file__).parents[2] / "docs" / "model-plans.md"
ROW = re.compile(r"^\| (?P<name>\S+) \| (?P<mixing>[^|]+) \| (?P<size>[\d,.]+) B \| \d+ x 8 \S+ \| (?P<rest>.+) \|$", re.MULTILINE)


def test_every_model_has_its_line() -> None:
    rows = {row["name"]: row for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
    assert set(rows) == set(names())
    assert len(rows) >= 50
    for name, row in rows.items():
        model = load_model(name)
        assert row["size"] == f"{total_parameters(model) / 1e9:,.1f}"
        assert row["mixing"] == mixing(model)


def test_most_models_have_a_plan() -> None:
    lines = [row["rest"] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    assert sum("`tp" in line for line in lines) >= 45
    assert not any("refused" in line for line in lines)
