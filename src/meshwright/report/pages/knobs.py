"""What one step of each knob, and better hardware or software, would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.explain.sensitivity import sensitivities, what_ifs
from meshwright.judging.facts import Facts
from meshwright.report.blocks import Block, Folded, Section, figure, table
from meshwright.report.blocks import Run as Said
from meshwright.report.page.drawn import Changed
from meshwright.report.page.plots import plot
from meshwright.words import gib, percent, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.estimate import Estimate
    from meshwright.explain.sensitivity import Sensitivity, WhatIf

MOST, LARGEST = 14, 1.0
"""How many changes are drawn, and up to which share of the step: one that doubles it hides the others."""
NOTABLE = 0.01
"""Of the step: a risk that is said beside a change."""


def knobs_section(given: Any, estimate: Estimate) -> Section | None:
    """The section of a layout."""
    facts = Facts(given.case, estimate.layout, given.framework.features, estimate, given.framework)
    return knobs_of(sensitivities(facts), what_ifs(facts))


def knobs_of(steps: Sequence[Sensitivity], others: Sequence[WhatIf]) -> Section | None:
    """The section of sensitivities that are known: what a step would do to the time, what it would need, why it is refused."""
    known = sorted((each for each in steps if each.step_change_ratio is not None), key=_change)
    blocks: list[Block] = []
    drawn = [each for each in known if abs(_change(each)) <= LARGEST][:MOST]
    if drawn:
        rows = [
            Changed(name=each.change.replace(" -> ", " \u2192 "), ratio=_change(each), bad=not each.fits, word=_word(each))
            for each in drawn
        ]
        blocks.append(plot(
            "changes", rows=rows, title="One step of each knob", less="shorter step", more="longer step",
            caption="The expected step, which counts the risk of not fitting, with one knob moved by one step, all else the same; "
                    "in brackets the step where it fits. Red does not fit in memory.",
        ))
    if steps:
        blocks.append(Folded(title="Every step of a knob, and why some are refused", blocks=(table(
            ["change", "step", "change of it", "expected", "memory", "change of it", "layout, or why not"],
            [_row(each) for each in [*known, *_refused(steps)]],
            right=[1, 2, 3, 4, 5],
        ),)))
    if others:
        blocks.append(table(
            ["better hardware or software", "step", "change of it", "MFU"],
            [[each.change, figure(each.step_s, seconds), figure(each.step_change_ratio, signed), figure(each.mfu_ratio, percent)]
             for each in others],
            right=[1, 2, 3],
        ))
    return Section(title="What a change would do", blocks=tuple(blocks)) if blocks else None


def _change(each: Sensitivity) -> float:
    """What decides: of a layout that fits by what is expected of it."""
    expected = each.expected_change_ratio if each.fits else None
    return (each.step_change_ratio or 0.0) if expected is None else expected


def _word(each: Sensitivity) -> str:
    if not each.fits:
        return f"{signed(_change(each))}, does not fit"
    step = each.step_change_ratio or 0.0
    return signed(_change(each)) + (f" ({signed(step)})" if abs(_change(each) - step) > NOTABLE else "")


def _refused(steps: Sequence[Sensitivity]) -> list[Sensitivity]:
    return [each for each in steps if each.step_change_ratio is None]


def _row(each: Sensitivity) -> list[Any]:
    if each.step_s is None or each.step_change_ratio is None:
        return [each.change, "", "", "", "", "", Said("; ".join(map(str, each.refused_because)), "dim")]
    memory, change = each.memory_reserved_bytes or 0.0, each.memory_change_bytes or 0.0
    moved = Said(f"{'-' if change < 0 else '+'}{gib(abs(change))}", value=change, unit="bytes")
    expected = "" if each.expected_change_ratio is None else figure(each.expected_change_ratio, signed)
    needed = figure(memory, gib, tone="" if each.fits else "bad")
    return [each.change, figure(each.step_s, seconds), figure(each.step_change_ratio, signed), expected, needed, moved,
            each.label or ""]
