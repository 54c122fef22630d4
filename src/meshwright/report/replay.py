"""The answer of ``tune --replay``: each trial, its prediction beside what was recorded, and what it came to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Run, figure, line, table
from meshwright.report.rehearse import terse
from meshwright.words import percent, plural, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.report.blocks import Block, Paragraph, Table

    View = Mapping[str, Any]

SHOWN = 3


def told_of(view: View) -> tuple[Block, ...]:
    """What a terminal prints: the cell, its trials, and the sentence."""
    head = line(Run(f"{view['cell']}: {plural(view['layouts'], 'layout')}, {view['measured']} of them measured", "strong"))
    said: list[Paragraph] = [*seed_lines(view), line(Run(view["verdict"], "strong")), *other_lines(view)]
    first, *rest = said
    return head, sampler_line(view), replay_table(view), replace(first, above=True), *rest


def sampler_line(view: View) -> Paragraph:
    """Who chose the trials, and by which calibration."""
    seen = f"; {view['known_configurations']} of them stand in the corpus that the shipped calibration was fitted to" \
        if view["known_configurations"] else ""
    return line(f"Sampler {view['sampler']}, calibration {view['calibration']}{seen}", kind="small")


def replay_table(view: View) -> Table:
    """A row a trial, in their order."""
    rows = []
    for count, (each, regret) in enumerate(zip(view["runs"], view["regret_by_trial"], strict=True), start=1):
        ran = each["step_s"] is not None
        rows.append((
            str(count), terse(each["label"]), figure(each["predicted_s"], seconds),
            figure(each["step_s"], seconds) if ran else each["status"],
            figure(each["tokens_per_s_per_device"], rate) if ran else "", figure(regret, percent),
        ))
    head = ("trial", "layout", "predicted", "recorded", "tokens/s\n/device", "regret\nso far")
    figures = {0, *range(2, len(head))}
    return table(head, rows, right=figures, whole=figures, above=True)


def seed_lines(view: View) -> Iterator[Paragraph]:
    """How soon each seed was near the best, where there are several."""
    if len(view["seeds"]) > 1:
        near = [each["trials_to_2_percent"] or "never" for each in view["seeds"]]
        yield line(f"Trials to within 2 % of the best, by seed: {', '.join(map(str, near))}")


def other_lines(view: View) -> Iterator[Paragraph]:
    """Which other cells the file has."""
    if len(view["cells"]) > 1:
        others = [each for each in view["cells"] if each != view["cell"]]
        more = ", ..." if len(others) > SHOWN else ""
        yield line(f"{plural(len(others), 'further cell')} in the file (--cell): {', '.join(others[:SHOWN])}{more}", kind="small")
