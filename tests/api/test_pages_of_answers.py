"""``--html`` and ``mw.html``: refused before anything is computed, the same bytes by every way, the command asks the same."""

from __future__ import annotations

import html as entities
import re
import shlex

import pytest

import meshwright as mw
from meshwright.api.options import FORCE, HTML
from meshwright.errors import InputError
from meshwright.report.page.html import html
from meshwright.report.pages import VERBS, page_of
from meshwright.report.pages.common import command_of

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 128, "sequence": 8192}
LAYOUT = "tp2 mb1 sp zero1"


@pytest.fixture(scope="module")
def answer():
    return mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT))


def test_the_file_the_function_and_the_frame_hold_one_page(answer, tmp_path):
    out = tmp_path / "a.html"
    written = mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT, html=str(out)))
    assert written.page == str(out)
    assert out.read_text(encoding="utf-8") == mw.html(answer)
    frame = answer._repr_html_()
    assert entities.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == mw.html(answer)


def test_an_answer_without_a_page_has_no_frame_and_says_so():
    listed = mw.catalog(mw.CatalogRequest(kind="devices"))
    assert listed._repr_html_() is None
    with pytest.raises(TypeError, match="has no page"):
        mw.html(listed)


def test_a_page_that_exists_is_refused_with_all_other_faults_and_kept(tmp_path):
    out = tmp_path / "a.html"
    out.write_text("mine")
    with pytest.raises(InputError) as refused:
        mw.estimate(mw.EstimateRequest(**CASE, html=str(out)))
    said = str(refused.value)
    assert "exists; --force replaces it" in said and "--layout is missing" in said
    assert out.read_text() == "mine"
    mw.estimate(mw.EstimateRequest(**CASE, layout=LAYOUT, html=str(out), force=True))
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_is_read_is_not_written_over(tmp_path):
    plan = tmp_path / "lengths.txt"
    plan.write_text("100\n200\n300\n")
    with pytest.raises(InputError):
        mw.pack(mw.PackRequest(lengths=str(plan), max_tokens=400, html=str(plan), force=True))
    assert plan.read_text() == "100\n200\n300\n"


def test_every_verb_with_a_page_can_write_it():
    for verb in set(VERBS) - {"atlas"}:  # its --out takes HTML among others
        fields = {field.name: field for field in getattr(mw, f"{verb.capitalize()}Request").FIELDS}
        assert fields["html"] is HTML, verb
        assert fields["force"].kind == "flag", verb
    assert not FORCE.in_file and not HTML.in_file, "where an answer goes is no part of the question"


@pytest.mark.parametrize("words", [
    {**CASE, "layout": LAYOUT},
    {**CASE, "layout": "tp2 mb1", "anchor_memory": ["0=50GiB", "1=40GiB"]},
    {**CASE, "model": "/somewhere/it's $(here)/config.json", "layout": "tp1"},
])
def test_the_command_asks_the_same(words):
    line = command_of(mw.EstimateRequest(**words), "estimate").replace("\\\n", "")
    program, verb, *rest = shlex.split(line)
    assert (program, verb) == ("meshwright", "estimate")
    found: dict[str, list[str]] = {}
    name = "--model"
    for word in rest:
        if word.startswith("--"):
            name = word
        else:
            found.setdefault(name, []).append(word)
    asked = {f"--{key.replace('_', '-')}": [str(each) for each in (value if isinstance(value, list) else [value])]
             for key, value in words.items()}
    assert found == asked


def test_flags_and_pins_are_in_the_command():
    asked = mw.PlanRequest(**CASE, pin={"tp": 8}, weak=True, html="a.html", force=True)
    line = command_of(asked, "plan")
    assert "--pin tp=8" in line and "--weak" in line
    assert "--html" not in line and "--force" not in line


def test_the_page_of_files_with_hostile_names_does_nothing(tmp_path):
    name = "<script>alert(1)</script>]]>.sh".replace("/", "_")
    script = tmp_path / name
    lines = "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2 --no-such-flag '</script><b>\u202e'\n"
    script.write_text(lines, encoding="utf-8")
    checked = mw.check(mw.CheckRequest(files=[str(script)], from_="megatron"))
    text = mw.html(checked)
    assert "\u202e" not in text and "<script>alert" not in text
    assert text.count("<script") == 1
    assert "alert(1)" in text, "it is shown"


def test_a_page_is_the_same_again(answer):
    assert html(page_of(answer)) == html(page_of(answer))
