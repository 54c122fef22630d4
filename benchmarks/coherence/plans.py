"""Laws of ``plan`` itself, and of ``estimate``, ``--compare`` and ``--pin`` beside it."""

from __future__ import annotations

import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import meshwright as mw
from benchmarks.coherence.trial import Asked, differences, same
from meshwright.api.views.estimates import estimate_view
from meshwright.errors import MeshwrightError
from meshwright.search.plan import TIE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coherence.trial import Trial

FIGURES = ("step_s", "memory_reserved_bytes", "memory_peak_bytes", "memory_fit_probability", "mfu_ratio", "bubble_ratio")
LINEARITY = ("linearity_ratio", "linearity_baseline_devices", "linearity_baseline_label", "figures")
"""What costs a search of its own, with the terms that explain it."""


def estimated(trial: Trial) -> Iterator[Asked]:
    """The first plan is what ``estimate`` of its label says, and its framework runs it."""
    label = trial.first.label
    try:
        answer = mw.estimate(mw.EstimateRequest(**{**_case_of(trial), "layout": label}))
    except MeshwrightError as error:
        yield Asked("the first plan is one that estimate takes", str(error), "estimate", {"layout": label})
        return
    yield Asked("the first plan is one that estimate takes")
    limits = answer.limits
    yield Asked("its framework runs the first plan", "; ".join(limits), "estimate", {"layout": label})
    found = [*differences(trial.document["plans"][0]["estimate"], answer.to_json())]
    yield Asked("estimate of the first plan says plan's figures", "; ".join(found[:4]), "estimate", {"layout": label})


def filed(trial: Trial) -> Iterator[Asked]:
    """A request file with another length of the list names the same first plan, with the same figures.

    A file's paths are its own folder's, so a case with lengths is not asked.
    """
    if "lengths" in trial.options:
        return
    law = "a request file and a shorter list name the same first plan"
    with tempfile.TemporaryDirectory(prefix="coherence-") as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(yaml.safe_dump(trial.options), encoding="utf-8")
        try:
            document = mw.plan(mw.PlanRequest(request=str(path), top=2)).to_json()
        except MeshwrightError as error:
            yield Asked(law, str(error))
            return
    found = differences(trial.document["plans"][0]["estimate"], document["plans"][0]["estimate"]) if document["plans"] else ["none"]
    yield Asked(law, "; ".join(list(found)[:3]), "plan", {"top": 2})


def _case_of(trial: Trial) -> dict[str, Any]:
    return dict(trial.options)


def mapped(trial: Trial) -> Iterator[Asked]:
    """The cell of ``atlas`` is the first plan, with its figures."""
    shared = {name: value for name, value in trial.options.items() if name not in {"model", "nodes"}}
    if {"layers", "lengths"} & shared.keys():  # an atlas takes models and sequences as they are
        return
    (cell,) = mw.atlas(mw.AtlasRequest(models=[trial.options["model"]], nodes=[trial.options["nodes"]], **shared)).cells
    best = estimate_view(trial.first)
    names = ("step_s", "mfu_ratio", "memory_peak_bytes", "fit_probability", "linearity_ratio")
    wrong = ["label"] if cell.label != best["label"] else [name for name in names if not same(getattr(cell, name), best[name])]
    yield Asked("the atlas has the first plan in its cell", f"{cell.label}: {', '.join(wrong)}" if wrong else "", "atlas")


def listed(trial: Trial) -> Iterator[Asked]:
    """Every listed plan is legal, is priced as ``estimate`` prices its label, and has figures that agree with each other."""
    for each in trial.document["plans"]:
        label = each["label"]
        found = trial.estimate(label)
        legal = Asked("every listed plan is legal", found if isinstance(found, str) else "", "estimate", {"layout": label})
        yield legal
        if not isinstance(found, str):
            shown = estimate_view(found)
            wrong = [name for name in FIGURES if not same(shown[name], each["estimate"][name])]
            yield Asked("estimate prices every label as the list does", f"{label}: {', '.join(wrong)}" if wrong else "", "estimate",
                        {"layout": label})
        yield from figures(each["estimate"], "plan", {})


def figures(document: dict[str, Any], verb: str, more: dict[str, Any]) -> Iterator[Asked]:
    """One estimate: intervals hold their point, probabilities agree with them, parts sum to the whole."""
    at = document["label"]

    def held(law: str, broken: str) -> Asked:
        return Asked(law, f"{at}: {broken}" if broken else "", verb, more)

    step, capacity, reserved = document["step_s"], document["memory_capacity_bytes"], document["memory_reserved_bytes"]
    chance, upper = document["memory_fit_probability"], document["memory_upper_bytes"]
    parts = sum(document["time"].values())
    yield held("parts of the time sum to the step", "" if abs(parts - step) < 1e-6 * step else f"{parts:.6g} and {step:.6g}")
    yield held("memory reserved is at least the peak, and its upper bound at least that",
               "" if document["memory_peak_bytes"] <= reserved <= upper else f"{document['memory_peak_bytes']} {reserved} {upper}")
    yield held("fits means a probability of one half or more", "" if document["fits"] == (chance >= 0.5) else f"{chance:.3f}")
    yield held("a run finishes at most as probably as it fits",
               "" if document["fit_probability"] <= chance + 1e-9 else f"{document['fit_probability']:.3f} and {chance:.3f}")
    found = document["interval"]
    if found is None:
        yield held("without a calibration it fits for sure or not at all", "" if chance in (0.0, 1.0) else f"{chance:.3f}")
        return
    for key, point in (("step_s", step), ("memory_peak_bytes", document["memory_peak_bytes"]), ("memory_reserved_bytes", reserved)):
        if key in found:
            low, high = found[key]
            yield held(f"the interval of {key} holds its point",
                       "" if low <= point * (1 + 1e-9) and point <= high * (1 + 1e-9) else f"{low:.5g} {point:.5g} {high:.5g}")
    if "memory_reserved_bytes" not in found:
        yield held("the reserved memory has an interval", "there is none")
        return
    low, high = found["memory_reserved_bytes"]
    ends = "" if same(round(high), upper) else f"{high:.5g} and {upper:.5g}"
    yield held("the upper bound of memory is the upper end of its interval", ends)
    tail = (1.0 - found["level"]) / 2.0
    wrong = (
        f"capacity {capacity:.4g} above {high:.4g}, yet {chance:.3f}" if capacity > high and chance < 1.0 - tail - 0.01
        else f"capacity {capacity:.4g} below {low:.4g}, yet {chance:.3f}" if capacity < low and chance > tail + 0.01
        else f"capacity {capacity:.4g} within {low:.4g}-{high:.4g}, yet {chance:.3f}"
        if low < capacity < high and not tail - 0.01 <= chance <= 1.0 - tail + 0.01 else ""
    )
    yield held("the probability of fitting agrees with the interval of memory", wrong)


def objective(document: dict[str, Any]) -> float:
    """What plans are ranked by: the expected step, which was unsaid before it had a key."""
    said = document.get("expected_step_s")
    return float(said) if said is not None else document["step_s"] / max(document["memory_fit_probability"], 1e-3)


def mean_s(document: dict[str, Any]) -> float:
    """The mean of the step over both times of pipelines that stall by chance; the step of all others."""
    return sum(float(each["probability"]) * each["step_s"] for each in document.get("humps") or ()) or float(document["step_s"])


def ordered(trial: Trial) -> Iterator[Asked]:
    """The list stands in the order of its objective; a faster plan below the first is riskier; groups are as near as they say."""
    plans = trial.document["plans"]
    values = [objective(each["estimate"]) for each in plans]
    bad = [
        f"{one['rank']}: {left:.5g} s, {other['rank']}: {right:.5g} s"
        for (one, left), (other, right) in pairwise(zip(plans, values, strict=True)) if right < left * (1.0 - TIE) - 1e-12
    ]
    yield Asked("plans stand in the order of the objective", "; ".join(bad[:2]))
    yield Asked("the objective has a key of its own", "" if "expected_step_s" in plans[0]["estimate"] else "no expected_step_s")
    first = plans[0]["estimate"]
    better = [
        each["rank"] for each in plans[1:]
        if mean_s(each["estimate"]) < mean_s(first) * (1 - TIE)
        and each["estimate"]["memory_fit_probability"] >= first["memory_fit_probability"] - 1e-9
        and each["estimate"]["layout"]["overlap"] == first["layout"]["overlap"]
    ]
    yield Asked("no listed plan is faster and as safe as the first", f"plans {better}" if better else "")
    wide = []
    for group in {each["group"] for each in plans}:
        own = [value for value, each in zip(values, plans, strict=True) if each["group"] == group]
        if max(own) > min(own) * (1.0 + trial.document["ranking_error_ratio"] + TIE):
            wide.append(f"group {group}: {min(own):.5g} to {max(own):.5g} s")
    yield Asked("plans of a group are within the error of the model", "; ".join(wide))
    labels = [each["label"] for each in plans]
    yield Asked("no plan is listed twice", "" if len(set(labels)) == len(labels) else "a label stands twice")
    for note in trial.document["notes"]:
        if found := re.search(r"plan (\d+) is (-?[\d.]+)% slower", note):
            rank, slower = int(found[1]), float(found[2])
            said = 100 * (plans[rank - 1]["estimate"]["step_s"] / first["step_s"] - 1) if rank <= len(plans) else float("nan")
            yield Asked("a note about another plan says its figures", "" if abs(said - slower) < 0.1 and slower >= 0 else note)


def front(trial: Trial) -> Iterator[Asked]:
    """The first plan is not dominated in the Pareto table, whose points do not dominate each other."""
    points = trial.document["pareto"]
    own = trial.document["plans"][0]["estimate"]
    keys = [key for key in ("expected_step_s", "memory_reserved_bytes", "devices") if all(key in each for each in points)]
    keys = keys if "expected_step_s" in keys else ["step_s", *keys]
    devices = trial.first.layout.world
    mine = {**own, "devices": devices}

    def dominates(one: dict[str, Any], other: dict[str, Any]) -> bool:
        pairs = [(float(one[key]), float(other[key])) for key in keys]
        return all(a <= b * (1 + 1e-9) for a, b in pairs) and any(a < b * (1 - 1e-9) for a, b in pairs)

    over = [each["label"] for each in points if dominates(each, mine)]
    yield Asked("the first plan is not dominated in its Pareto table", f"by {over[0]}" if over else "")
    pairs = [(a["label"], b["label"]) for a in points for b in points if dominates(a, b)]
    yield Asked("points of the Pareto table do not dominate each other", f"{pairs[0][0]} over {pairs[0][1]}" if pairs else "")
    for each in points:
        found = trial.estimate(each["label"])
        if isinstance(found, str):
            yield Asked("points of the Pareto table are legal", found, "estimate", {"layout": each["label"]})
        else:
            yield Asked("points of the Pareto table are legal")
            yield Asked("estimate prices the points of the Pareto table alike", "" if same(found.step_s, each["step_s"]) else
                        f"{found.step_s:.6g} and {each['step_s']:.6g}", "estimate", {"layout": each["label"]})


def compared(trial: Trial) -> Iterator[Asked]:
    """``--compare`` of a listed plan gives the place and the figures that the list gives."""
    plans = trial.document["plans"]
    place = len(plans[0]["label"]) % len(plans)
    label = plans[place]["label"]
    more = {"compare": label}
    found = trial.plan(**more)
    if isinstance(found, str) or found.comparison is None:
        yield Asked("--compare takes every listed label", str(found), "plan", more)
        return
    yield Asked("--compare takes every listed label")
    document = found.to_json()["comparison"]
    rank = "" if document["rank"] == place + 1 else f"place {document['rank']}, listed as {place + 1}"
    yield Asked("--compare gives the place of the list", rank, "plan", more)
    shown = [*differences(without_linearity(plans[place]["estimate"]), document["estimate"])]
    yield Asked("--compare gives the figures of the list", "; ".join(shown[:3]), "plan", more)


def without_linearity(document: dict[str, Any]) -> dict[str, Any]:
    """An estimate without what a comparison need not say."""
    return {key: value for key, value in document.items() if key not in LINEARITY}


KNOBS = {
    "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "dp": "data_parallel", "ep": "expert_parallel",
    "mb": "microbatch_sequences", "vp": "virtual_stages",
}


def pinned(trial: Trial) -> Iterator[Asked]:
    """Pinning what the first plan has changes nothing; pinning what another has gives nothing better than the first.

    Holds:   up to the error of the model: a search keeps as many finalists with a pin as without, and refines some more of them.
    """
    plans, first, apart = trial.document["plans"], trial.document["plans"][0], trial.document["ranking_error_ratio"]
    best = objective(first["estimate"])
    pins = [f"{word}={first['layout'][name]}" for word, name in KNOBS.items() if word not in ("dp", "ep") or len(plans) % 2]
    found = trial.plan(pin=pins)
    more = {"pin": pins}
    law = "pinned to the first plan's degrees, plan finds it again"
    if isinstance(found, str) or not found.ok:
        yield Asked(law, found[:300] if isinstance(found, str) else "nothing fits", "plan", more)
    else:
        value = objective(found.to_json()["plans"][0]["estimate"])
        same_plan = -apart <= value / best - 1.0 <= TIE
        yield Asked(law, "" if same_plan else f"{value:.6g} s instead of {best:.6g} s", "plan", more)
    ours = first["layout"]
    others = ((each, word, name) for each in plans[1:] for word, name in KNOBS.items() if each["layout"][name] != ours[name])
    other, word, name = next(others, ({}, "", ""))
    if not other:
        return
    more = {"pin": [f"{word}={other['layout'][name]}"]}
    found = trial.plan(**more)
    law = "pinned to a knob of another listed plan, plan finds it or better"
    if isinstance(found, str) or not found.ok:
        yield Asked(law, found[:300] if isinstance(found, str) else "nothing fits", "plan", more)
        return
    document = found.to_json()["plans"][0]
    value, bound = objective(document["estimate"]), objective(other["estimate"])
    yield Asked(law, "" if value <= bound * (1 + TIE) else f"{value:.6g} s, listed with {bound:.6g} s", "plan", more)
    yield Asked("a pin finds nothing better than the search without it",
                "" if value >= best * (1 - apart) else f"{value:.6g} s, without it {best:.6g} s", "plan", more)
    yield Asked("a pin holds", "" if document["layout"][name] == other["layout"][name] else document["label"], "plan", more)


LAWS = (estimated, filed, mapped, listed, ordered, front, compared, pinned)
