"""An explanation in plain lines under titles, for whoever prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.catalog.guides import cited
from meshwright.units import count, gib, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.explain.explanation import Explanation
    from meshwright.explain.sensitivity import Sensitivity
    from meshwright.judging.finding import Judgement, Side

SMALLEST_POINTS = 0.05
"""Terms below so many points are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title and its lines."""

    title: str
    lines: tuple[str, ...]
    """Each a sentence or more; what follows a line break stands below it, further in."""


def sections(explanation: Explanation, *, all_rules: bool = False) -> tuple[Section, ...]:
    """The explanation, section by section; rules that do not apply are left out unless asked for."""
    return tuple(
        Section(title=title, lines=tuple(lines))
        for title, lines in (
            ("1  Fit the model in memory", _fit(explanation)),
            ("2  Reach the global batch", (explanation.batch.sentence,)),
            ("3  Raise the throughput", _throughput(explanation)),
            ("Guided start (4 B parameters a device)", _start(explanation)),
            ("Where the points between MFU and 100 go", _losses(explanation)),
            ("One step of each knob", (_step(each) for each in explanation.sensitivities)),
            (
                "Better hardware or software",
                (f"{w.change}: {seconds(w.step_s)} ({w.step_change_ratio:+.1%})" for w in explanation.what_ifs),
            ),
            ("Where the guides disagree", _disagreements(explanation)),
            ("What the guides say", _rules(explanation, all_rules=all_rules)),
        )
    )


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
        found = f"fastest layout found: {seconds(best.step_s)} ({best.step_change_ratio:+.1%})"
        yield f"{found}, {gib(best.memory_reserved_bytes)}  {best.label}: {', '.join(best.differences)}"
    for rung in explanation.throughput.rungs:
        over = "" if rung.fits else ", does not fit"
        memory = f"{gib(rung.memory_reserved_bytes)}{over}"
        yield f"{rung.knob}: {seconds(rung.step_s)} ({rung.step_change_ratio:+.1%}), {memory}  {rung.label}"


def _start(explanation: Explanation) -> Iterator[str]:
    start = explanation.start
    if start is None:
        yield "nothing near 4 B parameters a device is legal"
        return
    yield (
        f"{start.label}: {count(start.parameters_per_device)} parameters a device by the guide's measure, "
        f"{seconds(start.step_s)}, "
        f"{gib(start.memory_reserved_bytes)}{'' if start.fits else ', does not fit'}"
    )
    changed = ", ".join(start.differences) or "the same"
    yield f"this layout has {count(start.chosen_parameters_per_device)} and takes {start.chosen_change_ratio:+.1%}; {changed}"


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
    return f"{each.change}: {seconds(each.step_s)} ({each.step_change_ratio:+.1%}), {gib(each.memory_reserved_bytes)}{over}"


def _disagreements(explanation: Explanation) -> Iterator[str]:
    for each in explanation.disagreements:
        sides = "; ".join(side.says for side in each.sides)
        right = ", ".join(each.right) or "none of them"
        yield _with_sources(f"{each.topic}: {sides}. Right here: {right}. {each.sentence}", each.sides)


def _rules(explanation: Explanation, *, all_rules: bool) -> Iterator[str]:
    for judgement in explanation.judgements:
        if all_rules or judgement.verdict != "does-not-apply":
            yield _with_sources(f"[{judgement.verdict}] {judgement.says}: {judgement.sentence}", [judgement])


def _with_sources(words: str, cites: Sequence[Judgement | Side]) -> str:
    """A line, and in lines of its own below what the guides say, in their words."""
    return "\n".join([words, *(cited(f"guide {each.source}", each.rule) for each in cites)])
