"""Layouts run for real by a chooser that learns: what ``tune`` does where nothing is replayed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.api.measuring.candidates import TOP_TUNED, candidates_of
from meshwright.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.fields import Faults, Values
    from meshwright.api.measuring.session import Conducted, Confirm, Place, Told
    from meshwright.api.measuring.subject import Subject
    from meshwright.api.request import Progress
    from meshwright.errors import Message
    from meshwright.measure.chooser import Candidate, Chooser
    from meshwright.measure.conduct.budget import Price
    from meshwright.measure.tuning.tuner import Prospect

TRIALS = 15
"""Trials at most, where nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What was run, or would be."""

    given: Subject
    where: Place
    candidates: tuple[Candidate, ...]
    cost: Price
    sampler: str
    described: tuple[tuple[str, str], ...] = ()
    """Of a dry run: label, and what would be done first."""
    conducted: Conducted | None = None
    """None of a dry run."""
    prospect: Prospect | None = None
    """What is left to find; None of a sampler that does not know."""
    written: str = ""
    left_out: Mapping[str, str] | None = None
    unsaved: Message | None = None
    """Why the rows could not be written: no reason to lose what was found."""


def run(values: Values, faults: Faults, progress: Progress | None, told: Told | None, confirm: Confirm | None) -> Tuned:
    """Run layouts until no better one is likely, or the budget is spent.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where no layout fits, devices are busy, or a sampler
             is not installed.
    """
    from meshwright.api.measuring.rows import rows_of, write_rows
    from meshwright.api.measuring.session import agreed, conduct, place, price_line, priced
    from meshwright.api.measuring.subject import subject
    from meshwright.measure.conduct.finals import MOST
    from meshwright.measure.tuning.samplers import require_optuna
    from meshwright.measure.tuning.tuner import Tuner

    sampler = values.get("sampler", "model")
    if sampler in ("tpe", "gp"):
        require_optuna(sampler)
    given = subject(values, faults)
    where = place(values, faults)
    if where.budget.trials is None:
        where = replace(where, budget=replace(where.budget, trials=TRIALS + MOST * where.finals))
    found = candidates_of(given, values, faults, progress, top=TOP_TUNED)
    candidates = tuple({each.label: each for each in found}.values())
    if "layouts" in values:  # in the order that a plan would have them: what somebody wrote first is no first choice
        candidates = tuple(sorted(candidates, key=lambda each: each.predicted_s or math.inf))
    cost, trials = priced(given, where, candidates)
    tuned = Tuned(given=given, where=where, candidates=candidates, cost=cost, sampler=sampler)
    if values["dry_run"]:
        first = _chooser(sampler, given, candidates, values).ask() if cost.trials else None
        described = () if first is None else ((first.label, where.executor.describe(given.trial(first))),)
        return replace(tuned, described=described)
    where.executor.check(trials)
    line = f"at most {price_line(given, where, cost)}"
    agreed(line, values, confirm)
    chooser = _chooser(sampler, given, candidates, values)
    done = conduct(given, where, chooser, candidates, told, price_said=line if values["yes"] else "")
    tuned = replace(tuned, conducted=done, prospect=chooser.prospect if isinstance(chooser, Tuner) else None)
    if "out" in values:
        rows, left = rows_of(given, done.attempts, where.store)
        try:
            write_rows(str(values["out"]), rows, force=values["force"])
        except InputError as error:
            return replace(tuned, unsaved=error.messages[0])
        tuned = replace(tuned, written=str(values["out"]), left_out=left)
    return tuned


def _chooser(sampler: str, given: Subject, candidates: Sequence[Candidate], values: Values) -> Chooser:
    """A sampler by its name, over the layouts of a case."""
    from meshwright.api.kin import informed, predictor_named
    from meshwright.measure.tuning import beliefs as prior
    from meshwright.measure.tuning.replay import words_of
    from meshwright.measure.tuning.samplers import Optuna, shuffled
    from meshwright.measure.tuning.tuner import STOP_PROBABILITY, Tuner

    if sampler == "random":
        return shuffled(candidates, 0)
    known = prior.beliefs([prior.Subject(case=given.case, layout=each.layout) for each in candidates])
    _, predictor = predictor_named(values.get("calibration"))
    known = informed(known, given.case, [each.layout for each in candidates], predictor)
    if sampler in ("tpe", "gp"):
        return Optuna(candidates, words_of(known), sampler, 0)
    stop = values.get("stop_probability", STOP_PROBABILITY)
    return Tuner(candidates, known, stop_probability=stop, start_s=given.start_s, steps=float(given.steps))
