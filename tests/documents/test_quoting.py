"""What is quoted is read back by the language itself as what it was."""

from __future__ import annotations

import csv
import io
import itertools
import shlex
import subprocess
import xml.etree.ElementTree as ET

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from meshwright.documents import quoting
from meshwright.errors import InputError
from meshwright.text import hidden, visible

PIECES = ("a", "'", '"', "$(x)", "`x`", "\\", "}", "{", "${HOME}", "!", "\n", "#", " ", "é", "*", "~", "\x1b", "\u202e", "-", ";")
TEXTS = ["".join(each) for size in (1, 2, 3) for each in itertools.product(PIECES, repeat=size)]
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bash_reads_words_assignments_and_exports_as_they_were(locale):
    """Every combination of three hostile pieces, in one shell."""
    lines = ["show() { printf '%s\\0' \"$1\"; }"]
    for text in TEXTS:
        lines += ["unset X", str(quoting.assignment("X", text)), 'show "$X"', f"show {quoting.word(text)}",
                  str(quoting.export("Y", text)), 'show "$Y"', f"# {quoting.comment(text)}"]
    done = subprocess.run(["bash"], input="\n".join(lines).encode(), capture_output=True, env={"LC_ALL": locale}, check=True)
    assert done.stderr == b""
    assert done.stdout.decode().split("\0")[:-1] == [text for text in TEXTS for _ in range(3)]


def test_what_must_be_given_is_refused_in_its_own_words():
    asked = quoting.assignment("X", "", "the model's `data` $(x)")
    done = subprocess.run(["bash", "-c", str(asked)], capture_output=True, text=True, env={}, check=False)
    assert done.returncode != 0
    assert "the model's `data` $(x)" in done.stderr


@given(texts)
def test_slurm_gets_one_line_and_one_word(text):
    assert shlex.split(quoting.slurm(text)) == [visible(text)]


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6,
))
def test_yaml_reads_what_was_written(value):
    text = f"key: {quoting.flow(value)}\n"
    assert not hidden(text.rstrip("\n"))
    assert yaml.safe_load(text) == {"key": value}
    if isinstance(value, str):
        assert YAML(typ="safe", pure=True).load(text) == {"key": value}


@given(st.dictionaries(texts.filter(bool), st.dictionaries(texts, texts, max_size=2) | texts, max_size=3))
def test_sections_of_yaml_are_read_as_they_were(document):
    assert (yaml.safe_load(quoting.yaml_text(document)) or {}) == document


@given(st.text(max_size=20))
def test_xml_takes_any_text_between_tags_and_in_attributes(text):
    words = quoting.xml(text)
    assert ET.fromstring(f'<a b="{words}">{words}</a>').text in (visible(text), None, _no_xml(text))


def _no_xml(text):
    return visible(text).replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"])
def test_a_cell_of_csv_is_no_formula(text):
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow([quoting.csv_cell(text)])
    (cell,) = next(csv.reader(io.StringIO(stream.getvalue(), newline="")))
    assert cell == f"'{text}"


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_what_no_file_can_hold_is_refused(text):
    with pytest.raises(InputError, match="which no file can hold"):
        quoting.require_text(text, "x.sh")


@pytest.mark.parametrize(("text", "written"), [("a", "a"), ("${x}", r"\${x}"), (r"\${x}", r"\\\${x}"), ("$x{}", "$x{}")])
def test_an_interpolation_is_escaped(text, written):
    """OmegaConf's rule: a backslash before ``${`` makes it text, and two of them are one backslash."""
    assert quoting.interpolated(text) == written
