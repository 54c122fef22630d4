"""nanoGPT and the many loops that print as it does: ``iter 1631: loss 4.0863, time 561.94ms, mfu 38.5%``."""

from __future__ import annotations

import re

from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, intervals
from meshwright.readers.pairs import number
from meshwright.units import MILLI

_STEP = re.compile(r"\biter(?:ation)? (\d{1,12}): loss ([-\w.]{1,20}), time ([\d.]{1,20}) ?ms(?:, mfu (-?[\d.]{1,20})%)?")
_LLMC = re.compile(r"\bstep\s{1,10}(\d{1,12})/\d{1,12} \| (?:train )?loss ([\d.naif]{1,20}) .{0,80}\| ([\d.]{1,20}) ms \|")
_TOKENS = re.compile(r"tokens per iteration will be: ([\d,]{1,20})")
_PARAMETERS = re.compile(r"number of parameters: ([\d.]{1,20})M")


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    step = _STEP.search(text) or _LLMC.search(text)
    if step is not None:
        milliseconds, mfu = number(step[3]), number(step[4]) if step.re is _STEP else None
        draft.step(
            int(step[1]), hit.line.number, loss=number(step[2]), step_s=None if milliseconds is None else milliseconds * MILLI,
            mfu_ratio=mfu / 100 if mfu and mfu > 0 else None, averaged=1, tokens=draft.figures.get("tokens_per_step"),
        )
    if (found := _TOKENS.search(text)) is not None:
        draft.figure("tokens_per_step", number(found[1]))
    if (found := _PARAMETERS.search(text)) is not None:
        draft.figure("parameters", (number(found[1]) or 0.0) * 1e6)


DIALECT = Dialect(
    name="nanogpt_log", says="logs of nanoGPT and loops that print as it does", take=_take, finish=intervals,
    tells=re.compile(f"{_STEP.pattern}|{_LLMC.pattern}"), by=(b": loss ", b"loss "),
    seeks=(b": loss ", b"| train loss ", b"tokens per iteration", b"number of parameters"),
)
FORMAT = DIALECT.format
