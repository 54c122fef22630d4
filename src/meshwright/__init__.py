"""Meshwright: the fastest training configuration for a large model on a given cluster.

    import meshwright as mw

    cluster = mw.cluster_for("h100-sxm", nodes=64)
    case = mw.make_case("llama3-70b", cluster, global_batch_sequences=1024, sequence_tokens=8192)
    result = mw.find_plans(case)
    print(result.plans[0].label, result.plans[0].estimate.step_s)

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # ``typing`` takes longer than all else here, and so long the command line hears no interrupt
if TYPE_CHECKING:
    from meshwright.api import (
        AtlasAnswer,
        AtlasRequest,
        BalanceAnswer,
        BalanceRequest,
        CalibrateAnswer,
        CalibrateRequest,
        CatalogAnswer,
        CatalogRequest,
        CheckAnswer,
        CheckRequest,
        CompareAnswer,
        CompareRequest,
        DiagnoseAnswer,
        DiagnoseRequest,
        DryrunAnswer,
        DryrunRequest,
        EpisodeAnswer,
        EpisodeRequest,
        EstimateAnswer,
        EstimateRequest,
        ExplainAnswer,
        ExplainRequest,
        ExportAnswer,
        ExportRequest,
        FixAnswer,
        FixRequest,
        ImportAnswer,
        ImportRequest,
        LintAnswer,
        LintRequest,
        PackAnswer,
        PackRequest,
        PlanAnswer,
        PlanRequest,
        ProfileAnswer,
        ProfileRequest,
        RehearseAnswer,
        RehearseRequest,
        StepAnswer,
        StepRequest,
        SweepAnswer,
        SweepRequest,
        TuneAnswer,
        TuneRequest,
        ValidateAnswer,
        ValidateRequest,
        atlas,
        balance,
        balance_layers,
        balance_layout,
        calibrate,
        catalog,
        check,
        check_files,
        compare,
        diagnose,
        dryrun,
        episode,
        estimate,
        explain,
        export,
        find_plans,
        fix,
        fix_layout,
        html,
        import_,
        lint,
        make_case,
        pack,
        plan,
        prepare,
        profile,
        read_files,
        rehearse,
        step,
        sweep,
        tune,
        validate,
        view,
    )
    from meshwright.catalog import (
        calibration,
        cluster_for,
        clusters,
        device,
        devices,
        implementation,
        implementations,
        load_cluster,
        load_model,
        models,
        optimizer,
        precision,
    )
    from meshwright.domain.balance import Balance, BalanceProblem, Body, End, Overfull, Placement
    from meshwright.domain.case import Case
    from meshwright.domain.cluster import Cluster, Device, Link
    from meshwright.domain.estimate import Estimate, Fits, Infeasible
    from meshwright.domain.label import label, parse_layout
    from meshwright.domain.layout import Full, Layout, NoRecompute, Overlap, Selective
    from meshwright.domain.model import Model
    from meshwright.domain.training import Batch, Lora, Training
    from meshwright.errors import InputError, MeshwrightError, NoAnswerError
    from meshwright.frameworks import framework
    from meshwright.search import PlanResult, RankedPlan, SearchOptions, min_devices, run_cost
    from meshwright.version import __version__ as __version__

_HOMES = {
    "meshwright.api": (
        "atlas", "balance", "calibrate", "catalog", "check", "compare", "diagnose", "dryrun", "episode", "estimate", "explain",
        "export", "fix", "import_", "lint", "pack", "plan", "profile", "rehearse", "step", "sweep", "tune", "validate",
        *(f"{verb}{kind}" for kind in ("Request", "Answer") for verb in (
            "Atlas", "Balance", "Calibrate", "Catalog", "Check", "Compare", "Diagnose", "Dryrun", "Episode", "Estimate", "Explain",
            "Export", "Fix", "Import", "Lint", "Pack", "Plan", "Profile", "Rehearse", "Step", "Sweep", "Tune", "Validate",
        )),
        "balance_layers", "balance_layout", "check_files", "find_plans", "fix_layout", "html", "make_case", "prepare",
        "read_files", "view",
    ),
    "meshwright.catalog": (
        "calibration", "cluster_for", "clusters", "device", "devices", "implementation", "implementations", "load_cluster",
        "load_model", "models", "optimizer", "precision",
    ),
    "meshwright.domain.balance": ("Balance", "BalanceProblem", "Body", "End", "Overfull", "Placement"),
    "meshwright.domain.case": ("Case",),
    "meshwright.domain.cluster": ("Cluster", "Device", "Link"),
    "meshwright.domain.estimate": ("Estimate", "Fits", "Infeasible"),
    "meshwright.domain.label": ("label", "parse_layout"),
    "meshwright.domain.layout": ("Full", "Layout", "Mixed", "NoRecompute", "Overlap", "Selective"),
    "meshwright.domain.model": ("Model",),
    "meshwright.domain.training": ("Batch", "Lora", "Training"),
    "meshwright.errors": ("InputError", "MeshwrightError", "NoAnswerError"),
    "meshwright.frameworks": ("framework",),
    "meshwright.version": ("__version__",),
    "meshwright.search": ("PlanResult", "RankedPlan", "SearchOptions", "min_devices", "run_cost"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AtlasAnswer",
    "AtlasRequest",
    "Balance",
    "BalanceAnswer",
    "BalanceProblem",
    "BalanceRequest",
    "Batch",
    "Body",
    "CalibrateAnswer",
    "CalibrateRequest",
    "Case",
    "CatalogAnswer",
    "CatalogRequest",
    "CheckAnswer",
    "CheckRequest",
    "Cluster",
    "CompareAnswer",
    "CompareRequest",
    "Device",
    "DiagnoseAnswer",
    "DiagnoseRequest",
    "DryrunAnswer",
    "DryrunRequest",
    "End",
    "EpisodeAnswer",
    "EpisodeRequest",
    "Estimate",
    "EstimateAnswer",
    "EstimateRequest",
    "ExplainAnswer",
    "ExplainRequest",
    "ExportAnswer",
    "ExportRequest",
    "Fits",
    "FixAnswer",
    "FixRequest",
    "Full",
    "ImportAnswer",
    "ImportRequest",
    "Infeasible",
    "InputError",
    "Layout",
    "Link",
    "LintAnswer",
    "LintRequest",
    "Lora",
    "MeshwrightError",
    "Mixed",
    "Model",
    "NoAnswerError",
    "NoRecompute",
    "Overfull",
    "Overlap",
    "PackAnswer",
    "PackRequest",
    "Placement",
    "PlanAnswer",
    "PlanRequest",
    "PlanResult",
    "ProfileAnswer",
    "ProfileRequest",
    "RankedPlan",
    "RehearseAnswer",
    "RehearseRequest",
    "SearchOptions",
    "Selective",
    "StepAnswer",
    "StepRequest",
    "SweepAnswer",
    "SweepRequest",
    "Training",
    "TuneAnswer",
    "TuneRequest",
    "ValidateAnswer",
    "ValidateRequest",
    "atlas",
    "balance",
    "balance_layers",
    "balance_layout",
    "calibrate",
    "calibration",
    "catalog",
    "check",
    "check_files",
    "cluster_for",
    "clusters",
    "compare",
    "device",
    "devices",
    "diagnose",
    "dryrun",
    "episode",
    "estimate",
    "explain",
    "export",
    "find_plans",
    "fix",
    "fix_layout",
    "framework",
    "html",
    "implementation",
    "implementations",
    "import_",
    "label",
    "lint",
    "load_cluster",
    "load_model",
    "make_case",
    "min_devices",
    "models",
    "optimizer",
    "pack",
    "parse_layout",
    "plan",
    "precision",
    "prepare",
    "profile",
    "read_files",
    "rehearse",
    "run_cost",
    "step",
    "sweep",
    "tune",
    "validate",
    "view",
]


def __getattr__(name: str) -> object:
    """A public name, imported from its home on first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'meshwright' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Door(ModuleType):
    """The package itself. A verb and the floor that answers it may share a name (``estimate``, ``check``): ``mw.check`` is always
    the verb, also once the floor has been imported; the floor is had by ``from meshwright.check import ...``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME_OF):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
