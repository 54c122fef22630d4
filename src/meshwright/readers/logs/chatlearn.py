"""ChatLearn: summaries of seconds for each episode of reinforcement learning, one of each model and one of the whole.

``[policy] time (sec) | e2e_cost: ..`` is what a model took of the episode, ``episode: ..`` the episode; a summary without a model
has the whole in ``e2e_cost``. Timers are named by model and function; their mean says how often the function was called.
"""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft
from meshwright.readers.pairs import number

_EPISODE = re.compile(r"iteration (\d{1,12}) time (?:summary|\(sec\))|episode.{0,40}?(\d{1,12}) time summary")
_TIMES = re.compile(r"(?:\[(\w{1,60})\] )?time \(sec\) \|(.{0,8000})")
_PAIR = re.compile(r"([A-Za-z][\w\-/.]{0,80}): ([\d.]{1,20})(?:\(avg: ([\d.]{1,20})\))?")
WHOLE, OF_ALL = "e2e_cost", "episode"
LEAST_S = 0.1
"""Means are printed with two decimals: of a shorter one they do not say how often it was called."""
_UPDATES = re.compile(r"(policy_trainer|ppo_policy)_train_step")


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.whole
    if (found := _EPISODE.search(text)) is not None:
        draft.step(int(found[1] or found[2]), hit.line.number, at_s=at_s(text))
        draft.state["open"] = True
    if (times := _TIMES.search(text)) is None:
        return
    model = times[1]
    if not draft.state.pop("open", False) and model is None:
        draft.step(len(draft.steps) + 1, hit.line.number, at_s=at_s(text))
    for name, value, mean in _PAIR.findall(times[2]):
        seconds, each = number(value), number(mean)
        if seconds is None or draft.open is None:
            continue
        if (name == WHOLE and model is None) or name == OF_ALL:
            draft.step(draft.open, hit.line.number, step_s=seconds)
            continue
        draft.timer(model if name == WHOLE else name, seconds, seconds, hit.line.number)
        if _UPDATES.fullmatch(name) is not None and each is not None and each >= LEAST_S:
            draft.step(draft.open, hit.line.number, optimizer_steps=seconds / each)


def _finish(draft: Draft) -> None:
    if draft.steps:
        draft.note("A step is an episode of reinforcement learning: rollouts and training.")


DIALECT = Dialect(
    name="chatlearn_log", says="time summaries of ChatLearn", framework="chatlearn", take=_take, finish=_finish,
    tells=re.compile(r"time \(sec\) \| ?[A-Za-z]"), by=(b"time (sec) |",), seeks=(b"time summary", b"time (sec) |"),
)
FORMAT = DIALECT.format
