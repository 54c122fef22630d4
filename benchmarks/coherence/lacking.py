"""Laws of cases in which nothing fits: every lever that is said to bring it in does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.coherence.trial import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.coherence.trial import Trial

LEAST = re.compile(r"the least demanding layout is (.*)$")


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
            yield from _lever(trial, found[1], lever)


def _least(trial: Trial, label: str, unmet: dict[str, Any]) -> Iterator[Asked]:
    found = trial.estimate(label)
    more = {"layout": label}
    yield Asked("the least demanding layout is legal", found if isinstance(found, str) else "", "estimate", more)
    if not isinstance(found, str):
        yield Asked("the least demanding layout does not fit", "it fits" if found.fits else "", "estimate", more)


def _lever(trial: Trial, label: str, lever: Any) -> Iterator[Asked]:
    """One lever: its words, or a value with the options that apply it."""
    words = lever if isinstance(lever, str) else str(lever.get("words", lever))
    changes: dict[str, Any] = dict(lever.get("options", {})) if isinstance(lever, dict) else {}
    after = changes.pop("layout", None) or (lever.get("label") if isinstance(lever, dict) else None) or label
    if isinstance(lever, str):
        offload = "offload=optimizer" in lever or "optimizer offload" in lever
        after = f"{label} offload=optimizer" if offload and "offload=" not in label else label
        if "BF16 gradients" in lever or "gradients in BF16" in lever:
            changes["gradient_dtype"] = "bf16"
        if "--task lora" in lever:
            changes["task"] = "lora"
        if "--max-memory-ratio 1.0" in lever:
            changes["max_memory_ratio"] = 1.0
        if more := re.search(r"a layout fits on ([\d,]+)", lever):
            yield from _devices(trial, words, int(more[1].replace(",", "")))
            return
        if not changes and not offload:
            return
    says = not re.search(r"still .* short", words)
    found = trial.estimate(after, **changes)
    shown = {**changes, "layout": after}
    yield Asked("a lever, applied, is legal", f"{words}: {found}" if isinstance(found, str) and says else "", "estimate", shown)
    if not isinstance(found, str):
        yield Asked("a lever, applied, fits where it says so", "" if found.fits == says else
                    f"{words}: applied {'fits' if found.fits else 'does not fit'}", "estimate", shown)


def _devices(trial: Trial, words: str, devices: int) -> Iterator[Asked]:
    per_node = trial.answer.given.case.cluster.devices_per_node
    size = {"nodes": devices // per_node} if devices % per_node == 0 else {"nodes": None, "devices": devices}
    found = trial.plan(**size)
    shown = {key: value for key, value in size.items() if value is not None}
    wrong = found if isinstance(found, str) else "" if found.ok else "nothing fits there"
    yield Asked("on as many devices as are said to do, a layout fits", f"{words}: {wrong}" if wrong else "", "plan", shown)


LAWS = (lacking,)
