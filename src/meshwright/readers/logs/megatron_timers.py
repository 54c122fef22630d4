"""Timers of Megatron, in the three ways in which they are printed: one value, least and most of all ranks, every rank's own."""

from __future__ import annotations

import re

from meshwright.readers.lines import Hit
from meshwright.readers.logs.draft import Draft
from meshwright.readers.logs.parts import outside
from meshwright.readers.pairs import number
from meshwright.units import MILLI

_ONE_LINE = re.compile(r"time \(ms\)(?=\s*\||\s*$)")
_PAIR = re.compile(r"([A-Za-z][\w/\-]{0,80}): ([\d.]{1,20})(?=\s*(?:\||$))")
_ACROSS = re.compile(r"(\(min, max\) time|max time|times) across ranks \(ms\):")
_LEAST_AND_MOST = re.compile(r"([A-Za-z][\w/\- ]{0,80}?) \.{0,80}: \(([\d.]{1,20}), ([\d.]{1,20})\)")
_MOST = re.compile(r"([A-Za-z][\w/\- ]{0,80}?) \.{1,80}: ([\d.]{1,20})\s*$")
_NAME = re.compile(r"^\s*([A-Za-z][\w/\-]{0,80}):\s*$")
_RANK = re.compile(r"^\s*rank\s{1,6}(\d{1,7}): ([\d.]{1,20})\s*$")
MOST_ROWS = 20_000


def take_timers(draft: Draft, hit: Hit) -> bool:
    """Whether the line is one of timers; what it says goes to the open step, or where there is none stands by itself."""
    text = hit.line.text
    one = _ONE_LINE.search(text)
    if one is not None:
        found = [(name, value) for name, value in _PAIR.findall(text[one.end():])]
        _begin(draft, hit.line.number, [name for name, _ in found])
        for name, value in found:
            _keep(draft, name, [value], hit.line.number)
        return True
    across = _ACROSS.search(text)
    if across is None:
        return False
    if across[1] == "times":
        _every_rank(draft, hit)
        return True
    pattern = _LEAST_AND_MOST if across[1].startswith("(") else _MOST
    rows = [(row, hit.line.number) for row in pattern.findall(text[across.end():])]
    if not rows:
        for line in hit.following(MOST_ROWS, lambda line: pattern.search(line.text)):
            rows += [(row, line.number) for row in pattern.findall(line.text)]
    _begin(draft, hit.line.number, [row[0] for row, _ in rows])
    for row, number_ in rows:
        _keep(draft, row[0], row[1:], number_)
    return True


def _every_rank(draft: Draft, hit: Hit) -> None:
    name, values = "", list[str]()
    for line in hit.following(MOST_ROWS, lambda line: _NAME.match(line.text) or _RANK.match(line.text)):
        begins, row = _NAME.match(line.text), _RANK.match(line.text)
        if begins is not None:
            _keep(draft, name, values, hit.line.number)
            name, values = begins[1], []
        elif row is not None:
            values.append(row[2])
    _keep(draft, name, values, hit.line.number)


def _begin(draft: Draft, line: int, names: list[str]) -> None:
    """Without lines of iterations, or where the open step has its timers, such a line is a step of its own."""
    inside = [name for name in names if not outside(name)]
    if inside and draft.state.get("timed", True) and draft.state.get("only_timers", not draft.steps):
        draft.state["only_timers"] = True
        draft.step(len(draft.steps) + 1, line)
        draft.note("Without lines of iterations steps are numbered by their lines of timers.")
    if inside:
        draft.state["timed"] = True


def _keep(draft: Draft, name: str, values: list[str] | tuple[str, ...], line: int) -> None:
    seconds = [value * MILLI for each in values if (value := number(each)) is not None] if name else []
    if seconds:
        draft.timer(name.strip(), min(seconds), max(seconds), line)
