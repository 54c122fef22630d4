"""Laws of ``explain``: its header is the estimate, and every step, rung and neighbour, applied, is what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import meshwright as mw
from benchmarks.coherence.plans import without_linearity
from benchmarks.coherence.trial import Asked, differences, same
from meshwright.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coherence.trial import Trial


def explained(trial: Trial) -> Iterator[Asked]:
    """``explain`` without a layout is about the first plan, with its figures; all that it proposes holds when applied.

    It searches again to find that plan: in three cases of four it is told the layout.
    """
    first = trial.document["plans"][0]
    told = trial.asked if len(first["label"]) % 4 == 0 else {**trial.options, "layout": first["label"]}
    try:
        document = mw.explain(mw.ExplainRequest(**told)).to_json()
    except MeshwrightError as error:
        yield Asked("explain explains what plan found", str(error), "explain")
        return
    label = document["estimate"]["label"]
    other = f"{label}, planned {first['label']}" if label != first["label"] else ""
    yield Asked("explain explains what plan found", other, "explain")
    if other:
        return
    found = [*differences(without_linearity(first["estimate"]), document["estimate"])]
    yield Asked("explain's header says plan's figures", "; ".join(sorted(found)[:4]), "explain")
    linearity = [document["estimate"]["linearity_ratio"], first["estimate"]["linearity_ratio"]]
    yield Asked("explain says plan's linearity", "" if same(*linearity) else f"{linearity[0]}, planned {linearity[1]}", "explain")
    told = document["explanation"]
    yield from _applied(trial, "one step of each knob", told["sensitivities"])
    yield from _applied(trial, "a step from the guided start", told["throughput"]["rungs"])
    yield from _applied(trial, "the fastest layout found", [told["fastest"]] if told["fastest"] else [])
    yield from _throughput(first, told["throughput"])
    if told["fastest"] is not None:
        other = not same(told["fastest"]["step_s"], first["estimate"]["step_s"])
        yield Asked("the fastest layout that explain names is the first plan",
                    f"{told['fastest']['step_s']:.6g} and {first['estimate']['step_s']:.6g} s" if other else "", "explain")
    losses = sum(each["points_percent"] for each in told["losses"])
    yield Asked("points of the losses sum to 100", "" if abs(losses - 100) < 1e-6 else f"{losses:.6f}", "explain")
    yield from _batch(trial, first, told["batch"])


def _applied(trial: Trial, what: str, steps: list[dict[str, Any]]) -> Iterator[Asked]:
    """Steps with a label: legal for the framework, with the figures that stand beside them."""
    for each in steps:
        if each.get("label") is None:
            continue
        more = {"layout": each["label"]}
        found = trial.estimate(each["label"])
        yield Asked(f"{what}, applied, is legal", found if isinstance(found, str) else "", "estimate", more)
        if isinstance(found, str):
            continue
        wrong = [] if same(found.step_s, each["step_s"]) else [f"{each['step_s']:.6g} s, applied {found.step_s:.6g} s"]
        if not same(found.memory_reserved_bytes, each["memory_reserved_bytes"]):
            wrong.append(f"{each['memory_reserved_bytes']:.6g} B, applied {found.memory_reserved_bytes:.6g} B")
        said = f"{each['label']}: {'; '.join(wrong)}" if wrong else ""
        yield Asked(f"{what}, applied, costs what it says", said, "estimate", more)
        if each.get("fits") is not None:
            said = "" if found.fits == each["fits"] else f"{each['label']}: says {each['fits']}, applied {found.fits}"
            yield Asked(f"{what}, applied, fits where it says so", said, "estimate", more)


def _without_replicas(label: str) -> str:
    return " ".join(word for word in label.split() if not word.startswith("dp"))


def _throughput(first: dict[str, Any], told: dict[str, Any]) -> Iterator[Asked]:
    """The ladder ends at the layout, and what is praised fits."""
    last = told["rungs"][-1]
    yield Asked("the steps from the guided start end at the layout",
                "" if same(last["step_s"], first["estimate"]["step_s"]) else f"{last['step_s']:.6g} s", "explain")
    gains = [rung for rung in told["rungs"][1:] if f"most by {rung['knob']} (" in told["sentence"]]
    wrong = [f"{rung['knob']} does not fit" for rung in gains if not rung["fits"]]
    yield Asked("the step that is credited most fits", "; ".join(wrong), "explain")


def _batch(trial: Trial, first: dict[str, Any], told: dict[str, Any]) -> Iterator[Asked]:
    """The smallest batch of the layout runs, and twice or half of the batch cost what they say."""
    label = first["label"] if "packs" in trial.document["request"] else _without_replicas(first["label"])
    least = told["smallest_batch_sequences"]
    packs = trial.document["request"].get("packs")
    if least is not None and packs is None:
        found = trial.estimate(label, global_batch=least)
        yield Asked("the smallest batch of the layout runs", found if isinstance(found, str) else "", "estimate",
                    {"layout": label, "global_batch": least})
    for name in ("twice", "half"):
        each = told[name]
        if each is None:
            continue
        batch: dict[str, Any] = {"global_batch": each["global_batch_sequences"]}
        if packs is not None:  # the batch counts samples, explain counts packs
            samples = trial.options["global_batch"] * batch["global_batch"]
            if samples % packs:
                continue
            batch = {"global_batch": samples // packs, "packs": batch["global_batch"]}
        more = {"layout": label, **batch}
        found = trial.estimate(label, **batch)
        if packs is not None and isinstance(found, str) and "do not hold" in found:  # half of the samples may need more than half
            continue
        wrong = found if isinstance(found, str) else "" if same(found.step_s, each["step_s"]) else (
            f"{each['step_s']:.6g} s, applied {found.step_s:.6g} s"
        )
        yield Asked("twice and half of the batch run as explain says", wrong, "estimate", more)


LAWS = (explained,)
