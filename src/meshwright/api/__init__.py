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
        html,
        make_case,
        prepare,
        read_files,
        view,
    )
    from meshwright.api.verbs.atlas import AtlasAnswer, AtlasRequest, atlas
    from meshwright.api.verbs.balance import BalanceAnswer, BalanceRequest, balance
    from meshwright.api.verbs.calibrate import CalibrateAnswer, CalibrateRequest, calibrate
    from meshwright.api.verbs.catalog import CatalogAnswer, CatalogRequest, catalog
    from meshwright.api.verbs.check import CheckAnswer, CheckRequest, check
    from meshwright.api.verbs.compare import CompareAnswer, CompareRequest, compare
    from meshwright.api.verbs.diagnose import DiagnoseAnswer, DiagnoseRequest, diagnose
    from meshwright.api.verbs.dryrun import DryrunAnswer, DryrunRequest, dryrun
    from meshwright.api.verbs.episode import EpisodeAnswer, EpisodeRequest, episode
    from meshwright.api.verbs.estimate import EstimateAnswer, EstimateRequest, estimate
    from meshwright.api.verbs.explain import ExplainAnswer, ExplainRequest, explain
    from meshwright.api.verbs.export import ExportAnswer, ExportRequest, export
    from meshwright.api.verbs.fix import FixAnswer, FixRequest, fix
    from meshwright.api.verbs.import_ import ImportAnswer, ImportRequest, import_
    from meshwright.api.verbs.lint import LintAnswer, LintRequest, lint
    from meshwright.api.verbs.pack import PackAnswer, PackRequest, pack
    from meshwright.api.verbs.plan import PlanAnswer, PlanRequest, plan
    from meshwright.api.verbs.profile import ProfileAnswer, ProfileRequest, profile
    from meshwright.api.verbs.rehearse import RehearseAnswer, RehearseRequest, rehearse
    from meshwright.api.verbs.step import StepAnswer, StepRequest, step
    from meshwright.api.verbs.sweep import SweepAnswer, SweepRequest, sweep
    from meshwright.api.verbs.tune import TuneAnswer, TuneRequest, tune
    from meshwright.api.verbs.validate import ValidateAnswer, ValidateRequest, validate

VERBS = (
    "atlas", "balance", "calibrate", "catalog", "check", "compare", "diagnose", "dryrun", "episode", "estimate", "explain",
    "export", "fix", "import_", "lint", "pack", "plan", "profile", "rehearse", "step", "sweep", "tune", "validate",
)
"""Functions of the door; each has a module of its name in ``api.verbs`` with its request and its answer."""
_BY_VALUE = (
    "balance_layers", "balance_layout", "check_files", "find_plans", "fix_layout", "html", "make_case", "prepare", "read_files",
    "view",
)


def _homes() -> dict[str, str]:
    """Public name -> its module."""
    homes = dict.fromkeys(_BY_VALUE, "meshwright.api.by_value")
    for verb in VERBS:
        word, module = verb.rstrip("_").capitalize(), f"meshwright.api.verbs.{verb}"
        homes |= {verb: module, f"{word}Request": module, f"{word}Answer": module}
    return homes


HOMES = _homes()

__all__ = [
    "AtlasAnswer",
    "AtlasRequest",
    "BalanceAnswer",
    "BalanceRequest",
    "CalibrateAnswer",
    "CalibrateRequest",
    "CatalogAnswer",
    "CatalogRequest",
    "CheckAnswer",
    "CheckRequest",
    "CompareAnswer",
    "CompareRequest",
    "DiagnoseAnswer",
    "DiagnoseRequest",
    "DryrunAnswer",
    "DryrunRequest",
    "EpisodeAnswer",
    "EpisodeRequest",
    "EstimateAnswer",
    "EstimateRequest",
    "ExplainAnswer",
    "ExplainRequest",
    "ExportAnswer",
    "ExportRequest",
    "FixAnswer",
    "FixRequest",
    "ImportAnswer",
    "ImportRequest",
    "LintAnswer",
    "LintRequest",
    "PackAnswer",
    "PackRequest",
    "PlanAnswer",
    "PlanRequest",
    "ProfileAnswer",
    "ProfileRequest",
    "RehearseAnswer",
    "RehearseRequest",
    "StepAnswer",
    "StepRequest",
    "SweepAnswer",
    "SweepRequest",
    "TuneAnswer",
    "TuneRequest",
    "ValidateAnswer",
    "ValidateRequest",
    "atlas",
    "balance",
    "balance_layers",
    "balance_layout",
    "calibrate",
    "catalog",
    "check",
    "check_files",
    "compare",
    "diagnose",
    "dryrun",
    "episode",
    "estimate",
    "explain",
    "export",
    "find_plans",
    "fix",
    "fix_layout",
    "html",
    "import_",
    "lint",
    "make_case",
    "pack",
    "plan",
    "prepare",
    "profile",
    "read_files",
    "rehearse",
    "step",
    "sweep",
    "tune",
    "validate",
    "view",
]


def __getattr__(name: str) -> object:
    """A public name, imported from its home on first use."""
    if name not in HOMES:
        raise AttributeError(f"module 'meshwright.api' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
