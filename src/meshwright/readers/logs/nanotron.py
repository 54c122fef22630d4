"""nanotron: pairs with figures of three digits and a suffix, in two spellings."""

from __future__ import annotations

import re

from meshwright.readers.clock import at_s
from meshwright.readers.lines import Hit
from meshwright.readers.logs.dialect import Dialect
from meshwright.readers.logs.draft import Draft, by_clock, intervals, sequence_by_rates
from meshwright.readers.pairs import count, first, pairs
from meshwright.units import MIB, MILLI, TERA

_ITERATION = re.compile(r"\biteration: ([\d.]{1,12}[KMBGT]?) / ([\d.]{1,12}[KMBGT]?) \|")
_DEGREES = re.compile(r"\|(DP|PP|TP|CP|EXP)=(\d{1,7})")
_PARAMETERS = re.compile(r"Total number of parameters: ([\d.]{1,12}[KMBGT]?)\b")


def _take(draft: Draft, hit: Hit) -> None:
    text = hit.line.text
    if (found := _PARAMETERS.search(text)) is not None:
        draft.figure("parameters", count(found[1]))
    at = _ITERATION.search(text)
    if at is None:
        return
    fields = pairs(text[at.end():])
    newer = "time per iteration ms" in fields
    elapsed_ms = count(first(fields, "elapsed time per iteration ms", "time per iteration ms"))
    step_s = elapsed_ms * MILLI if elapsed_ms else None
    rate, own = count(first(fields, "tokens per sec")), count(first(fields, "tokens per sec per gpu"))
    batch, flops = count(fields.get("global batch size")), count(fields.get("model tflops per gpu"))
    hardware, memory = count(fields.get("hardware tflops per gpu")), count(fields.get("cuda max memory reserved"))
    if rate and own and round(rate / own) >= 1:
        draft.world = draft.world or round(rate / own)
    draft.step(
        int(count(at[1]) or 0), hit.line.number, at_s=at_s(text), step_s=step_s, tokens_per_s_per_device=own,
        sequences=None if newer else batch, tokens=batch if newer else rate * step_s if rate and step_s else None,
        model_flops_per_s_per_device=None if flops is None else flops * TERA,
        hardware_flops_per_s_per_device=None if hardware is None else hardware * TERA, loss=count(fields.get("lm loss")),
        memory_bytes=None if memory is None else memory * MIB,
    )


def _finish(draft: Draft) -> None:
    intervals(draft)
    by_clock(draft)
    sequence_by_rates(draft, tolerance=0.01)
    if draft.steps:
        draft.note("Figures of this log have three digits.")


DIALECT = Dialect(
    name="nanotron_log", says="logs of nanotron", framework="nanotron", take=_take, finish=_finish,
    tells=re.compile(_ITERATION.pattern + r".{0,80}consumed_tokens:"), by=(b"consumed_tokens: ",),
    seeks=(b"| consumed_tokens: ", b"Total number of parameters: "),
)
FORMAT = DIALECT.format
