"""What others wrote is shown so that it does nothing: on the terminal, in a picture, in a table."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

import pytest

from meshwright.errors import Message
from meshwright.report.blocks import Run, Section, Table, line, pieces, table
from meshwright.report.console import show
from meshwright.report.svg import Drawing
from meshwright.text import visible

HOSTILE = "a\x1b]0;title\x07\x1b[31mred\u202eevil\u2028\ud800\x9b2J"


def printed(*parts, terminal=False):
    stream = io.StringIO()
    if terminal:
        stream.isatty = lambda: True
    show(parts, stream, 140)
    return stream.getvalue()


@pytest.mark.parametrize(
    "part",
    [line(HOSTILE), line("b", Run(HOSTILE, bold=True)), pieces(HOSTILE, "b"), Section(title=HOSTILE, blocks=()),
     table((HOSTILE, ""), [(HOSTILE, Run(HOSTILE, "bad"))])],
    ids=["text", "parts", "pieces", "title", "table"],
)
def test_a_terminal_gets_no_character_that_moves_or_turns_it(part):
    text = printed(part)
    assert visible(text, keep="\n") == text
    for mark in (r"\x1b]0;title", r"\x1b[31mred", r"\u202e", r"\u2028", r"\ud800", r"\x9b"):
        assert mark in text.replace("\n", "").replace(" ", "") or isinstance(part, Table)


def test_colours_of_ours_stay(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed(line(Run("\x1b[31mx", "bad", bold=True)))
    assert text.startswith("\x1b[1;31m") and r"\x1b[31mx" in text and text.count("\x1b") == 2


def test_a_message_is_one_line_whatever_it_holds():
    text = str(Message("x", "{a} is wrong", {"a": HOSTILE + "\nerror: all is well"}, "p\nq.yaml"))
    assert text == visible(text)
    assert text.startswith(r"p\nq.yaml: a\x1b]0;title\x07")


def test_a_picture_is_xml_whatever_its_words_are():
    draw = Drawing(width=10, height=10, title=HOSTILE, description=f"</desc><script>{HOSTILE}\ufffe")
    draw.text(0, 0, f"<b>&\"'{HOSTILE}")
    root = ET.fromstring(str(draw).encode())
    assert [each.tag.rpartition("}")[2] for each in root] == ["title", "desc", "rect", "text"]
    assert root[3].text == f"<b>&\"'{visible(HOSTILE)}"
