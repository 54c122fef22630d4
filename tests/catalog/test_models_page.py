"""The table of models (docs/models.md) says what the catalogue says today."""

import re
from pathlib import Path

from meshwright.catalog import load_model, models
from meshwright.perf.parameters import total_parameters

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
ROW = re.compile(
    r"^\| (?P<name>\S+?)\*? \| (?P<layers>\d+) \| (?P<parameters>[\d,]+) \| [\d.,]+ B \| (?P<built>[\d,]+|no class) \|",
    re.MULTILINE,
)


def test_every_row_has_the_count_of_the_catalogue_and_of_the_class():
    rows = list(ROW.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(rows) > 190
    assert {row["name"] for row in rows} <= set(models())
    for row in rows:
        model = load_model(row["name"])
        counted = f"{int(total_parameters(model)):,}"
        assert (int(row["layers"]), row["parameters"]) == (model.num_layers, counted)
        assert row["built"] in ("no class", counted)
