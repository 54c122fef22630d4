"""The report of ``balance``: stages with their layers, what they recompute, what they hold and how long they work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.balance import setting_text, stage_lines, treated
from meshwright.report.bars import MIN_BAR, Part, StackedBar
from meshwright.report.pieces import Pieces
from meshwright.units import GIB
from meshwright.words import chance, gib, gib_of, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.api.views.balance import BalanceShown, StageLine, Units
    from meshwright.domain.balance import Balance, BalanceProblem, Overfull, Placement
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.stage_lists import Words

BAR = 24
MAX_LINES = 32
"""Stages that are shown all; of more, the first and the last ones."""
MOST_CELLS = 6
"""Treatments times chunks up to which there is room for a bar."""
KIND_WORDS = {"selective": "select", "communication": "comm"}
MAX_WORD = 400
"""Characters of a setting that are shown."""


def figure(value: float) -> str:
    """A figure in units of whoever asked: four significant figures or more, separators."""
    return f"{value:z,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:z.4g}"


def time_word(value: float, units: Units) -> str:
    """A time with its unit where it has one."""
    return seconds(value) if units.time == "s" else figure(value)


def memory_word(value: float, units: Units) -> str:
    """A memory with its unit."""
    return gib(value) if units.memory == "bytes" else f"{figure(value)} MB"


def balance_report(answer: BalanceShown, name: str) -> Iterator[RenderableType]:
    """The question, the answer's figures, its stages, what else there is, and the settings that say it."""
    yield from question(answer.problem, name, answer.units)
    yield from _figures(answer)
    yield from _stages(answer)
    yield from _beside(answer)
    yield from _settings(answer.words)


def question(problem: BalanceProblem, name: str, units: Units) -> Iterator[RenderableType]:
    """What stands in the pipeline."""
    bodies = " + ".join(f"{body.layers} {body.name}" for body in problem.bodies) if len(problem.bodies) > 1 else ""
    chunks = f" of {plural(problem.chunks, 'chunk')}" if problem.chunks > 1 else ""
    splits = f" in {problem.sequence_splits} pieces" if problem.sequence_splits > 1 else ""
    bounds = sorted(set(problem.memory_bounds))
    bound = memory_word(bounds[0], units) + (f" to {memory_word(bounds[-1], units)}" if len(bounds) > 1 else "")
    microbatches = plural(problem.microbatches // problem.sequence_splits, "micro-batch", "micro-batches")
    line = Text.assemble((name, "bold"), f"  {plural(problem.layers, 'layer')}{f' ({bodies})' if bodies else ''} on ",
                         f"{plural(problem.stages, 'stage')}{chunks}, {microbatches}{splits}, "
                         f"{problem.schedule}, {bound} a stage")
    yield Padding(line, (1, 0, 0, 0))


def _figures(answer: BalanceShown) -> Iterator[RenderableType]:
    """Time, slot, bubble, and how sure they are."""
    balance, units = answer.balance, answer.units
    best, bubble = balance.best, balance.bubble
    if answer.label:
        yield Padding(Text(answer.label, style="bold cyan"), (1, 0, 0, 0))
        yield from _step(answer)
    head = (
        Text(f"pipeline {time_word(best.simulated_time, units)}", style="bold green"),
        f"slot {time_word(best.slot_time, units)}", f"bubble {percent(bubble.total_ratio)} of the ideal work",
    )
    yield Padding(Pieces(pieces=head), (0 if answer.label else 1, 0, 0, 0))
    parts = (
        f"ideal {percent(bubble.ideal_ratio)}", f"imbalance {percent(bubble.imbalance_ratio)}",
        f"recomputation {percent(bubble.recompute_ratio)}", f"communication {percent(bubble.communication_ratio)}",
    )
    yield Pieces(pieces=("= " + " + ".join(parts),))
    yield Pieces(pieces=(_proof(balance, units), f"solved in {seconds(balance.solve_s)}"), style="dim")


def _step(answer: BalanceShown) -> Iterator[RenderableType]:
    """The step of the balanced layout beside that of the given one, both by the whole cost model."""
    after, before = answer.estimate, answer.estimate_before
    if after is None or before is None:
        return
    change = f"{100 * (after.step_s / before.step_s - 1):+z.1f} %"
    was = f"as given {seconds(before.step_s)}" + ("" if before.fits else f", which does not fit ({_memory_of(before)})")
    yield Pieces(
        pieces=(Text(f"{seconds(after.step_s)} per step", style="bold green" if after.fits else "bold red"), f"({change}; {was})",
                f"memory {_memory_of(after)}", *_chance(after))
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


def _stages(answer: BalanceShown) -> Iterator[RenderableType]:
    """One row a stage: layers by chunk, recomputed ones by treatment, memory, slack, slot, share of the time at work."""
    units, problem = answer.units, answer.problem
    lines = stage_lines(problem, answer.balance.best)
    scale = max(*problem.memory_bounds, *(line.memory for line in lines))
    kinds, barred = list(lines[0].recompute), len(lines[0].recompute) * problem.chunks <= MOST_CELLS
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("stage", justify="right", no_wrap=True)
    for name in ("layers", *map(kind_word, kinds)):
        table.add_column(name, justify="right", overflow="fold", min_width=len(name))
    if barred:
        table.add_column(f"memory, to {memory_word(scale, units)}", min_width=MIN_BAR)
    for name in ("GiB" if units.memory == "bytes" else "MB", "free", "spare", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    for line, bound in shown(lines, problem.memory_bounds):
        table.add_row(
            str(line.stage), by_chunk(line.layers), *(by_chunk(line.recompute[name]) for name in kinds),
            *([_bar(line.memory, bound, scale)] if barred else []), _size(line.memory, units), _size(line.memory_slack, units),
            time_word(line.slot_slack, units), percent(line.busy_ratio, 0),
        )
    yield Padding(Text("Stages", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))
    chunks = "; layers by chunk, first to last" if problem.chunks > 1 else ""
    hidden = problem.stages - min(problem.stages, MAX_LINES)
    more = f"; {hidden} stages between are not shown" if hidden else ""
    words = "free: memory left; spare: slot left to the slowest stage; busy: share of the pipeline's time"
    bodies = "; recomputed are the first layers of a chunk; which kind these are: --json, recompute_by_body"
    mixed = bodies if len(problem.bodies) > 1 and len(problem.treatments) > 1 else ""
    yield Text(f"  {words}{chunks}{more}{mixed}", style="dim")


def _bar(memory: float, bound: float, scale: float) -> StackedBar:
    """Memory against its bound."""
    return StackedBar(parts=[Part(name="memory", letter="#", style="green", value=memory)], scale=scale, width=BAR, limit=bound)


def shown(lines: Sequence[StageLine], bounds: Sequence[float]) -> list[tuple[StageLine, float]]:
    """All stages with their bounds, or where they are many the first and the last ones."""
    rows = list(zip(lines, bounds, strict=True))
    return rows if len(rows) <= MAX_LINES else [*rows[: MAX_LINES // 2], *rows[-MAX_LINES // 2 :]]


def by_chunk(counts: Sequence[int]) -> str:
    """``2+2+1``; a dash where nothing is."""
    return "-" if not any(counts) else "+".join(map(str, counts))


def _size(value: float, units: Units) -> str:
    """A memory without its unit, which the column names."""
    return f"{value / GIB:.1f}" if units.memory == "bytes" else figure(value)


def _beside(answer: BalanceShown) -> Iterator[RenderableType]:
    """What the next best and what others had in mind would cost."""
    balance, units, problem = answer.balance, answer.units, answer.problem
    rows = [("this answer", balance.best, True)]
    rows += [("second best", balance.others[0], True)] if balance.others else []
    rows += [("with a longer slot", balance.faster, True)] if balance.faster is not None else []
    rows += [(rival.name, rival.placement, rival.fits) for rival in answer.rivals]
    if len(rows) == 1:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("beside it", min_width=18)
    for name in ("pipeline", "", "slot", "fullest stage"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("recomputed")
    for name, placement, fits in rows:
        change = placement.simulated_time / balance.best.simulated_time - 1
        fullest = memory_word(max(placement.stage_memory), units)
        table.add_row(
            name, time_word(placement.simulated_time, units), f"{100 * change:+z.1f} %" if placement is not balance.best else "",
            time_word(placement.slot_time, units), Text(fullest, style="" if fits else "bold red"),
            Text.assemble(_recomputed(problem, placement), ("" if fits else ": does not fit", "bold red")),
        )
    yield Padding(table, (1, 0, 0, 2))


def kind_word(treatment: str) -> str:
    """A treatment as the head of a narrow column."""
    return KIND_WORDS.get(treatment, treatment.removeprefix("selective:").replace(",", " "))


def _recomputed(problem: BalanceProblem, placement: Placement) -> str:
    """``11 full, 3 select``."""
    totals = {name: sum(map(sum, grid)) for name, grid in treated(problem, placement).items()}
    return ", ".join(f"{total} {kind_word(name)}" for name, total in totals.items() if total) or "nothing"


def _settings(words: Sequence[Words]) -> Iterator[RenderableType]:
    """Each framework's own settings; one that cannot say the answer gets the reason."""
    if not words:
        return
    yield Padding(Text("In the frameworks' own words", style="bold"), (1, 0, 0, 0))
    for each in words:
        if each.lacks:
            yield Text.assemble("  ", (each.framework, "cyan"), (f"  cannot: {'; '.join(each.lacks)}", "yellow"))
            continue
        yield Text.assemble("  ", (each.framework, "cyan"), "" if each.settings else "  nothing to set: it does so by itself")
        for key, value in each.settings.items():
            yield Text(f"    {setting_word(key, value)}", no_wrap=True)
        for note in each.notes:
            yield Text(f"    {note}", style="dim")


def setting_word(key: str, value: object) -> str:
    """A setting as a terminal shows it: lists of names by their lengths, other long ones cut."""
    rest = "--json and --save have all of it"
    if isinstance(value, list) and all(isinstance(part, list) and all(isinstance(name, str) for name in part) for part in value):
        counts = [sum(name.startswith("layers.") for name in part) for part in value]
        return f"{key}: the modules of {len(value)} parts with {', '.join(map(str, counts))} layers ({rest})"
    text = setting_text(key, value)
    return text if len(text) <= MAX_WORD else f"{text[:MAX_WORD]}... ({rest})"


def overfull_report(problem: BalanceProblem, verdict: Overfull, name: str, units: Units) -> Iterator[RenderableType]:
    """Nothing fits: what is demanded, the bound, what is missing, and what would help."""
    yield from question(problem, name, units)
    yield Padding(Text("Nothing fits." if verdict.proved else "Nothing was found that fits.", style="bold red"), (1, 0, 0, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    least = "demanded at least" if verdict.proved else "demanded by the best that was found"
    table.add_row(least, memory_word(verdict.demand, units))
    table.add_row("bound", memory_word(verdict.bound, units))
    table.add_row(Text("short of", style="bold"), Text(memory_word(verdict.gap, units), style="bold red"))
    yield Text(f"  memory of stage {verdict.stage}")
    yield Padding(table, (0, 0, 0, 2))
    if verdict.levers:
        yield Text("  What would close the gap", style="bold")
    for lever in verdict.levers:
        yield Padding(Text(f"- {lever}"), (0, 0, 0, 4))


def ranking_report(answers: Sequence[BalanceShown], refused: Sequence[tuple[int, str]]) -> Iterator[RenderableType]:
    """Numbers of virtual stages side by side, fastest pipeline first; those without an answer say why."""
    if len(answers) + len(refused) < 2:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in ("virtual stages", "pipeline", "", "slot", "bubble", "fullest stage", "proof"):
        table.add_column(name, justify="right", no_wrap=True)
    for answer in answers:
        balance, units = answer.balance, answer.units
        change = balance.best.simulated_time / answers[0].balance.best.simulated_time - 1
        table.add_row(
            str(answer.problem.chunks), time_word(balance.best.simulated_time, units), f"{100 * change:+z.1f} %" if change else "",
            time_word(balance.best.slot_time, units), percent(balance.bubble.total_ratio),
            memory_word(max(balance.best.stage_memory), units),
            f"gap {percent(balance.answer_gap_ratio, 2)}" if balance.answer_gap_ratio else "optimal",
        )
    yield Padding(table, (1, 0, 0, 2))
    for chunks, reason in refused:
        yield Text(f"  {plural(chunks, 'virtual stage')}: {reason}", style="yellow")


def notes_report(notes: Sequence[str]) -> Iterator[RenderableType]:
    """What the files say and what was made of it."""
    for place, note in enumerate(notes):
        yield Padding(Text(f"note: {note}", style="yellow"), (0 if place else 1, 0, 0, 0))
