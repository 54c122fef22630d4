"""The page that DeepSpeed's flops profiler prints of one step."""

from __future__ import annotations

import re

from meshwright.readers.lines import Hit
from meshwright.readers.logs.draft import Draft
from meshwright.readers.pairs import count, key, number
from meshwright.units import FACTORS, GIGA, MEGA, PETA, TERA

MOST_ROWS = 200
_STEP = re.compile(r"Profile Summary at step (\d{1,12})")
_ROW = re.compile(r"^([A-Za-z][^:]{1,80}):\s{1,120}(\S.{0,60})$")
_UNITS = {"TFLOPS": TERA, "GFLOPS": GIGA, "MFLOPS": MEGA, "PFLOPS": PETA}
_END = "Aggregated Profile"


def take_profile(draft: Draft, hit: Hit) -> bool:
    """Whether a page begins at the line; it becomes a step with its parts."""
    if "- DeepSpeed Flops Profiler -" not in hit.line.text:
        return False
    rows: dict[str, str] = {}
    step = 1
    for line in hit.following(MOST_ROWS):
        if _END in line.text:
            break
        if (found := _STEP.search(line.text)) is not None:
            step = int(found[1])
        elif (row := _ROW.match(line.text.strip())) is not None:
            rows.setdefault(key(row[1].split("=")[0].split("(")[0]), row[2])
    if not rows:
        return True
    world, batch = number(rows.get("data parallel size")), number(rows.get("batch size per gpu"))
    draft.world = draft.world or (int(found_world) if (found_world := number(rows.get("world size"))) else None)
    draft.figure("parameters", count(rows.get("params of model") or rows.get("params per gpu")))
    draft.figure("samples_per_s", number(rows.get("samples/second")))
    draft.step(step, hit.line.number, step_s=_seconds(rows.get("iter latency")),
               sequences=batch * world if batch and world else None,
               model_flops_per_s_per_device=_rate(rows.get("fwd bwd flops per gpu")))
    for name in ("fwd", "bwd", "step"):
        seconds = _seconds(rows.get(f"{name} latency"))
        if seconds is not None:
            draft.timer(name, seconds, seconds, hit.line.number)
    return True


def _seconds(text: str | None) -> float | None:
    value = number(text)
    if value is None or text is None:
        return None
    unit = text.split()[-1]
    return value * FACTORS[unit] if unit in ("s", "ms", "us") else None


def _rate(text: str | None) -> float | None:
    value = number(text)
    if value is None or text is None:
        return None
    return value * _UNITS.get(text.split()[-1], 1.0)
