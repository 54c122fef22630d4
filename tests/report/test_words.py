"""Figures as people read them: what is next to nothing is nought, whichever side of it it is on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from meshwright import units, words
from meshwright.errors import Message

SOURCE = Path(words.__file__).parent
GIB = units.GIB
BY_HAND = {
    words.percent: (-1e-9, "0.0 %"), words.integer: (-0.4, "0"), words.rate: (-0.0, "0"), words.seconds: (-0.0, "0 s"),
    words.tflops: (-0.0, "0 TFLOP/s"), words.gib: (-0.01 * GIB, "0.0 GiB"), units.count: (-0.0, "0"),
}


@pytest.mark.parametrize("say", BY_HAND, ids=lambda say: f"{say.__module__}.{say.__name__}")
def test_next_to_nothing_has_no_sign(say):
    value, said = BY_HAND[say]
    assert say(value) == said
    assert say(-value) == said


def test_what_is_printed_with_its_sign_has_none_where_it_rounds_to_nought():
    """``-0.0 %`` says that something got less: the format's ``z`` takes that sign away."""
    bare = re.compile(r"\{[^{}]+:\+[.,][^{}]*\}")
    found = [f"{path.name}: {each}" for path in SOURCE.rglob("*.py") for each in bare.findall(path.read_text(encoding="utf-8"))]
    assert not found


def test_a_share_has_one_spelling():
    """``11.3 %``: by ``words``, or in a template of a message; no f-string spells it as Python does."""
    assert Message("x", "{share:.1%} of {all}", {"share": 0.113, "all": "50%"}).words == "11.3 % of 50%"
    paths = [*SOURCE.rglob("*.py"), *(SOURCE.parent.parent / "benchmarks").rglob("*.py")]
    texts = (text for path in paths if "%}" in (text := path.read_text(encoding="utf-8")))
    told = (each for text in texts for each in ast.walk(ast.parse(text)))
    figures = [ast.unparse(each) for each in told if isinstance(each, ast.FormattedValue) and each.format_spec is not None]
    assert not [each for each in figures if each.endswith("%}")]
