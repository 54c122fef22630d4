"""The report of ``balance``: stages with their layers, what they recompute, what they hold and how long they work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.balance import setting_text, stage_lines, treated
from meshwright.report.blocks import Bar, Block, Part, Run, Section, cell, figure, line, pieces, table
from meshwright.words import bare_gib, chance, gib, gib_of, percent, plural, seconds, signed, unitless

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.verbs.balance import BalanceAnswer, GuideAnswer, MemoriesAnswer
    from meshwright.api.views.balance import BalanceShown, StageLine, Units
    from meshwright.domain.balance import Balance, BalanceProblem, Overfull, Placement
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.stage_lists import Words
    from meshwright.report.blocks import Told

BAR, MIN_BAR = 24, 10
MAX_LINES = 32
"""Stages that are shown all; of more, the first and the last ones."""
MOST_CELLS = 6
"""Treatments times chunks up to which there is room for a bar."""
KIND_WORDS = {"selective": "select", "communication": "comm"}
MAX_WORD = 400
"""Characters of a setting that are shown."""


def time_word(value: float, units: Units) -> str:
    """A time with its unit where it has one."""
    return seconds(value) if units.time == "s" else unitless(value)


def memory_word(value: float, units: Units) -> str:
    """A memory with its unit."""
    return gib(value) if units.memory == "bytes" else f"{unitless(value)} MB"


def time_run(value: float, units: Units, tone: Any = "", *, bold: bool = False) -> Run:
    """A time as a figure."""
    return Run(time_word(value, units), tone, bold=bold, value=value, unit=units.time or "time")


def memory_run(value: float, units: Units, tone: Any = "", *, bold: bool = False) -> Run:
    """A memory as a figure."""
    return Run(memory_word(value, units), tone, bold=bold, value=value, unit=units.memory)


def told_of(answer: BalanceAnswer | GuideAnswer | MemoriesAnswer) -> Iterator[Told]:
    """What a terminal prints: tables of the best answer, by how much nothing fits, or what dry runs say."""
    from meshwright.api.verbs.balance import BalanceAnswer, GuideAnswer
    from meshwright.report.cost import saved_lines
    from meshwright.report.decomposition import decomposition_report, guide_report

    if isinstance(answer, GuideAnswer):
        yield from guide_report(answer.proposal)
    elif not isinstance(answer, BalanceAnswer):
        yield from notes_report(answer.notes)
        yield from decomposition_report(answer.found)
    else:
        question, solved = answer.question, answer.solved
        if question.decomposition is not None:
            yield from decomposition_report(question.decomposition)
        yield from notes_report(question.notes)
        if solved.answers:
            yield from balance_report(solved.answers[0], question.name)
        else:
            problem, verdict = solved.overfull[0]
            yield from overfull_report(problem, verdict, question.name, question.units)
        yield from ranking_report(solved.answers, solved.refused)
        if answer.saved:
            yield from saved_lines(answer.saved)


def balance_report(answer: BalanceShown, name: str) -> Iterator[Told]:
    """The question, the answer's figures, its stages, what else there is, and the settings that say it."""
    yield Section(title=name, remark=question_words(answer.problem, answer.units), blocks=tuple(figure_lines(answer)))
    yield stages_section(answer)
    yield from settings_section(answer.words)


def question_words(problem: BalanceProblem, units: Units) -> str:
    """What stands in the pipeline."""
    bodies = " + ".join(f"{body.layers} {body.name}" for body in problem.bodies) if len(problem.bodies) > 1 else ""
    chunks = f" of {plural(problem.chunks, 'chunk')}" if problem.chunks > 1 else ""
    splits = f" in {problem.sequence_splits} pieces" if problem.sequence_splits > 1 else ""
    bounds = sorted(set(problem.memory_bounds))
    bound = memory_word(bounds[0], units) + (f" to {memory_word(bounds[-1], units)}" if len(bounds) > 1 else "")
    microbatches = plural(problem.microbatches // problem.sequence_splits, "micro-batch", "micro-batches")
    return (
        f"{plural(problem.layers, 'layer')}{f' ({bodies})' if bodies else ''} on {plural(problem.stages, 'stage')}{chunks}, "
        f"{microbatches}{splits}, {problem.schedule}, {bound} a stage"
    )


def figure_lines(answer: BalanceShown) -> Iterator[Block]:
    """Time, slot, bubble, and how sure they are."""
    balance, units = answer.balance, answer.units
    best, bubble = balance.best, balance.bubble
    if answer.label:
        yield line(Run(answer.label, "accent", bold=True), above=True)
        yield from _step(answer)
    yield pieces(
        Run(f"pipeline {time_word(best.simulated_time, units)}", "good", bold=True), f"slot {time_word(best.slot_time, units)}",
        f"bubble {percent(bubble.total_ratio)} of the ideal work", above=not answer.label,
    )
    parts = (
        f"ideal {percent(bubble.ideal_ratio)}", f"imbalance {percent(bubble.imbalance_ratio)}",
        f"recomputation {percent(bubble.recompute_ratio)}", f"communication {percent(bubble.communication_ratio)}",
    )
    yield pieces("= " + " + ".join(parts))
    yield pieces(_proof(balance, units), f"solved in {seconds(balance.solve_s)}", kind="small")


def _step(answer: BalanceShown) -> Iterator[Block]:
    """The step of the balanced layout beside that of the given one, both by the whole cost model."""
    after, before = answer.estimate, answer.estimate_before
    if after is None or before is None:
        return
    was = f"as given {seconds(before.step_s)}" + ("" if before.fits else f", which does not fit ({_memory_of(before)})")
    yield pieces(
        Run(f"{seconds(after.step_s)} per step", "good" if after.fits else "bad", bold=True),
        f"({signed(after.step_s / before.step_s - 1)}; {was})", f"memory {_memory_of(after)}", *_chance(after),
    )


def _chance(estimate: Estimate) -> list[str]:
    """How likely the layout fits, where a calibration can tell."""
    return [] if estimate.interval is None else [f"fits with {chance(estimate.memory_fit_probability)} probability"]


def _memory_of(estimate: Estimate) -> str:
    return gib_of(estimate.memory_reserved_bytes, estimate.memory_capacity_bytes)


def _proof(balance: Balance, units: Units) -> str:
    """How far from the best possible the answer is at most."""
    best, found = balance.best, time_word(balance.slot_found, units)
    gap, shorter = balance.answer_gap_ratio, 1.0 - balance.simulated_bound / best.simulated_time
    slot = f"no slot is shorter than {found} (proved)"
    if balance.status != "optimal":
        slot = f"no slot is more than {percent(balance.gap_ratio, 2)} shorter than {found} (the time limit ended the proof)"
    longer = best.slot_time / balance.slot_found - 1
    if longer > 1e-9:
        slot += f"; this one is {percent(longer)} longer"
    return f"{'gap' if gap else 'optimal'}: {slot}; no pipeline is more than {percent(shorter)} shorter"


def stages_section(answer: BalanceShown) -> Section:
    """One row a stage: layers by chunk, recomputed ones by treatment, memory, slack, slot, share of the time at work."""
    units, problem = answer.units, answer.problem
    lines = stage_lines(problem, answer.balance.best)
    scale = max(*problem.memory_bounds, *(each.memory for each in lines))
    kinds, barred = list(lines[0].recompute), len(lines[0].recompute) * problem.chunks <= MOST_CELLS
    counts = ("layers", *map(kind_word, kinds))
    bar = (f"memory, to {memory_word(scale, units)}",) if barred else ()
    head = ("stage", *counts, *bar, "GiB" if units.memory == "bytes" else "MB", "free", "spare", "busy")
    rows: list[tuple[str | Run | Bar, ...]] = [
        (
            str(each.stage), by_chunk(each.layers), *(by_chunk(each.recompute[name]) for name in kinds),
            *([_bar(each.memory, bound, scale)] if barred else []), _size(each.memory, units), _size(each.memory_slack, units),
            time_run(each.slot_slack, units), figure(each.busy_ratio, percent, 0),
        )
        for each, bound in shown(lines, problem.memory_bounds)
    ]
    last, place = len(head), 1 + len(counts)
    least = [*((number, len(name)) for number, name in enumerate(counts, start=1)), *([(place, MIN_BAR)] if barred else [])]
    stages = table(head, rows, right=set(range(last)) - ({place} if barred else set()), whole={0, *range(last - 4, last)},
                   least=tuple(least))
    chunks = "; layers by chunk, first to last" if problem.chunks > 1 else ""
    hidden = problem.stages - min(problem.stages, MAX_LINES)
    more = f"; {hidden} stages between are not shown" if hidden else ""
    words = "free: memory left; spare: slot left to the slowest stage; busy: share of the pipeline's time"
    bodies = "; recomputed are the first layers of a chunk; which kind these are: --json, recompute_by_body"
    mixed = bodies if len(problem.bodies) > 1 and len(problem.treatments) > 1 else ""
    said = line(f"{words}{chunks}{more}{mixed}", kind="small", indent=2)
    return Section(title="Stages", blocks=(stages, said, *_beside(answer)))


def _bar(memory: float, bound: float, scale: float) -> Bar:
    """Memory against its bound."""
    return Bar(parts=(Part(name="memory", letter="#", style="green", value=memory),), scale=scale, width=BAR, limit=bound)


def shown(lines: Sequence[StageLine], bounds: Sequence[float]) -> list[tuple[StageLine, float]]:
    """All stages with their bounds, or where they are many the first and the last ones."""
    rows = list(zip(lines, bounds, strict=True))
    return rows if len(rows) <= MAX_LINES else [*rows[: MAX_LINES // 2], *rows[-MAX_LINES // 2 :]]


def by_chunk(counts: Sequence[int]) -> str:
    """``2+2+1``; a dash where nothing is."""
    return "-" if not any(counts) else "+".join(map(str, counts))


def _size(value: float, units: Units) -> Run:
    """A memory without its unit, which the column names."""
    return Run(bare_gib(value) if units.memory == "bytes" else unitless(value), value=value, unit=units.memory)


def _beside(answer: BalanceShown) -> Iterator[Block]:
    """What the next best and what others had in mind would cost."""
    balance, units, problem = answer.balance, answer.units, answer.problem
    rows = [("this answer", balance.best, True)]
    rows += [("second best", balance.others[0], True)] if balance.others else []
    rows += [("with a longer slot", balance.faster, True)] if balance.faster is not None else []
    rows += [(rival.name, rival.placement, rival.fits) for rival in answer.rivals]
    if len(rows) == 1:
        return
    told = [
        (
            name, time_run(placed.simulated_time, units),
            figure(placed.simulated_time / balance.best.simulated_time - 1, signed) if placed is not balance.best else "",
            time_run(placed.slot_time, units), memory_run(max(placed.stage_memory), units, "" if fits else "bad", bold=not fits),
            cell(_recomputed(problem, placed), *([] if fits else [Run(": does not fit", "bad", bold=True)])),
        )
        for name, placed, fits in rows
    ]
    head = ("beside it", "pipeline", "", "slot", "fullest stage", "recomputed")
    yield table(head, told, right=range(1, 5), whole=range(1, 5), least=((0, 18),), above=True)


def kind_word(treatment: str) -> str:
    """A treatment as the head of a narrow column."""
    return KIND_WORDS.get(treatment, treatment.removeprefix("selective:").replace(",", " "))


def _recomputed(problem: BalanceProblem, placement: Placement) -> str:
    """``11 full, 3 select``."""
    totals = {name: sum(map(sum, grid)) for name, grid in treated(problem, placement).items()}
    return ", ".join(f"{total} {kind_word(name)}" for name, total in totals.items() if total) or "nothing"


def settings_section(words: Sequence[Words]) -> Iterator[Section]:
    """Each framework's own settings; one that cannot say the answer gets the reason."""
    if words:
        yield Section(title="In the frameworks' own words", blocks=tuple(block for each in words for block in _said(each)))


def _said(each: Words) -> Iterator[Block]:
    name = Run(each.framework, "accent")
    if each.lacks:
        yield line(name, Run(f"  cannot: {'; '.join(each.lacks)}", "warn"), indent=2)
        return
    yield line(name, "" if each.settings else "  nothing to set: it does so by itself", indent=2)
    for key, value in each.settings.items():
        yield line(setting_word(key, value), whole=True, indent=4)
    for note in each.notes:
        yield line(note, kind="small", indent=4)


def setting_word(key: str, value: object) -> str:
    """A setting as a terminal shows it: lists of names by their lengths, other long ones cut."""
    rest = "--json and --save have all of it"
    if isinstance(value, list) and all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in value):
        counts = [sum(name.startswith("layers.") for name in part) for part in value]
        return f"{key}: the modules of {len(value)} parts with {', '.join(map(str, counts))} layers ({rest})"
    text = setting_text(key, value)
    return text if len(text) <= MAX_WORD else f"{text[:MAX_WORD]}... ({rest})"


def overfull_report(problem: BalanceProblem, verdict: Overfull, name: str, units: Units) -> Iterator[Told]:
    """Nothing fits: what is demanded, the bound, what is missing, and what would help."""
    yield Section(title=name, remark=question_words(problem, units), blocks=())
    yield line(Run("Nothing fits." if verdict.proved else "Nothing was found that fits.", "bad", bold=True), above=True)
    yield line(f"memory of stage {verdict.stage}", indent=2)
    least = "demanded at least" if verdict.proved else "demanded by the best that was found"
    yield table(["", ""], [
        (least, memory_run(verdict.demand, units)), ("bound", memory_run(verdict.bound, units)),
        (Run("short of", "strong"), memory_run(verdict.gap, units, "bad", bold=True)),
    ], right=[1], whole=[0, 1], look="plain")
    if verdict.levers:
        yield line(Run("What would close the gap", "strong"), indent=2)
    for lever in verdict.levers:
        yield line(lever, kind="item", indent=4)


def ranking_report(answers: Sequence[BalanceShown], refused: Sequence[tuple[int, str]]) -> Iterator[Block]:
    """Numbers of virtual stages side by side, fastest pipeline first; those without an answer say why."""
    if len(answers) + len(refused) < 2:
        return
    rows = []
    for answer in answers:
        balance, units = answer.balance, answer.units
        change = balance.best.simulated_time / answers[0].balance.best.simulated_time - 1
        gap = balance.answer_gap_ratio
        rows.append((
            str(answer.problem.chunks), time_run(balance.best.simulated_time, units), figure(change, signed) if change else "",
            time_run(balance.best.slot_time, units), figure(balance.bubble.total_ratio, percent),
            memory_run(max(balance.best.stage_memory), units), cell("gap ", figure(gap, percent, 2)) if gap else "optimal",
        ))
    head = ("virtual stages", "pipeline", "", "slot", "bubble", "fullest stage", "proof")
    yield table(head, rows, right=range(7), whole=range(7), above=True)
    for chunks, reason in refused:
        yield line(Run(f"{plural(chunks, 'virtual stage')}: {reason}", "warn"), indent=2)


def notes_report(notes: Sequence[str]) -> Iterator[Block]:
    """What the files say and what was made of it."""
    for place, note in enumerate(notes):
        yield line(f"note: {note}", kind="note", above=not place)
