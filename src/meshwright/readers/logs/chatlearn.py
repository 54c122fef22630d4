"""ChatLearn: a summary of seconds for each episode of reinforcement learning, of which training is one phase among several."""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals
from meshwright.readers.pairs import number

_EPISODE = re.compile(r"iteration (\d{1,12}) time summary|episode.{0,40}?(\d{1,12}) time summary")
_TIMES = re.compile(r"time \(sec\) \|(.{0,8000})")
_PAIR = re.compile(r"([A-Za-z][\w\-/.]{0,80}): ([\d.]{1,20})(?:\(avg: [\d.]{1,20}\))?")
WHOLE = "e2e_cost"


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    if (found := _EPISODE.search(text)) is not None:
        draft.step(int(found[1] or found[2]), hit.line.number, at_s=at_s(text))
        draft.state["open"] = True
    if (times := _TIMES.search(text)) is None:
        return
    if not draft.state.pop("open", False):
        draft.step(len(draft.steps) + 1, hit.line.number, at_s=at_s(text))
    for name, value in _PAIR.findall(times[1]):
        seconds = number(value)
        if seconds is None or draft.open is None:
            continue
        if name == WHOLE:
            draft.step(draft.open, hit.line.number, step_s=seconds)
        else:
            draft.timer(name, seconds, seconds, hit.line.number)


def _finish(draft: Draft) -> None:
    intervals(draft)
    if draft.steps:
        draft.note("A step is an episode of reinforcement learning: rollouts and training.")


DIALECT = Dialect(
    name="chatlearn_log", says="time summaries of ChatLearn", framework="chatlearn", take=_take, finish=_finish,
    tells=re.compile(r"time \(sec\) \| ?[A-Za-z]"), by=(b"time (sec) |",), seeks=(b"time summary", b"time (sec) |"),
)
FORMAT = DIALECT.format
