"""Draw a case, plan it, ask every law."""

from __future__ import annotations

import random
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.coherence import explained, lacking, plans, written
from benchmarks.coherence.draw import drawn
from benchmarks.coherence.trial import Asked, Trial
from meshwright.errors import InputError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FITTING: tuple[Callable[[Trial], Iterator[Asked]], ...] = (*plans.LAWS, *explained.LAWS, *written.LAWS)
LACKING: tuple[Callable[[Trial], Iterator[Asked]], ...] = lacking.LAWS


TRIES = 12
"""Draws of a case until one is no fault of the input: a model that the framework does not train, a batch that nothing divides."""


def options_of(seed: str, number: int, attempt: int = 0) -> dict[str, Any]:
    """The options of a case of a seed, drawn again where it was refused."""
    return drawn(random.Random(f"{seed}/{number}/{attempt}"))


def run(seed: str, number: int) -> tuple[dict[str, Any], str, list[Asked]]:
    """The options of a case, what became of it, and every law asked about it."""
    options: dict[str, Any] = {}
    for attempt in range(TRIES):
        options = options_of(seed, number, attempt)
        try:
            return (options, *judged(Trial.of(options)))
        except NoAnswerError as error:
            said = str(error)
            known = "runs it" in said or "runs none" in said or "has no plan" in said
            return options, "no framework", [Asked("a no says why, and which framework would", "" if known else said)]
        except InputError as error:
            if any(each.id == "plan.framework" for each in error.messages):
                law = "a plan that its framework cannot run is no fault of the input"
                return options, "refused", [Asked(law, str(error)[:300])]
        except Exception:
            return options, "refused", [Asked("plan answers", _last())]
    return options, "refused", []


def judged(trial: Trial) -> tuple[str, list[Asked]]:
    """Every law asked about a planned case."""
    laws = FITTING if trial.answer.ok else LACKING
    asked = [Asked("plan answers")]
    for law in laws:
        try:
            asked += law(trial)
        except Exception:
            asked.append(Asked("every verb answers", f"{law.__name__}: {_last()}"))
    repeatable = [each if each.verb == "plan" else replace(each, more={**trial.chosen, **each.more}) for each in asked]
    return "planned" if trial.answer.ok else "nothing fits", repeatable


def _last() -> str:
    """The innermost function of a traceback, and what it raised; no folder of the machine."""
    raised = sys.exc_info()[1]
    assert raised is not None, "asked while it is handled"
    place = traceback.extract_tb(raised.__traceback__)[-1]
    said = traceback.format_exception_only(raised)[-1].strip()
    return f"{Path(place.filename).name}:{place.lineno} {place.name}: {said}"[:400]
