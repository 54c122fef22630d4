"""The page of ``diagnose``: verdict and figures, where the step went beside its prediction, the run, the ranks, the findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Bar, Block, Part, Run, Section, Tile, Tiles, View, figure, line, table
from meshwright.report.diagnose import (
    REMEDIES,
    TONES,
    VERDICTS,
    evidence_words,
    guide_lines,
    phase_lines,
    phase_rows,
    phases_title,
    told_of,
    worth,
)
from meshwright.report.page.plots import plot
from meshwright.report.pages.common import page
from meshwright.report.pages.layouts import strip
from meshwright.report.redacted import blanked
from meshwright.report.runs import closest_line
from meshwright.words import gib, integer, percent, seconds, speed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.api.verbs.diagnose import DiagnoseAnswer

CHARTS = (
    ("Where the step goes", "parts of a run", ("expected", "split"),
     "Of each part: observed above, predicted below; the whisker is where 90 % of runs lie."),
    ("Steps of the run", "course of a run", ("steps", "observed", "expected"),
     "The blue line is the median, green lines are the prediction with its interval; dots at the upper edge lie higher."),
    ("Compute of the ranks", "ranks of a run", ("ranks",), ""),
)
"""Title, kind of plot, what of the document it is drawn from, and its caption."""
WIDE = 30
"""Cells of a bar."""
MOST = 200
"""Findings on a page."""


def page_of(answer: DiagnoseAnswer) -> View:
    """The page of an answer; hosts, keys and paths are blanked in it where they are in the answer."""
    view, nearest = answer.to_picture(), closest_line(answer.closest)
    found = page_of_view(view, [
        Section(title="The nearest published run", blocks=tuple(blanked(nearest) if answer.redact else nearest)),
    ])
    return replace(found, told=told_of(answer))


def page_of_view(view: Mapping[str, Any], sections: Sequence[Section] = ()) -> View:
    """The page of the document with the steps and the ranks beside it; ``sections``: what stands below the charts."""
    seen = {"Where the step goes": view["expected"] or view["split"], "Steps of the run": view["steps"],
            "Compute of the ranks": len(view["ranks"]) > 1}
    charts = tuple(
        Section(title=title, blocks=(plot(kind, view={name: view[name] for name in names}, caption=caption),))
        for title, kind, names, caption in CHARTS if seen[title]
    )
    verdict = view["verdict"]
    notes = tuple(line(str(note), kind="small") for note in view["notes"])
    guides = tuple(replace(each, kind="item") for each in guide_lines(view))
    return page(
        "diagnose", VERDICTS[verdict][0].capitalize(),
        verdict="good" if verdict == "normal" else "bad" if verdict in ("failed", "hung") else "",
        first=(*([strip(view["label"])] if view["label"] else []), _tiles(view["observed"], view["expected"].get("step")), *notes),
        sections=(
            Section(title="Findings, the worst first", blocks=tuple(_findings(view))),
            *([_phases(view)] if view["phases"] is not None else []), *charts,
            Section(title="The guides' thresholds", blocks=guides), *sections, _read(view),
        ),
    )


def _tiles(observed: Mapping[str, Any], expected: Mapping[str, Any] | None) -> Tiles:
    predicted = "" if expected is None else f"predicted {seconds(expected['predicted_s'])}"
    known = (
        ("step, observed", observed["step_s"], seconds, predicted or "median"),
        ("MFU", observed["mfu_ratio"], percent, ""),
        ("tokens/s/device", observed["tokens_per_s_per_device"], speed, ""),
        ("memory", observed["memory_bytes"], gib, ""),
        ("devices", observed["devices"], integer, ""),
        ("steps that count", observed["steady"] or None, integer, f"of {integer(observed['iterations'] or 0)}"),
    )
    return Tiles(tiles=tuple(
        Tile(name=name, value=say(value), remark=remark) for name, value, say, remark in known if value is not None
    ))


def _phases(view: Mapping[str, Any]) -> Section:
    """A step of reinforcement learning, phase by phase."""
    rows = phase_rows(view)
    most = max(spent for _, spent, _ in rows)
    blocks: list[Block] = [table(("phase", "seconds", "share", ""), [
        (name, figure(spent, seconds), figure(ratio, percent),
         Bar(parts=(Part(name=name, letter="=", style="blue", value=spent),), scale=most, width=WIDE))
        for name, spent, ratio in rows
    ], right=(1, 2))]
    return Section(title=phases_title(view), blocks=(*blocks, *phase_lines(view)))


def _findings(view: Mapping[str, Any]) -> Iterator[Block]:
    """Each finding: what it is and what it costs, what shows it, what helps."""
    for each in view["findings"][:MOST]:
        lost, won = worth(each)
        yield line(
            Run(each["severity"], TONES[each["severity"]], badge=True), Run(each["message"], "strong"),
            Run(f"  {each['id']}", "dim"), kind="head",
        )
        if lost or won:
            yield line(*(replace(run, tone="bad") for run in lost), "; " if lost and won else "", *won)
        yield from (line(said, kind="small") for said in evidence_words(each))
        yield from (line(remedy, kind="item") for remedy in each["remedy"][:REMEDIES])
    if not view["findings"]:
        yield line("Nothing was found.")


def _read(view: Mapping[str, Any]) -> Section:
    """Which files were read, as what, and which were not."""
    rows = [[each["file"], ", ".join(each["formats"])] for each in view["read"]]
    rows += [[each["file"], f"not read: {each['why']}"] for each in view["left"]]
    return Section(title="Files", blocks=(table(["file", "read as"], rows[:MOST]),) if rows else ())
