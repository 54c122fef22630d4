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
from meshwright.report.headline import UNCALIBRATED
from meshwright.units import GIB
from meshwright.words import list_of, percent, rate, seconds, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from meshwright.domain.layout import Layout
    from meshwright.search.result import RankedPlan

BAR, MIN_BAR = 10, 3
MAX_CELL = len("full:99")
SURE = 0.95
"""Where each plan fits with this probability, a column of probabilities says nothing."""
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


def ranked_table(plans: Sequence[RankedPlan], error_ratio: float = 0.0) -> Iterator[RenderableType]:
    """The plans in their order; plans that the model cannot tell apart share a letter.

    ``error_ratio``: how far two plans must differ to be told apart; 0 where nobody says.
    """
    title = Text("Ranked plans", style="bold")
    if not all(plan.estimate.calibrated for plan in plans):
        title.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Padding(title, (1, 0, 0, 0))
    yield Ranking(plans=plans)
    letters = group_letters(plans)
    size = f" ({percent(error_ratio)})" if error_ratio else ""
    for group, letter in letters.items():
        ranks = [plan.rank for plan in plans if plan.group == group]
        first = plans[0].group == group
        more = "; --top lists more of them" if len(ranks) == len(plans) else ""
        wanted = f"{size}: measure these {small(len(ranks))}{more}" if first else ""
        words = f"plans {list_of(ranks)} differ by less than the error of the model{wanted}"
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
        wide = Padding(self._table(columns), (0, 0, 0, 2))
        if console.measure(wide, options=options.update(max_width=10 * options.max_width)).minimum > options.max_width:
            yield Padding(self._table({"layout": [plan.label for plan in self.plans]}), (0, 0, 0, 2))
            return
        yield wide
        notes = ["s: sequence parallel"] if any(plan.layout.sequence_parallel for plan in self.plans) else []
        notes += ["zero n/k: shard group of k"] if any("/" in cell for cell in columns["zero"]) else []
        for note in (["; ".join(notes)] if notes else []) + footnotes:
            yield Text(f"  {note}", style="dim")

    def _table(self, columns: Mapping[str, Sequence[str]]) -> Table:
        """Rank, group, the given columns, and the figures."""
        letters = group_letters(self.plans)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for name in columns:
            table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=name != "layout", overflow="fold")
        for name in ("step", "MFU", "tok/s/dev"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("")
        table.add_column("GiB", justify="right", no_wrap=True)
        doubtful = any(plan.estimate.interval and plan.estimate.memory_fit_probability < SURE for plan in self.plans)
        if doubtful:
            table.add_column("fits", justify="right", no_wrap=True)
        for place, plan in enumerate(self.plans):
            estimate = plan.estimate
            used = Part(name="memory", letter="#", style="green" if estimate.fits else "red",
                        value=estimate.memory_reserved_bytes)
            table.add_row(
                str(plan.rank), Text(letters.get(plan.group, ""), style="yellow"),
                *[Text(cells[place], style="dim" if cells[place] in {"1", "-"} else "") for cells in columns.values()],
                seconds(estimate.step_s), percent(estimate.mfu_ratio), rate(estimate.tokens_per_s_per_device),
                StackedBar(parts=[used], scale=estimate.memory_capacity_bytes, width=BAR, least=MIN_BAR),
                f"{estimate.memory_reserved_bytes / GIB:.1f}/{estimate.memory_capacity_bytes / GIB:.0f}",
                *([percent(estimate.memory_fit_probability, 0)] if doubtful else []),
                style="bold" if place == 0 else "",
            )
        return table


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


def pareto_table(front: Sequence[RankedPlan]) -> Iterator[RenderableType]:
    """Plans that no other beats in time and memory (and devices) at once."""
    fastest = min((plan.estimate.step_s for plan in front), default=0.0)
    near = [plan for plan in front if plan.estimate.step_s <= MAX_SLOWDOWN * fastest][:MAX_FRONT]
    if len(near) <= 1:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in ("step", "MFU", "memory", "devices"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout", overflow="fold")
    for plan in near:
        estimate = plan.estimate
        table.add_row(
            seconds(estimate.step_s), percent(estimate.mfu_ratio), f"{estimate.memory_reserved_bytes / GIB:.1f} GiB",
            f"{plan.layout.world:,}", plan.label,
        )
    yield Padding(Text("Less memory for more time", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))
