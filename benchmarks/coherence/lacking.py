"""Laws of cases in which nothing fits: every lever that is said to bring it in does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.coherence.trial import Asked
from meshwright.units import gib
from meshwright.words import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coherence.trial import Trial

LEAST = re.compile(r"the least demanding layout is (.*)$")
LEVER = re.compile(r"\((?P<options>--[^)]*)\): (?P<says>.*?)as (?P<label>tp.+?)(, [\d.,]+ \w+ a step.*)?$")


def lacking(trial: Trial) -> Iterator[Asked]:
    """Each lever, as it would be applied."""
    verdict = trial.document["verdict"]
    yield Asked("a case in which nothing fits says so", "" if not verdict["fits"] else "it says that it fits")
    for unmet in verdict.get("unmet", []):
        found = LEAST.search(unmet["constraint"])
        if found is None:
            continue
        yield from _least(trial, found[1], unmet)
        for lever in unmet["levers"]:
            yield from _lever(trial, str(lever))


def _least(trial: Trial, label: str, unmet: dict[str, Any]) -> Iterator[Asked]:
    found = trial.estimate(label)
    more = {"layout": label}
    yield Asked("the least demanding layout is legal", found if isinstance(found, str) else "", "estimate", more)
    if not isinstance(found, str):
        yield Asked("the least demanding layout does not fit", "it fits" if found.fits else "", "estimate", more)


def _lever(trial: Trial, words: str) -> Iterator[Asked]:
    """``what (--option value): fits, 61.2 GiB as LABEL, 91.0 s a step``: the label with the option, and a plan with it."""
    found = LEVER.search(words)
    changes = _changes(found["options"]) if found is not None else None
    if found is None or changes is None:
        yield Asked("a lever says how it is applied", words)
        return
    yield Asked("a lever says how it is applied")
    says, shown = found["says"].startswith("fits"), {**changes, "layout": found["label"]}
    estimate = trial.estimate(found["label"], **{name: value for name, value in changes.items() if name != "pin"})
    yield Asked("a lever, applied, is legal", f"{words}: {estimate}" if isinstance(estimate, str) else "", "estimate", shown)
    if isinstance(estimate, str) or "a node lacks" in words:
        return
    yield Asked("a lever, applied, fits where it says so", "" if estimate.fits == says else words, "estimate", shown)
    if says:
        figures = f"{gib(estimate.memory_reserved_bytes)} as {found['label']}, {seconds(estimate.step_s)} a step"
        yield Asked("a lever, applied, costs what it says", "" if figures in words else f"{words}: {figures}", "estimate", shown)
        answer = trial.plan(**changes)
        wrong = answer if isinstance(answer, str) else "" if answer.ok else "nothing fits"
        yield Asked("a plan with a lever that fits is found", f"{words}: {wrong}" if wrong else "", "plan", changes)


def _changes(options: str) -> dict[str, Any] | None:
    """The options of a lever as those of a request; None where they are none."""
    words = options.split()
    pairs = list(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not all(name.startswith("--") for name, _ in pairs):
        return None
    changes: dict[str, Any] = {name[2:].replace("-", "_"): value for name, value in pairs if name != "--pin"}
    if pins := [value for name, value in pairs if name == "--pin"]:
        changes["pin"] = pins
    return {"nodes": None, **changes} if "devices" in changes else changes


LAWS = (lacking,)
