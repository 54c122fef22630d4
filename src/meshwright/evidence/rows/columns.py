"""Columns of ``measured_runs.csv`` and what a cell of each may hold; a cell that holds anything else names the fault."""

from __future__ import annotations

import re
from math import isfinite

from meshwright.readers.names import name_fault
from meshwright.text import quoted

REQUIRED = ("id", "framework", "model", "gpu", "n_gpus", "seq", "gbs", "tp", "pp")
"""A file without one of these columns describes no runs."""
WORDS = (
    "id", "source", "status", "task", "framework", "framework_version", "model", "attention", "gpu", "precision", "zero",
    "recompute", "mem_kind", "flops_convention", "extra_settings", "flag", "notes",
)
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "mbs")
"""Whole numbers; one below 1 is not misread but impossible."""
COUNTS = (
    "n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden", "vocab", "n_experts", "top_k", "moe_ffn_hidden", "n_gpus",
    "gpus_per_node", "seq", "gbs",
)
"""Whole numbers from 1."""
COUNTS_OR_NONE = ("n_shared_experts", "n_dense_layers")
"""Whole numbers from 0; -1 is how MindSpeed says none or leaves it to a later flag."""
SWITCHES = ("gated_mlp", "sp")
RATES = ("n_params_B", "head_dim", "tokens_per_s_per_gpu", "step_time_s", "samples_per_s", "tflops_per_gpu", "mem_gb")
"""Numbers above 0; a head's width is rounded where a source divides."""
RATIOS = ("mfu",)
RESULTS = ("tokens_per_s_per_gpu", "step_time_s", "samples_per_s", "tflops_per_gpu", "mfu", "mem_gb")
"""What a run measured; blank in a row that is to be predicted only."""
SCHEMA = (*WORDS, *DEGREES, *COUNTS, *COUNTS_OR_NONE, *SWITCHES, *RATES, *RATIOS)

STATUSES = ("ok", "failed", "")
TASKS = ("pretrain", "sft", "lora")
ZEROS = ("", "0", "1", "2", "3", "fsdp", "hsdp")
MAX_WHOLE = 10**9
MAX_OF = {"n_layers": 10_000, "n_experts": 100_000}
"""Smaller bounds: of what a list is made from."""
MAX_NUMBER = 1e12
SHOWN = 30
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def cell_fault(column: str, cell: str) -> str:
    """What is wrong with a cell that is not blank; the empty string where nothing is."""
    if column in WORDS:
        return _word_fault(column, cell)
    number = _number(cell)
    if number is None:
        return f"{column}: {shown(cell)} is not a number{_hint(cell)}"
    if abs(number) > MAX_NUMBER:
        return f"{column}: {shown(cell)} is too large"
    if column in RATES and number <= 0:
        return f"{column}: {shown(cell)} is not above 0"
    if column in RATIOS and not 0 <= number <= 1:
        return f"{column}: {shown(cell)} is not a ratio of 0 to 1"
    if column in RATES + RATIOS:
        return ""
    if number != int(number) or abs(number) > MAX_WHOLE:
        return f"{column}: {shown(cell)} is not a whole number" + ("" if abs(number) <= MAX_WHOLE else f" up to {MAX_WHOLE}")
    if number > MAX_OF.get(column, MAX_WHOLE):
        return f"{column}: {shown(cell)} is more than {MAX_OF[column]}"
    if column in SWITCHES and number not in (0, 1):
        return f"{column}: {shown(cell)} is neither 0 nor 1"
    if column in COUNTS_OR_NONE and number < -1:
        return f"{column}: {shown(cell)} is below 0"
    if column in COUNTS and number < 1:
        return f"{column}: {shown(cell)} is below 1"
    return ""


def shown(cell: str) -> str:
    """A cell as a message quotes it: short, and visible."""
    return quoted(cell, SHOWN)


def _word_fault(column: str, cell: str) -> str:
    known = {"status": STATUSES, "task": TASKS, "zero": ZEROS}.get(column)
    if known is not None and cell not in known:
        return f"{column}: {shown(cell)} is none of {', '.join(each for each in known if each)}"
    wrong = name_fault(cell, "")
    return f"{column}: {wrong}" if wrong else ""


def _number(cell: str) -> float | None:
    """A finite decimal number, or None: no separators, no units, no nan."""
    if not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return value if isfinite(value) else None


def _hint(cell: str) -> str:
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", cell):
        return " (no thousands separators)"
    if re.fullmatch(r"[+-]?\d+,\d+", cell):
        return " (a decimal point is wanted)"
    if re.fullmatch(r"[+-]?\.?\d[\d.eE+-]*\s*[A-Za-z%/]+.*", cell):
        return " (no unit: it stands in the column's name)"
    return ""
