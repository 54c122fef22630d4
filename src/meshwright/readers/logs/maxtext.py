"""MaxText: a line a step, with its seconds and the rates of one device; ``total_weights`` are the tokens of all devices."""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals, world_by_rates
from meshwright.readers.pairs import key, number
from meshwright.units import GIGA, TERA

_STEP = re.compile(r"completed step: (\d{1,12}), seconds: ([\d.]{1,20})(.{0,2000})")
_PARAMETERS = re.compile(r"number parameters: ([\d.]{1,20}) billion")


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    if (found := _PARAMETERS.search(text)) is not None:
        draft.figure("parameters", (number(found[1]) or 0.0) * GIGA)
    step = _STEP.search(text)
    if step is None:
        return
    fields = {key(name): value for name, _, value in (each.partition(":") for each in step[3].split(","))}
    flops = number(fields.get("tflop/s/device"))
    draft.step(
        int(step[1]), hit.line.number, at_s=at_s(text), step_s=number(step[2]), loss=number(fields.get("loss")),
        tokens=number(fields.get("total weights")), tokens_per_s_per_device=number(fields.get("tokens/s/device")),
        model_flops_per_s_per_device=None if flops is None else flops * TERA,
    )


def _finish(draft: Draft) -> None:
    intervals(draft)
    world_by_rates(draft)


DIALECT = Dialect(
    name="maxtext_log", says="logs of MaxText", framework="maxtext", take=_take, finish=_finish, tells=_STEP,
    by=(b"completed step: ",), seeks=(b"completed step: ", b"number parameters: "),
)
FORMAT = DIALECT.format
