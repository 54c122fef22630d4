"""The page of ``balance``: the placement with its pipeline over time, or by how much nothing fits, or what dry runs say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.api.verbs.balance import BalanceAnswer, GuideAnswer, MemoriesAnswer
from meshwright.report.balance import (
    figure_lines,
    memory_word,
    notes_report,
    overfull_report,
    question_words,
    ranking_report,
    settings_section,
    stages_section,
    time_word,
    told_of,
)
from meshwright.report.blocks import Section, Tile, Tiles, View, parted
from meshwright.report.decomposition import decomposition_report, guide_report
from meshwright.report.page.drawn import Parted
from meshwright.report.page.plots import plot
from meshwright.report.page.theme import TEAL
from meshwright.report.pages.common import case_line, files_section, page
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.pipeline import pipeline_of
from meshwright.report.pipeline_view import pipeline_view
from meshwright.report.svg import BLUE, GREEN, ORANGE, PURPLE
from meshwright.units import GIB
from meshwright.words import percent, plural

if TYPE_CHECKING:
    from meshwright.api.views.balance import BalanceShown


def page_of(answer: BalanceAnswer | GuideAnswer | MemoriesAnswer) -> View:
    """The view of an answer."""
    return replace(_page_of(answer), told=tuple(told_of(answer)))


def _page_of(answer: BalanceAnswer | GuideAnswer | MemoriesAnswer) -> View:
    match answer:
        case GuideAnswer(proposal=proposal):
            title = f"{plural(len(proposal.rounds), 'dry run')} to make" if proposal.rounds else "No further dry run is needed"
            first, sections = parted(guide_report(proposal))
            return page("balance", title, first=first, sections=sections)
        case MemoriesAnswer(found=found, notes=notes):
            first, sections = parted([*notes_report(notes), *decomposition_report(found)])
            return page("balance", "What the peaks of dry runs come to", first=first, sections=sections)
        case BalanceAnswer():
            return _answered(answer)


def _answered(answer: BalanceAnswer) -> View:
    question, solved = answer.question, answer.solved
    case = question.case.case if question.case is not None else None
    subtitle = question.name if case is None else case_line(case)
    notes = tuple(notes_report(question.notes))
    ranking = Section(title="Numbers of virtual stages", blocks=tuple(ranking_report(solved.answers, solved.refused)))
    behind = () if question.decomposition is None else parted(decomposition_report(question.decomposition))[1]
    if not solved.answers:
        problem, verdict = solved.overfull[0]
        first, sections = parted(overfull_report(problem, verdict, question.name, question.units))
        title = "Nothing fits" if verdict.proved else "Nothing was found that fits"
        return page("balance", title, subtitle=subtitle, verdict="bad", first=(*notes, *first),
                    sections=(*sections, ranking, *behind))
    best = solved.answers[0]
    asked = Section(title="In figures", remark=f"{question.name}: {question_words(best.problem, best.units)}",
                    blocks=tuple(figure_lines(best)))
    view = pipeline_view(best.label or question.name, best.problem, best.balance.best, best.units)
    return page(
        "balance", _title(best), subtitle=subtitle, verdict="good",
        first=(*([strip(best.label)] if case is not None and best.label else []), _tiles(best), *notes),
        sections=(
            pipeline_of(view), _memory(best), asked, _bubble(best), stages_section(best), *settings_section(best.words), ranking,
            *behind, _files(question.case, best),
        ),
    )


def _title(best: BalanceShown) -> str:
    """How long the pipeline takes, and what that is against the slowest placement that stands beside it."""
    placed = best.balance.best.simulated_time
    slower = max((each.placement.simulated_time for each in best.rivals), default=placed)
    gain = f", {percent(1.0 - placed / slower)} less than as given" if slower > placed and any(
        each.placement.simulated_time == slower and "given" in each.name for each in best.rivals) else ""
    return f"Balanced: {time_word(placed, best.units)} for the pipeline{gain}"


def _tiles(best: BalanceShown) -> Tiles:
    """Time, slot, bubble, memory."""
    balance, units = best.balance, best.units
    placed = balance.best
    gap = balance.answer_gap_ratio
    return Tiles(tiles=(
        Tile(name="pipeline", value=time_word(placed.simulated_time, units),
             remark=f"gap {percent(gap)}" if gap else "slot proved"),
        Tile(name="slot", value=time_word(placed.slot_time, units)),
        Tile(name="bubble", value=percent(balance.bubble.total_ratio), remark="of the ideal work"),
        Tile(name="fullest stage", value=memory_word(max(placed.stage_memory), units),
             remark=f"bound {memory_word(max(best.problem.memory_bounds), units)}"),
    ))


def _memory(best: BalanceShown) -> Section:
    """Peaks of the stages against their bounds."""
    held, bounds = np.array(best.balance.best.stage_memory), np.array(best.problem.memory_bounds)
    scale = GIB if best.units.memory == "bytes" else 1.0
    one = len(set(bounds.tolist())) == 1 and bool(np.isfinite(bounds[0]))
    rows = [
        Parted(name=f"stage {stage}", parts=(float(each) / scale,), over=bool(each > bound * (1 + 1e-9)),
               word=f"{memory_word(float(each), best.units)}, {memory_word(float(bound - each), best.units)} free")
        for stage, (each, bound) in enumerate(zip(held, bounds, strict=True))
    ]
    return Section(title="Memory by stage against the bound", blocks=(plot(
        "stacked", rows=rows, parts=(("peak", TEAL),), title="Memory by stage", limit=float(bounds[0]) / scale if one else None,
        limit_word=f"bound {memory_word(float(bounds[0]), best.units)}" if one else "",
    ),))


def _bubble(best: BalanceShown) -> Section | None:
    """What the pipeline is longer by than ideal, cause by cause."""
    bubble = best.balance.bubble
    parts = [
        (name, max(value, 0.0), percent(value), colour)
        for name, value, colour in (
            ("ideal", bubble.ideal_ratio, BLUE), ("imbalance", bubble.imbalance_ratio, ORANGE),
            ("recomputation", bubble.recompute_ratio, PURPLE), ("communication", bubble.communication_ratio, GREEN),
        )
    ]
    if not any(value for _, value, _, _ in parts):
        return None
    return Section(title="What the bubble is made of", blocks=(
        plot("waterfall", parts=parts, title="The bubble", caption="Of the ideal work of a stage."),
    ))


def _files(given: Any, best: BalanceShown) -> Section | None:
    """Launch files of the balanced layout, where there is a model."""
    from meshwright.api.balancing.layouts import launch

    return None if given is None or best.estimate is None else files_section(launch(given, best))
