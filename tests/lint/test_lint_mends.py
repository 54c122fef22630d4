"""``--fix``: once is enough, and everything else keeps its bytes; on real files with findings put between their statements."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.lint.rule import rules
from meshwright.lint.run import Wanted, findings_of, mended_text

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "meshwright" / "engine").glob("*.py"))[:20]
MENDED = [rule for rule in rules().values() if rule.fix and rule.looks_at == "Python" and rule.default]
SCRIPTS = [rule for rule in rules().values() if rule.fix and rule.looks_at == "environment"]


@cache
def seams(path):
    """The text of a real file, and the lines in front of which a statement of its own may stand."""
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    return text.split("\n"), [each.lineno - 1 for each in body[2:] if not getattr(each, "decorator_list", ())]


def checked(text, name, wanted):
    """What the text is once mended; only lines of findings that can be mended may differ."""
    fixable = {each.line for each in findings_of(text, name, wanted) if each.edits}
    after = mended_text(text, name, wanted)
    assert mended_text(after, name, wanted) == after, "once is enough"
    assert not any(each.edits for each in findings_of(after, name, wanted))
    before_lines, after_lines = (re.split(r"(?<=\n)", each) for each in (text, after))
    assert len(before_lines) == len(after_lines)
    assert {
        number for number, pair in enumerate(zip(before_lines, after_lines, strict=True), start=1) if pair[0] != pair[1]
    } == fixable
    return after, fixable


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_real_file_keeps_every_other_byte(data):
    lines, places = seams(data.draw(st.sampled_from(SOURCES)))
    lines = list(lines)
    chosen = data.draw(st.lists(st.tuples(st.sampled_from(places or [0]), st.sampled_from(MENDED)), min_size=1, max_size=4))
    for place, rule in sorted(chosen, key=lambda each: -each[0]):
        lines[place:place] = rule.bad.rstrip("\n").split("\n")
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    after, fixable = checked(end.join(lines), "train.py", Wanted())
    assert fixable
    ast.parse(after)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=5, unique_by=lambda rule: rule.id), st.text("äöü #x", max_size=6))
def test_a_script_keeps_every_other_byte(chosen, words):
    head = f"#!/bin/bash\n# {words}\nset -e\n" + "".join(rule.bad.split("\n")[0] + f"  # {words}\n" for rule in chosen)
    _, fixable = checked(head + "torchrun --nnodes 2 train.py --lr 1\n", "run.sh", Wanted())
    assert len(fixable) == len(chosen)


def test_a_configuration_keeps_its_comments():
    text = "# mine\ncontext:\n  mode: 0  # graph\n  save_graphs: true  # look\nprofile: true\n"
    after, _ = checked(text, "run.yaml", Wanted())
    assert after == text.replace("save_graphs: true", "save_graphs: false").replace("profile: true", "profile: false")


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("x = torch.zeros(9).contiguous()", "x = torch.zeros(9)"),
        ("x = y.contiguous().contiguous().contiguous()", "x = y.contiguous()"),
        ("x = ('ä', loss.clone().detach())", "x = ('ä', loss.detach().clone())"),
        ("x = torch.tensor(np.zeros(9))", "x = torch.from_numpy(np.zeros(9))"),
        ("x = torch.tensor(np.asarray(y))", "x = torch.tensor(np.asarray(y))"),
        ("x = torch.tensor(np.zeros(9, dtype=t))", "x = torch.tensor(np.zeros(9, dtype=t))"),
        ("os.environ['NCCL_DEBUG'] = 'INFO'", "os.environ['NCCL_DEBUG'] = \"WARN\""),
    ],
)
def test_what_is_written(bad, good):
    head = "import os\nimport numpy as np\nimport torch\n"
    assert mended_text(head + bad + "\n", "train.py", Wanted()) == head + good + "\n"


def test_a_literal_that_feeds_several_variables_is_left_alone():
    text = 'V=1\nexport NVTE_DEBUG="$V" TORCH_COMPILE_DEBUG="$V"\npython train.py --lr 1\n'
    assert mended_text(text, "run.sh", Wanted()) == text
