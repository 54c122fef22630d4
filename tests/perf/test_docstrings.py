"""Every formula says its units and where it comes from."""

import ast
from pathlib import Path

import pytest

import meshwright.perf

ROOT = Path(meshwright.perf.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name not in ("arrays.py", "seconds.py", "values.py", "__init__.py"))
NO_FORMULA = {"nothing", "has_part"}
"""A constant and a question."""


def formulas(path):
    """Public functions of a module that return something and have arguments."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node) or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_public_formula_names_its_source_and_units(path):
    missing = [
        f"{name}: {word}"
        for name, text in formulas(path)
        for word in ("Source:", "Units:")
        if word not in text and name not in NO_FORMULA
    ]
    assert not missing
