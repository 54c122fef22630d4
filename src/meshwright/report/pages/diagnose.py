"""The page of ``diagnose``: verdict and figures, where the step went beside its prediction, the run, the ranks, the findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.report.blocks import Block, Page, Paragraph, Pieces, Run, Section, Tile, Tiles, drawn_twice, table, words
from meshwright.report.diagnose import VERDICTS, diagnose_report, worth
from meshwright.report.diagnosis_picture import course, parts, ranks
from meshwright.report.page.reading import sections_of
from meshwright.report.pages.common import page
from meshwright.report.pages.layouts import strip
from meshwright.report.redacted import blanked
from meshwright.words import gib, integer, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.api.verbs.diagnose import DiagnoseAnswer
    from meshwright.report.blocks import Tone

THRESHOLDS = "The guides' thresholds"
TONES: Mapping[str, Tone] = {"error": "bad", "warning": "warn", "advice": "accent"}
CHARTS = (
    ("Where the step goes", parts, "Of each part: observed above, predicted below; the whisker is where 90 % of runs lie."),
    ("Steps of the run", course,
     "The blue line is the median, green lines are the prediction with its interval; dots at the upper edge lie higher."),
    ("Compute of the ranks", ranks, ""),
)
MOST = 200
"""Findings on a page."""


def page_of(answer: DiagnoseAnswer) -> Page:
    """The page of an answer; hosts, keys and paths are blanked in it where they are in the answer."""
    told = blanked(diagnose_report(answer)) if answer.redact else diagnose_report(answer)
    thresholds = [block for each in sections_of(told)[1] if each.title == THRESHOLDS for block in each.blocks]
    return page_of_view(answer.to_picture(), [
        Section(title=THRESHOLDS, blocks=tuple(
            replace(each, kind="item") for each in thresholds if isinstance(each, Paragraph) and each.kind == "text"
        )),
        Section(title="The nearest published run", blocks=tuple(each for each in thresholds if isinstance(each, Pieces))),
    ])


def page_of_view(view: Mapping[str, Any], sections: Sequence[Section] = ()) -> Page:
    """The page of the document with the steps and the ranks beside it; ``sections``: what stands below the charts."""
    seen = {"Where the step goes": view["expected"] or view["split"], "Steps of the run": view["steps"],
            "Compute of the ranks": len(view["ranks"]) > 1}
    charts = tuple(
        Section(title=title, blocks=(drawn_twice(lambda width, draw=draw: draw(view, width), caption=caption),))  # type: ignore[misc]
        for title, draw, caption in CHARTS if seen[title]
    )
    verdict = view["verdict"]
    notes = tuple(Paragraph(words=words(str(note)), kind="small") for note in view["notes"])
    return page(
        "diagnose", VERDICTS[verdict][0].capitalize(),
        verdict="good" if verdict == "normal" else "bad" if verdict in ("failed", "hung") else "",
        first=(*([strip(view["label"])] if view["label"] else []), _tiles(view["observed"], view["expected"].get("step")), *notes),
        sections=(Section(title="Findings, the worst first", blocks=tuple(_findings(view))), *charts, *sections, _read(view)),
    )


def _tiles(observed: Mapping[str, Any], expected: Mapping[str, Any] | None) -> Tiles:
    predicted = "" if expected is None else f"predicted {seconds(expected['predicted_s'])}"
    known = (
        ("step, observed", observed["step_s"], seconds, predicted or "median"),
        ("MFU", observed["mfu_ratio"], percent, ""),
        ("tokens/s/device", observed["tokens_per_s_per_device"], lambda value: integer(round(value)), ""),
        ("memory", observed["memory_bytes"], gib, ""),
        ("devices", observed["devices"], integer, ""),
        ("steps that count", observed["steady"] or None, integer, f"of {integer(observed['iterations'] or 0)}"),
    )
    return Tiles(tiles=tuple(
        Tile(name=name, value=say(value), remark=remark) for name, value, say, remark in known if value is not None
    ))


def _findings(view: Mapping[str, Any]) -> Iterator[Block]:
    """Each finding: what it is and what it costs, what shows it, what helps."""
    for each in view["findings"][:MOST]:
        lost, won = worth(each["loss_ratio"], each["predicted_gain_ratio"], each["change"], at_most=each["gain_is_bound"])
        yield Paragraph(words=words(
            Run(each["severity"], TONES[each["severity"]], badge=True), Run(each["message"], "strong"),
            Run(f"  {each['id']}", "dim"),
        ), kind="head")
        if lost or won:
            yield Paragraph(words=words(Run(lost, "bad"), "; " if lost and won else "", Run(won, "good")))
        for one in each["evidence"][:3]:
            where = f"{one['file']}:{one['line']}" if one["line"] else one["file"] or ""
            yield Paragraph(words=words(f"{one['text']}  {where}".strip()), kind="small")
        for remedy in each["remedy"][:4]:
            yield Paragraph(words=words(remedy), kind="item")
    if not view["findings"]:
        yield Paragraph(words=words("Nothing was found."))


def _read(view: Mapping[str, Any]) -> Section:
    """Which files were read, as what, and which were not."""
    rows = [[each["file"], ", ".join(each["formats"])] for each in view["read"]]
    rows += [[each["file"], f"not read: {each['why']}"] for each in view["left"]]
    return Section(title="Files", blocks=(table(["file", "read as"], rows[:MOST]),) if rows else ())
