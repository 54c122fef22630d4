"""The ranked table: one column per knob that differs, figures beside, and which plans to measure together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.domain.label import recompute_word
from meshwright.report.bars import Part, StackedBar
from meshwright.report.folded import FoldedLabel
from meshwright.report.headline import UNCALIBRATED
from meshwright.units import GIB
from meshwright.words import list_of, narrow_chance, percent, rate, seconds, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from meshwright.domain.layout import Layout
    from meshwright.search.result import Objective, RankedPlan

BAR, MIN_BAR, BAR_OF = 10, 3, "bar"
ROOMY = 100
"""Columns of a terminal from which labels leave room for every figure."""
MAX_CELL = len("full:99")
_RANKED_BY: Mapping[Objective, str] = {
    "step-time": "step time", "memory": "memory of the fullest device", "throughput-per-device": "step time times devices",
}
_RISK = ": the step over the probability that it fits in memory"
"""What is expected of a step, where a calibration knows the risk."""
MAX_FRONT, MAX_SLOWDOWN = 6, 2.0
"""How much of the Pareto front is worth a person's time."""
_ALWAYS = {"tp", "pp", "dp", "mb", "zero"}


def _zero(layout: Layout) -> str:
    """The ZeRO stage, and the size of the shard group where it is not all ranks."""
    whole = layout.data_parallel * layout.context_parallel
    partial = layout.zero_stage > 0 and layout.optimizer_shards != whole
    return f"{layout.zero_stage}/{layout.optimizer_shards}" if partial else str(layout.zero_stage)


KNOBS: dict[str, Callable[[Layout], str]] = {
    "tp": lambda layout: f"{layout.tensor_parallel}{'s' if layout.sequence_parallel else ''}",
    "cp": lambda layout: str(layout.context_parallel),
    "cp kind": lambda layout: layout.context_kind if layout.context_parallel > 1 else "-",
    "pp": lambda layout: str(layout.pipeline_parallel),
    "vp": lambda layout: str(layout.virtual_stages),
    "ep": lambda layout: str(layout.expert_parallel),
    "etp": lambda layout: str(layout.expert_tensor_parallel),
    "dp": lambda layout: str(layout.data_parallel),
    "mb": lambda layout: str(layout.microbatch_sequences),
    "zero": _zero,
    "schedule": lambda layout: layout.schedule if layout.schedule not in {"1f1b", "interleaved"} else "-",
    "recompute": lambda layout: "-" if recompute_word(layout.recompute) == "none" else recompute_word(layout.recompute),
    "layers": lambda layout: "-" if layout.stage_layers is None else "uneven",
    "offload": lambda layout: ",".join(layout.offload) or "-",
}
"""Column -> cell; ``1`` and ``-`` are neutral, and a column of nothing else is left out."""
_WORDS = {"recompute", "layout"}
_NEUTRAL = ({"1"}, {"-"})


def ranked_table(
    plans: Sequence[RankedPlan], error_ratio: float = 0.0, objective: Objective = "step-time"
) -> Iterator[RenderableType]:
    """The plans in their order; plans that the model cannot tell apart share a letter.

    ``error_ratio``: how far two plans must differ to be told apart; 0 where nobody says.
    """
    risk = any(plan.estimate.interval for plan in plans)
    named = _RANKED_BY[objective] + (_RISK if risk and objective != "memory" else "")
    title = Text.assemble(("Ranked plans", "bold"), (f"  by {'expected ' if named.endswith(_RISK) else ''}{named}", "dim"))
    if not all(plan.estimate.calibrated for plan in plans):
        title.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Padding(title, (1, 0, 0, 0))
    yield Ranking(plans=plans)
    letters = group_letters(plans)
    size = f" ({percent(error_ratio)})" if error_ratio else ""
    if objective == "memory":
        for group, letter in letters.items():
            ranks = [plan.rank for plan in plans if plan.group == group]
            alike = f"plans {list_of(ranks)} need the same memory within {percent(error_ratio)}"
            yield Padding(Text(f"{letter}: {alike}", style="yellow"), (0, 0, 0, 2))
        return
    for group, letter in letters.items():
        ranks = [plan.rank for plan in plans if plan.group == group]
        first = plans[0].group == group
        more = "; --top lists more of them" if len(ranks) == len(plans) else ""
        wanted = f"{size}: measure these {small(len(ranks))}{more}" if first else ""
        words = f"expected times of plans {list_of(ranks)} differ by less than the error of the model{wanted}"
        yield Padding(Text(f"{letter}: {words}", style="yellow"), (0, 0, 0, 2))
    if len(plans) > 1 and plans[0].group not in letters:
        yield Padding(Text(f"plan 1 leads the others by more than the error of the model{size}", style="yellow"), (0, 0, 0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The table with a column per knob where there is room, and with labels where there is not."""

    plans: Sequence[RankedPlan]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The wide table, or the narrow one."""
        columns = {name: [cell(plan.layout) for plan in self.plans] for name, cell in KNOBS.items()}
        columns = {name: cells for name, cells in columns.items() if name in _ALWAYS or set(cells) not in _NEUTRAL}
        footnotes = _shorten(columns.get("recompute", []))
        without = (frozenset[str](), frozenset({BAR_OF}), frozenset({BAR_OF, "tok/s/dev"}))
        tables = (Padding(self._table(columns, without=each), (0, 0, 0, 2)) for each in without)
        room = options.update(max_width=10 * options.max_width)
        wide = next((each for each in tables if console.measure(each, options=room).minimum <= options.max_width), None)
        if wide is None:
            labels = {"layout": [plan.label for plan in self.plans]}
            yield Padding(self._table(labels, without[-1] if options.max_width < ROOMY else without[0]), (0, 0, 0, 2))
            return
        yield wide
        notes = ["s: sequence parallel"] if any(plan.layout.sequence_parallel for plan in self.plans) else []
        notes += ["zero n/k: shard group of k"] if any("/" in cell for cell in columns["zero"]) else []
        for note in (["; ".join(notes)] if notes else []) + footnotes:
            yield Text(f"  {note}", style="dim")

    def _table(self, columns: Mapping[str, Sequence[str]], without: frozenset[str] = frozenset()) -> Table:
        """Rank, group, the given columns, and the figures; ``without`` those for which there is no room."""
        letters = group_letters(self.plans)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for name, cells in columns.items():
            whole = 0 if name == "layout" else max(map(len, (name, *cells)))
            table.add_column(name, no_wrap=name != "layout", overflow="fold", min_width=whole or None)
            table.columns[-1].justify = "left" if name in _WORDS else "right"
        figures = {name: cells for name, cells in self._figures().items() if name not in without}
        bar = BAR_OF not in without
        for name, cells in figures.items():
            if bar and name == "GiB":
                table.add_column("")
            table.add_column(name, justify="right", no_wrap=True, min_width=max(map(len, (name, *cells))))
        for place, plan in enumerate(self.plans):
            estimate = plan.estimate
            used = Part(name="memory", letter="#", style="green" if estimate.fits else "red",
                        value=estimate.memory_reserved_bytes)
            shown: list[RenderableType] = [cells[place] for cells in figures.values()]
            if bar:
                shown.insert(
                    list(figures).index("GiB"),
                    StackedBar(parts=[used], scale=estimate.memory_capacity_bytes, width=BAR, least=MIN_BAR),
                )
            table.add_row(
                str(plan.rank), Text(letters.get(plan.group, ""), style="yellow"),
                *[
                    FoldedLabel(cells[place]) if name == "layout"
                    else Text(cells[place], style="dim" if cells[place] in {"1", "-"} else "") for name, cells in columns.items()
                ],
                *shown, style="bold" if place == 0 else "",
            )
        return table

    def _figures(self) -> dict[str, list[str]]:
        """Column -> cells: what plans are ranked by, where it is known apart from the step, what it is made of, and speeds."""
        estimates = [plan.estimate for plan in self.plans]
        risk = any(each.interval for each in estimates)
        figures = {"expected": [seconds(each.expected_step_s) for each in estimates]} if risk else {}
        figures["step"] = [seconds(each.step_s) for each in estimates]
        if risk:
            figures["fits"] = [narrow_chance(each.memory_fit_probability) for each in estimates]
        return figures | {
            "MFU": [percent(each.mfu_ratio) for each in estimates],
            "tok/s/dev": [rate(each.tokens_per_s_per_device) for each in estimates],
            "GiB": [f"{each.memory_reserved_bytes / GIB:.1f}/{each.memory_capacity_bytes / GIB:.0f}" for each in estimates],
        }


def _shorten(cells: list[str]) -> list[str]:
    """Replace long recompute words by short ones, in place, and return what those mean."""
    long = list(dict.fromkeys(cell for cell in cells if len(cell) > MAX_CELL))
    short = {cell: f"{cell.partition(':')[0]} ({place})" for place, cell in enumerate(long, start=1)}
    cells[:] = [short.get(cell, cell) for cell in cells]
    return [f"({place}): recompute={cell}" for place, cell in enumerate(long, start=1)]


def group_letters(plans: Sequence[RankedPlan]) -> dict[int, str]:
    """A letter for every group of more than one plan, in their order."""
    groups = [plan.group for plan in plans]
    shared = [group for group in dict.fromkeys(groups) if groups.count(group) > 1]
    return {group: chr(ord("a") + place % 26) for place, group in enumerate(shared)}


def pareto_table(front: Sequence[RankedPlan], objective: Objective = "step-time") -> Iterator[RenderableType]:
    """Plans that no other beats in expected time and memory (and devices) at once, from the best by what is ranked by on."""
    title = "Less memory for more time"
    if objective == "memory":
        title, near = "Less time for more memory", list(reversed(front))[:MAX_FRONT]
    else:
        fastest = min((plan.estimate.expected_step_s for plan in front), default=0.0)
        near = [plan for plan in front if plan.estimate.expected_step_s <= MAX_SLOWDOWN * fastest][:MAX_FRONT]
    if len(near) > 1:
        yield Padding(Text(title, style="bold"), (1, 0, 0, 0))
        yield Padding(_beside(near), (0, 0, 0, 2))


def riskier_table(riskier: Sequence[RankedPlan]) -> Iterator[RenderableType]:
    """Plans that take less time than the first where they fit, but are expected to take more."""
    if riskier:
        yield Padding(Text("Faster where they fit, but less likely to fit", style="bold"), (1, 0, 0, 0))
        yield Padding(_beside(riskier), (0, 0, 0, 2))


def _beside(plans: Sequence[RankedPlan]) -> Table:
    """Plans by time, probability and memory, with their labels."""
    risk = any(plan.estimate.interval for plan in plans)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    fewer = len({plan.layout.world for plan in plans}) > 1
    names = (*(("expected", "step", "fits") if risk else ("step",)), "MFU", "memory", *(("devices",) if fewer else ()))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout", overflow="fold")
    for plan in plans:
        estimate = plan.estimate
        expected = [seconds(estimate.expected_step_s)] if risk else []
        fits = [narrow_chance(estimate.memory_fit_probability)] if risk else []
        table.add_row(
            *expected, seconds(estimate.step_s), *fits, percent(estimate.mfu_ratio),
            f"{estimate.memory_reserved_bytes / GIB:.1f} GiB",
            *([f"{plan.layout.world:,}"] if fewer else []), FoldedLabel(plan.label),
        )
    return table
