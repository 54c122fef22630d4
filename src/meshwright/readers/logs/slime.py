"""slime: dictionaries of metrics, of a rollout by the process that generates, of its training by the one that trains.

A step is what the trainer waits and what it trains::

    step = train_wait + train;   train_wait holds generation, transfers and switching, train the passes and the update

Where generation goes on beside training it takes of the step what the trainer waits for it.
"""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft
from meshwright.readers.pairs import number

_PERF = re.compile(r"\bperf (\d{1,12}): \{(.{0,20000})")
_TRAINED = re.compile(r"(?<![\w-])step (\d{1,12}): \{(.{0,20000})")
_METRIC = re.compile(r"'([A-Za-z][\w/@.\-]{0,120})': (?:np\.\w{1,12}\()?([-+.\w]{1,40})")
_TIMER = re.compile(r"perf/(\w+)_time")
_BESIDE = ("update_weights", "sleep", "wake_up", "data_preprocess", "save_model")
"""What else the trainer waits for."""


def _take(draft: Draft, hit: Hit) -> None:
    text, line = hit.whole, hit.line.number
    if (trained := _TRAINED.search(text)) is not None:
        said = _said(trained[2])
        draft.state.setdefault("trained", set()).add(int(trained[1]))
        draft.state.update(loss=said.get("train/loss"), sequences=said.get("train/global_batch_size"))
    if (perf := _PERF.search(text)) is None:
        return
    said, step = _said(perf[2]), int(perf[1])
    timers = {found[1]: value for name, value in said.items() if (found := _TIMER.fullmatch(name)) is not None}
    whole = timers.pop("step", None)
    rate, update_s = said.get("perf/actor_train_tok_per_s"), timers.get("actor_train")
    updates = len(draft.state.pop("trained", ())) if whole is not None else 0
    draft.step(
        step, line, at_s=at_s(text), step_s=whole, tokens=rate * update_s if rate and update_s else None,
        optimizer_steps=updates or None, loss=draft.state.pop("loss", None) if updates else None,
        response_mean_tokens=said.get("rollout/response_len/mean"), response_most_tokens=said.get("rollout/response_len/max"),
    )
    for name, seconds in timers.items():
        draft.timer(name, seconds, seconds, line)


def _said(text: str) -> dict[str, float]:
    return {name: found for name, value in _METRIC.findall(text) if (found := number(value)) is not None}


def _finish(draft: Draft) -> None:
    for said in draft.steps.values():
        parts = said["parts"]
        if "step_s" not in said and {"train_wait", "train"} <= set(parts):
            said["step_s"] = parts["train_wait"] + parts["train"]
    if any("step_s" in said for said in draft.steps.values()):
        draft.steps = {step: said for step, said in draft.steps.items() if "step_s" in said}
    for said in draft.steps.values():
        parts = said["parts"]
        if "step_s" not in said:  # of the process that generates alone: nobody knows the step
            parts.clear()
            said["least"].clear()
        waited = parts.get("train_wait")
        if waited is None or "rollout" not in parts:
            continue
        most = max(0.0, waited - sum(parts.get(name, 0.0) for name in _BESIDE))
        if parts["rollout"] > most:
            parts["rollout"] = said["least"]["rollout"] = most
            draft.note("Generation goes on beside training: what is shown of it is what training waits for.")


DIALECT = Dialect(
    name="slime_log", says="logs of slime", framework="slime", take=_take, finish=_finish,
    tells=re.compile(r"\bperf \d{1,12}: \{.{0,20000}'perf/(rollout|train_wait)_time'"),
    by=(b"'perf/rollout_time'", b"'perf/train_wait_time'"),
    seeks=(b"'perf/rollout_time'", b"'perf/train_wait_time'", b"'train/step'"),
)
FORMAT = DIALECT.format
