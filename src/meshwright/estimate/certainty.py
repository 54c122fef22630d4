"""How sure a prediction is: its regime, its interval, and what stands behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from meshwright.domain import estimate as values
from meshwright.domain.uncertainty import OTHER, WIDEST
from meshwright.domain.uncertainty import expected_s as risked_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.domain.uncertainty import FitCurve, Scale, Uncertainty
    from meshwright.perf.arrays import Array

LEVEL = 0.9
"""Level of the intervals."""

MFU_BANDS = (0.02, 0.05, 0.10, 0.20, 0.30, 0.40)
NODE_BANDS = (1, 8, 31)
STRANGE_STEP, STRANGE_MEMORY = (0.85, 1.25), (0.55, 0.55)
"""A device, and a family of devices, left out of the fit whole: how much wider intervals must be, relative to a framework left out
(what is unseen of a framework and of its cells together).

Upper quartiles over the corpus, step time: device 0.83, family 1.23, framework 0.98 (logs); memory: device 0.38, framework 0.71,
families too few to tell.
"""
OF_THE_CASE = ("framework", "cell", "sort", "nodes")
"""The features of a regime that no layout changes."""
EDGE = 0.85
"""Share of the memory from which allocators begin to retry."""


def regime(case: Case, layout: Layout, *, mfu_ratio: float, reserved_bytes: float) -> Mapping[str, str]:
    """The features that the width of an interval depends on.

    Units:   ratio, bytes -> names of bands.
    Source:  residuals of the corpus by regime (docs/accuracy.md).
    """
    known = regime_of_case(case, layout.world)
    framework = known["framework"]
    across = layout.tensor_parallel > case.cluster.scale_up_devices
    used = (("tp", layout.tensor_parallel > 1), ("across", across), ("pp", layout.pipeline_parallel > 1))
    parallel = " ".join(word for word, on in used if on)
    pace = str(sum(mfu_ratio >= edge for edge in MFU_BANDS))
    return {
        **known,
        "mfu": pace,
        "parallel": parallel,
        "memory": "edge" if reserved_bytes > EDGE * case.cluster.device.memory_bytes else "free",
        "launch": _launch(case),
        "framework mfu": f"{framework} {pace}",
        "framework parallel": f"{framework} {parallel} {known['nodes']}",
    }


def _launch(case: Case) -> str:
    """What nobody tuned of a launch, or that routing is left to itself."""
    launch = case.launch
    if launch.plain_host or launch.attention_by_default or launch.deterministic:
        return "plain"
    return "natural routing" if case.model.is_moe and not case.training.balanced_routing else "tuned"


def regime_of_case(case: Case, devices: int | None = None) -> Mapping[str, str]:
    """The part of a regime that no layout changes (``OF_THE_CASE``); ``devices``: those in use, all where none are named.

    What runs share (``domain.uncertainty.Scale``): the framework, the cell, and in it the number of devices and the model's shape.
    """
    precision, framework = case.training.precision.name, case.implementation.family
    sort = f"{'moe' if case.model.is_moe else 'dense'} {'16-bit' if precision in ('bf16', 'fp16') else precision[:3]}"
    cell, count = f"{framework} {case.cluster.device.name} {sort}", devices or case.cluster.num_devices
    nodes = count / case.cluster.devices_per_node
    return {
        "framework": framework, "cell": cell, "size": f"{cell} {round(math.log2(count))}", "sort": sort,
        "model": f"{cell} {shape_of(case.model)}",
        "nodes": str(sum(nodes > edge for edge in NODE_BANDS)),
    }


def shape_of(model: Model) -> str:
    """Where a model stands among others, in doublings: width, layers, vocabulary, experts."""
    experts = model.experts.num_experts if model.experts else 1
    return "x".join(f"{math.log2(each):.1f}" for each in (model.hidden, model.num_layers, model.vocabulary, experts))


class Fitting(Struct, frozen=True, kw_only=True):
    """Whether a layout runs: probabilities 0..1."""

    fits: bool
    memory_probability: float
    """That it fits."""
    probability: float
    """That a run finishes: it fits, and nothing else fails."""


def memory_curve(case: Case) -> FitCurve | None:
    """What a layout of a case needs, as one distribution: its probability to fit and its interval both come from it.

        log need ~ logistic(log reserved, w);   p_memory = mass below the capacity;   w = max(w_fit, h / log 19) e^u

    Symbols: w_fit the width of the framework's curve; h the half-width of the interval of 0.9 of the case (``OF_THE_CASE``; what
             layouts differ by is averaged, so that of two layouts the one that needs less fits more likely); u a device without
             runs (``unseen_device``).
    Holds:   at the capacity half of the layouts fit. None where nothing is known about the error.
    Source:  ``domain.uncertainty.FitCurve``; 19 is the odds of 0.95.
    """
    known = case.calibration.uncertainty
    if known is None:
        return None
    scale, features = known.memory.over(OF_THE_CASE), regime_of_case(case)
    width = max(known.fit.width, scale.half_width(features, LEVEL) / math.log((1.0 + LEVEL) / (1.0 - LEVEL)))
    return replace(
        known.fit, edge=math.log(max(case.capacity_bytes, 1.0) / case.offered_bytes),
        width=width * math.exp(unseen_device(known, known.memory, features, *STRANGE_MEMORY)),
    )


def fitting(case: Case, reserved_bytes: float, curve: FitCurve | None) -> Fitting:
    """Whether a layout runs whose fullest stage reserves so much.

        p = (1 - f) p_memory;   fits: p_memory at least one half, which is reserved <= capacity

    Symbols: f the share of runs that fail for other reasons; p_memory by the curve, 0 or 1 by the capacity without one.
    Units:   bytes.
    Source:  ``memory_curve``.
    """
    fits = reserved_bytes <= case.capacity_bytes
    if curve is None:
        return Fitting(fits=fits, memory_probability=float(fits), probability=float(fits))
    by_memory = float(curve.memory_probability(reserved_bytes, case.offered_bytes))
    return Fitting(fits=fits, memory_probability=by_memory, probability=(1.0 - curve.failures) * by_memory)


def step_interval(known: Uncertainty, features: Mapping[str, str], step_s: float) -> tuple[float, float]:
    """Where the measured step lies with probability 0.9.

        [x / e^h, x e^h],   h the half-width of the regime, times e^u for a device without runs (``unseen_device``)

    Units:   s.
    Source:  ``domain.uncertainty.Scale``.
    """
    strange = math.exp(unseen_device(known, known.step, features, *STRANGE_STEP))
    return around(step_s, min(WIDEST, known.step.half_width(features, LEVEL) * strange))


def around(value: float, half_width: float) -> tuple[float, float]:
    """The ends of an interval that is so wide on either side, in log units."""
    factor = math.exp(half_width)
    return value / factor, value * factor


def interval(
    known: Uncertainty | None, features: Mapping[str, str], step_s: float, allocated_bytes: float, reserved_bytes: float,
    curve: FitCurve | None,
) -> values.Interval | None:
    """Where the measured figures lie with probability 0.9; None where nothing is known about the error.

    Units:   s, bytes.
    Source:  ``step_interval``; ``memory_curve``: the error of what is allocated is that of what is reserved.
    """
    if known is None or curve is None:
        return None
    memory = curve.half_width(LEVEL)
    return values.Interval(
        level=LEVEL, step_s=step_interval(known, features, step_s), memory_peak_bytes=around(allocated_bytes, memory),
        memory_reserved_bytes=around(reserved_bytes, memory),
    )


def unseen_device(
    known: Uncertainty, scale: Scale, features: Mapping[str, str], of_device: float, of_family: float
) -> float:
    """How much wider an interval is for a device that no run had, as a log; nought where it has runs.

        u = max(0, share (w(new) + e_framework + e_cell) - w(case) - e_cell)

    Symbols: w how much wider the interval is of the regime were its framework without runs, and of the case as it is
             (``Scale.widening``); e effects of a framework and of a cell without runs, nought but in calibrations made before
             there were shifts; ``of_device`` the share where other devices of the family have runs, ``of_family`` where none has.
    Holds:   once: a device without runs has no cell with runs, which is in the regime already; where the framework has no runs
             either, so is that. Nothing is judged without counts of runs (``seen`` is empty).
    Source:  ``STRANGE_STEP``.
    """
    frameworks, cells = (scale.effects.get(name, {}) for name in ("framework", "cell"))
    if known.seen.get("device", 1) or features.get("framework") not in frameworks:
        return 0.0
    share, cell = of_device if known.seen.get("family", 0) else of_family, cells.get(OTHER, 0.0)
    new = {name: value for name, value in features.items() if not name.startswith("framework") and name not in scale.runs}
    return max(0.0, share * (scale.widening(new) + frameworks.get(OTHER, 0.0) + cell) - scale.widening(features) - cell)


def expected_s(case: Case, step_s: Array, reserved_bytes: Array) -> Array:
    """Step time over the probability that the layout runs: what a planner that pays for failed runs minimises.

    ``step_s``: on average over the times that runs of a layout take (``StepTime.mean_s``).

    Shapes:  columns of layouts.
    Units:   s.
    Holds:   the step time itself where the calibration knows no probabilities.
    Source:  ``domain.uncertainty.expected_s``.
    """
    curve = memory_curve(case)
    return step_s if curve is None else risked_s(step_s, curve.memory_probability(reserved_bytes, case.offered_bytes))


def grades(known: Uncertainty | None) -> Mapping[str, values.Grade]:
    """What stands behind time and memory: runs of this device under this framework, runs of kin, or formulas alone."""
    if known is None:
        grade: values.Grade = "analytic"
    elif known.seen.get("cell", 0):
        grade = "calibrated"
    elif any(known.seen.get(level, 0) for level in ("family", "device", "framework")):
        grade = "kin"
    else:
        grade = "analytic"
    return {"step_s": grade, "memory_peak_bytes": grade}
