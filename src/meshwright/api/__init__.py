"""The one door: one function per verb, a request value in, an answer value out; and the same on values that are already at hand.

    from meshwright.api import plan, PlanRequest

Names are imported when they are first used: a verb pays for itself alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.api.by_value import (
        balance_layers,
        balance_layout,
        check_files,
        find_plans,
        fix_layout,
        make_case,
        read_files,
    )
    from meshwright.api.verbs.estimate import EstimateAnswer, EstimateRequest, estimate
    from meshwright.api.verbs.plan import PlanAnswer, PlanRequest, plan

VERBS = {
    "estimate": "meshwright.api.verbs.estimate",
    "plan": "meshwright.api.verbs.plan",
}
"""Verb -> the module that has its function, its request and its answer."""
_BY_VALUE = ("balance_layers", "balance_layout", "check_files", "find_plans", "fix_layout", "make_case", "read_files")


def _homes() -> dict[str, str]:
    """Public name -> its module."""
    homes = dict.fromkeys(_BY_VALUE, "meshwright.api.by_value")
    for verb, module in VERBS.items():
        word = "".join(part.capitalize() for part in verb.rstrip("_").split("_"))
        homes |= {verb: module, f"{word}Request": module, f"{word}Answer": module}
    return homes


HOMES = _homes()

__all__ = [
    "EstimateAnswer",
    "EstimateRequest",
    "PlanAnswer",
    "PlanRequest",
    "balance_layers",
    "balance_layout",
    "check_files",
    "estimate",
    "find_plans",
    "fix_layout",
    "make_case",
    "plan",
    "read_files",
]


def __getattr__(name: str) -> object:
    """A public name, imported from its home on first use."""
    if name not in HOMES:
        raise AttributeError(f"module 'meshwright.api' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
