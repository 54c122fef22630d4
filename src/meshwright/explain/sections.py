"""An explanation in plain lines under titles, for whoever prints it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshwright.catalog.guides import cited, lines_of
from meshwright.units import count, gib
from meshwright.value import Value
from meshwright.words import seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.explain.explanation import Explanation
    from meshwright.explain.sensitivity import Sensitivity
    from meshwright.judging.finding import Judgement, Side, Verdict

VERDICTS: Mapping[Verdict, str] = {
    "holds": "hold", "not-followed": "would hold and are not followed", "fails": "do not hold here", "wrong": "are wrong anywhere",
    "does-not-apply": "do not apply",
}
"""Verdict -> words behind a number of rules."""
_OF_ONE = {"are": "is", "do": "does", "^hold": "holds"}
"""Verbs of ``VERDICTS`` -> what one rule does."""
FACTS = frozenset({"chatlearn.full-saves-most"})
"""Rules that say what something does, and advise nothing: not following them tells nobody anything."""
SAME_RATIO = 0.0005
"""A change of the step that no printed digit shows."""
SMALLEST_POINTS = 0.05
"""Terms below so many points are not listed."""


class Section(Value, frozen=True, kw_only=True):
    """A title and its lines."""

    title: str
    lines: tuple[str, ...]
    """Each a sentence or more; what follows a line break stands below it, further in."""


def sections(explanation: Explanation, *, all_rules: bool = False) -> tuple[Section, ...]:
    """The explanation, the answer first, then section by section.

    ``all_rules``: every rule of the guides with its words, instead of those that this layout could gain or loses by.
    """
    return tuple(
        Section(title=title, lines=tuple(lines))
        for title, lines in (
            ("In short", _answer(explanation)),
            ("1  Fit the model in memory", _fit(explanation)),
            ("2  Reach the global batch", (explanation.batch.sentence,)),
            ("3  Raise the throughput", (*_throughput(explanation), *_start(explanation))),
            ("How it is launched", (each.sentence for each in explanation.launch)),
            ("Where the points between MFU and 100 go", _losses(explanation)),
            ("One step of each knob", (_step(each) for each in explanation.sensitivities)),
            (
                "Better hardware or software",
                (f"{w.change}: {seconds(w.step_s)} ({signed(w.step_change_ratio)})" for w in explanation.what_ifs),
            ),
            ("Where the guides disagree", _disagreements(explanation, quoted=all_rules)),
            ("What the guides say", _every_rule(explanation) if all_rules else _telling_rules(explanation)),
        )
    )


def _answer(explanation: Explanation) -> Iterator[str]:
    """Where the time goes, what would be faster, and how the layout stands with the guides."""
    useful, lost = explanation.losses[0], sorted(explanation.losses[1:], key=lambda loss: -loss.points_percent)[:3]
    most = ", ".join(f"{loss.name} {loss.points_percent:.1f}" for loss in lost)
    yield f"of 100 points {useful.points_percent:.1f} are useful work; most is lost to {most}"
    best = explanation.fastest
    steps = [each for each in explanation.sensitivities if each.fits and each.step_change_ratio is not None]
    shortest = min(steps, key=lambda each: each.step_change_ratio or 0.0, default=None)
    single = min(steps, key=lambda each: each.expected_change_ratio or 0.0, default=None)
    if best is None:
        yield "nothing was found that fits"
    elif best.differences:
        found = f"the fastest layout found takes {seconds(best.step_s)} ({signed(best.step_change_ratio)})"
        fits = explanation.throughput.rungs[-1].fits
        why = "; faster with the risk of not running, which this one has" if fits else "; the layout asked about does not fit"
        yield f"{found}, {gib(best.memory_reserved_bytes)}: {best.label}{why if best.step_change_ratio >= 0.0 else ''}"
    else:
        yield f"nothing was found that is expected to be faster{_riskier(shortest)}"
    if single is not None and best is not None and best.differences and (single.expected_change_ratio or 0.0) < 0.0:
        yield f"the best single step is {_step(single)}"
    yield f"of the guides' rules {_counted(explanation.judgements)}"


def _riskier(single: Sensitivity | None) -> str:
    """A step that shortens the time where it fits, beside a layout than which none is expected to be faster."""
    if single is None or (single.step_change_ratio or 0.0) >= -SAME_RATIO:
        return ""
    return f"; faster where it fits, and less likely to fit: {_step(single)}"


def _fit(explanation: Explanation) -> Iterator[str]:
    yield explanation.fit.sentence
    for rung in explanation.fit.rungs:
        yield f"{rung.knob}: {gib(rung.memory_reserved_bytes)}{' fits' if rung.fits else ''}"
    for rung in explanation.fit.alone:
        yield f"{rung.knob} alone: {gib(rung.memory_reserved_bytes)}{' fits' if rung.fits else ''}"
    yield from explanation.fit.levers


def _throughput(explanation: Explanation) -> Iterator[str]:
    yield explanation.throughput.sentence
    best = explanation.fastest
    if best is not None and best.differences:
        yield f"from this layout to the fastest found: {', '.join(best.differences)}"
    for rung in explanation.throughput.rungs:
        over = "" if rung.fits else ", does not fit"
        memory = f"{gib(rung.memory_reserved_bytes)}{over}"
        yield f"{rung.knob}: {seconds(rung.step_s)} ({signed(rung.step_change_ratio)}), {memory}  {rung.label}"


def _start(explanation: Explanation) -> Iterator[str]:
    start = explanation.start
    if start is None:
        yield "nothing near 4 B parameters a device is legal, where the guide would start"
        return
    yield (
        f"by the guide's measure the start has {count(start.parameters_per_device)} parameters a device, "
        f"this layout {count(start.chosen_parameters_per_device)}"
    )


def _losses(explanation: Explanation) -> Iterator[str]:
    for loss in explanation.losses:
        if abs(loss.points_percent) >= SMALLEST_POINTS:
            name = "ideal (the MFU)" if loss.name == "ideal" else f"{loss.name} [{loss.cause}]"
            yield f"{loss.points_percent:6.2f}  {name}: {seconds(loss.time_s)}"
    yield "by cause: " + ", ".join(f"{cause.name} {cause.points_percent:.1f}" for cause in explanation.causes)


def _step(each: Sensitivity) -> str:
    if each.step_s is None or each.step_change_ratio is None or each.memory_reserved_bytes is None:
        return f"{each.change}: refused, {'; '.join(each.refused_because)}"
    over = "" if each.fits else ", does not fit"
    return f"{each.change}: {seconds(each.step_s)} ({signed(each.step_change_ratio)}), {gib(each.memory_reserved_bytes)}{over}"


def _disagreements(explanation: Explanation, *, quoted: bool) -> Iterator[str]:
    """Topic and side taken, then what every side comes to and where it stands."""
    for each in explanation.disagreements:
        if each.decision == "no-question" and not quoted:
            continue
        says = {side.rule: side.says for side in each.sides}
        decided = {
            "taken": f"this case takes \"{says.get(each.taken, '')}\"",
            "tie": "a tie between " + " and ".join(f'"{says[rule]}"' for rule in each.right),
            "none": "none of them is right here", "no-question": "not a question of this layout",
        }[each.decision]
        sides = (f"[{_tag(side.verdict)}] {side.sentence}  {_place(side, quoted=quoted)}" for side in each.sides)
        yield "\n".join([f"{each.topic}: {decided}{'; ' if each.sentence else ''}{each.sentence}", *sides])


def _place(side: Side, *, quoted: bool) -> str:
    """Where a side stands, with the guide's words or without."""
    return cited(f"guide {side.source}", side.rule) if quoted else lines_of(side.source)


def _every_rule(explanation: Explanation) -> Iterator[str]:
    for judgement in explanation.judgements:
        yield _with_source(judgement)


def _telling_rules(explanation: Explanation) -> Iterator[str]:
    """Advice that is right here and not followed, and advice that is followed to no good; the others by number."""
    telling = [each for each in explanation.judgements if _tells(each)]
    for each in telling:
        yield _with_source(each)
    rest = _counted([each for each in explanation.judgements if not _tells(each)])
    yield f"of the others {rest}: --all shows them, with the guides' words and the constants"


def _tells(judgement: Judgement) -> bool:
    if judgement.rule in FACTS:
        return False
    return judgement.verdict == "not-followed" or (judgement.verdict in ("fails", "wrong") and judgement.followed is True)


def _tag(verdict: Verdict) -> str:
    return verdict.replace("-", " ")


def _counted(judgements: Sequence[Judgement]) -> str:
    """``35 hold, 12 are not followed though they would hold, ...``."""
    numbers = Counter(each.verdict for each in judgements)
    return ", ".join(_number(numbers[verdict], words) for verdict, words in VERDICTS.items() if numbers[verdict])


def _number(number: int, words: str) -> str:
    """``35 hold``, ``1 holds``: a number of rules, and its verb."""
    for many, one in _OF_ONE.items() if number == 1 else ():
        words = re.sub(rf"\b{many}\b", one, words)
    return f"{number} {words}"


def _with_source(judgement: Judgement) -> str:
    """A rule and its judgement, and below what the guides say, in their words."""
    words = f"[{_tag(judgement.verdict)}] {judgement.says}: {judgement.sentence}"
    return f"{words}\n{cited(f'guide {judgement.source}', judgement.rule)}"
