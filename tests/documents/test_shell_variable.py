"""Where a variable may be set in a script: every place that is tried, the likeliest first."""

from __future__ import annotations

from types import SimpleNamespace as Some

import pytest

from meshwright.documents.shell_variable import _below, _candidates, _with

LINES = ["#!/bin/bash\n", "# comment\n", "\n", "export A=1\n", "  export B='x y'\n", "if true; then\n", "  torchrun x.py\n", "fi\n"]


def document(line, **environment):
    said = {name: Some(text=text, line=at, known=True) for name, (text, at) in environment.items()}
    return Some(launch=Some(command=Some(line=line, environment=said)))


def places(line, name, **environment):
    """What each candidate has that the script has not, with the line in front of it."""
    text, found = "".join(LINES), []
    for each in _candidates(text, document(line, **environment), name, "9"):
        after = each.splitlines(keepends=True)
        changed = next(place for place, one in enumerate(after) if place >= len(LINES) or one != LINES[place])
        found.append((changed, after[changed], len(after) - len(LINES)))
    return found


def test_a_new_variable_is_set_below_the_last_export_before_the_launch_or_below_the_header():
    assert places(7, "C") == [(5, "  export C=9\n", 1), (4, "export C=9\n", 1), (6, "  export C=9\n", 1), (3, "export C=9\n", 1)]


def test_a_variable_that_is_there_is_changed_where_it_stands():
    assert places(7, "A", A=("1", 4))[:2] == [(3, "export A=9\n", 0), (3, "export A=9\n", 0)]
    assert places(7, "B", B=("x y", 5))[:2] == [(4, "  export B='9'\n", 0), (4, "  export B=9\n", 0)]
    assert places(7, "A", A=("1", 99))[0] == (3, "export A=9\n", 0)


def test_a_script_of_a_header_alone_and_one_that_is_empty():
    assert list(_candidates("#!/bin/bash\n", document(9), "C", "9")) == ["#!/bin/bash\nexport C=9\n"]
    assert list(_candidates("", document(1), "C", "9")) == ["export C=9\n"]


def test_an_export_that_goes_on_in_the_next_line_is_not_cut():
    found = list(_candidates("export A=1 \\\n  B=2\nrun\n", document(3), "C", "9"))
    assert all("\\\n  B=2\n" in each for each in found)


@pytest.mark.parametrize(
    ("lines", "index", "text"),
    [
        (["a\n", "b\n"], -1, "x\na\nb\n"),
        (["a\n", "b\n"], 0, "a\nx\nb\n"),
        (["a\n", "b"], 1, "a\nb\nx\n"),
        ([], -1, "x\n"),
        ([], 0, "x\n"),
    ],
)
def test_a_line_below_another(lines, index, text):
    assert _below(lines, index, "x\n") == text
    if 0 <= index < len(lines):
        assert _with(lines, index, "x\n") == "".join(lines[:index]) + "x\n" + "".join(lines[index + 1 :])
