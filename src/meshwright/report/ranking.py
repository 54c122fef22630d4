"""The ranked table: one column per knob that differs, figures beside, and which plans to measure together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.label import recompute_word
from meshwright.report.blocks import Bar, Block, Cell, Columns, Part, Run, Section, Table, cell, figure, line, table, words
from meshwright.report.headline import UNCALIBRATED
from meshwright.words import bare_gib, gib, list_of, narrow_chance, percent, rate, seconds, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from meshwright.domain.layout import Layout
    from meshwright.search.result import Objective, RankedPlan

BAR, MIN_BAR = 10, 3
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
) -> Iterator[Section]:
    """The plans in their order; plans that the model cannot tell apart share a letter.

    ``error_ratio``: how far two plans must differ to be told apart; 0 where nobody says.
    """
    risk = any(plan.estimate.interval for plan in plans)
    named = _RANKED_BY[objective] + (_RISK if risk and objective != "memory" else "")
    remark = f"by {'expected ' if named.endswith(_RISK) else ''}{named}"
    mark = "" if all(plan.estimate.calibrated for plan in plans) else UNCALIBRATED
    yield Section(title="Ranked plans", remark=remark, mark=mark,
                  blocks=(ranking(plans), *_alike(plans, error_ratio, objective)))


def _alike(plans: Sequence[RankedPlan], error_ratio: float, objective: Objective) -> Iterator[Block]:
    """Which plans the model cannot tell apart, and which of them to measure."""
    letters = group_letters(plans)
    size = f" ({percent(error_ratio)})" if error_ratio else ""
    for group, letter in letters.items():
        ranks = [plan.rank for plan in plans if plan.group == group]
        said = f"plans {list_of(ranks)} need the same memory within {percent(error_ratio)}"
        if objective != "memory":
            more = "; --top lists more of them" if len(ranks) == len(plans) else ""
            wanted = f"{size}: measure these {small(len(ranks))}{more}" if plans[0].group == group else ""
            said = f"expected times of plans {list_of(ranks)} differ by less than the error of the model{wanted}"
        yield line(Run(f"{letter}: {said}", "warn"), indent=2)
    if objective != "memory" and len(plans) > 1 and plans[0].group not in letters:
        yield line(Run(f"plan 1 leads the others by more than the error of the model{size}", "warn"), indent=2)


def ranking(plans: Sequence[RankedPlan]) -> Table:
    """The table with a column per knob where there is room, and with labels where there is not."""
    knobs = {name: [own(plan.layout) for plan in plans] for name, own in KNOBS.items()}
    knobs = {name: cells for name, cells in knobs.items() if name in _ALWAYS or set(cells) not in _NEUTRAL}
    footnotes = _shorten(knobs.get("recompute", []))
    letters, figures = group_letters(plans), _figures(plans)
    before = len(figures) - 1  # the bar of the memory stands before its figure
    head = ("#", "", *knobs, "layout", *list(figures)[:before], "", *list(figures)[before:])
    first = 2 + len(knobs)
    rows = []
    for place, plan in enumerate(plans):
        own = [each[place] for each in figures.values()]
        rows.append((
            str(plan.rank), Run(letters.get(plan.group, ""), "warn"),
            *(Run(cells[place], "dim" if cells[place] in {"1", "-"} else "") for cells in knobs.values()),
            Cell(words=words(plan.label), label=True), *own[:before], _used(plan), *own[before:],
        ))
    labels, bar, speed = first, first + 1 + before, head.index("tok/s/dev")
    figured = (*range(first + 1, len(head)),)
    barless = tuple(each for each in figured if each != bar)
    fewest = tuple(each for each in barless if each != speed)
    wide = tuple(range(first))
    left = {1, labels, bar, *(2 + place for place, name in enumerate(knobs) if name in _WORDS)}
    notes = ["s: sequence parallel"] if any(plan.layout.sequence_parallel for plan in plans) else []
    notes += ["zero n/k: shard group of k"] if any("/" in each for each in knobs["zero"]) else []
    return table(
        head, rows, right=set(range(len(head))) - left, whole=set(range(len(head))) - {labels, bar}, look="tight", bold=(0,),
        notes=tuple(words(each) for each in (["; ".join(notes)] if notes else []) + footnotes),
        choices=(
            *(Columns(shown=(*wide, *each), notes=True) for each in (figured, barless, fewest)),
            Columns(shown=(0, 1, labels, *figured), from_width=ROOMY), Columns(shown=(0, 1, labels, *fewest)),
        ),
    )


def _used(plan: RankedPlan) -> Bar:
    estimate = plan.estimate
    used = Part(name="memory", letter="#", style="green" if estimate.fits else "red", value=estimate.memory_reserved_bytes)
    return Bar(parts=(used,), scale=estimate.memory_capacity_bytes, width=BAR, least=MIN_BAR)


def _figures(plans: Sequence[RankedPlan]) -> dict[str, list[Run | Cell]]:
    """Column -> cells: what plans are ranked by, where it is known apart from the step, what it is made of, and speeds."""
    estimates = [plan.estimate for plan in plans]
    risk = any(each.interval for each in estimates)
    found: dict[str, list[Run | Cell]] = {}
    if risk:
        found["expected"] = [figure(each.expected_step_s, seconds) for each in estimates]
    found["step"] = [figure(each.step_s, seconds) for each in estimates]
    if risk:
        found["fits"] = [figure(each.memory_fit_probability, narrow_chance) for each in estimates]
    found["MFU"] = [figure(each.mfu_ratio, percent) for each in estimates]
    found["tok/s/dev"] = [figure(each.tokens_per_s_per_device, rate) for each in estimates]
    found["GiB"] = [
        cell(figure(each.memory_reserved_bytes, bare_gib), "/", figure(each.memory_capacity_bytes, bare_gib, 0))
        for each in estimates
    ]
    return found


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


def pareto_table(front: Sequence[RankedPlan], objective: Objective = "step-time") -> Iterator[Section]:
    """Plans that no other beats in expected time and memory (and devices) at once, from the best by what is ranked by on."""
    title = "Less memory for more time"
    if objective == "memory":
        title, near = "Less time for more memory", list(reversed(front))[:MAX_FRONT]
    else:
        fastest = min((plan.estimate.expected_step_s for plan in front), default=0.0)
        near = [plan for plan in front if plan.estimate.expected_step_s <= MAX_SLOWDOWN * fastest][:MAX_FRONT]
    if len(near) > 1:
        yield Section(title=title, blocks=(_beside(near),))


def riskier_table(riskier: Sequence[RankedPlan]) -> Iterator[Section]:
    """Plans that take less time than the first where they fit, or in most runs, but are expected to take more."""
    if riskier:
        stalls = any(plan.estimate.chance_s for plan in riskier)
        title = "Faster in most runs, but expected to take longer" if stalls else "Faster where they fit, but less likely to fit"
        yield Section(title=title, blocks=(_beside(riskier),))


def _beside(plans: Sequence[RankedPlan]) -> Table:
    """Plans by time, probability and memory, with their labels."""
    risk = any(plan.estimate.interval for plan in plans)
    fewer = len({plan.layout.world for plan in plans}) > 1
    names = (*(("expected", "step", "fits") if risk else ("step",)), "MFU", "memory", *(("devices",) if fewer else ()))
    rows: list[tuple[str | Run | Cell, ...]] = []
    for plan in plans:
        estimate = plan.estimate
        rows.append((
            *([figure(estimate.expected_step_s, seconds)] if risk else []), figure(estimate.step_s, seconds),
            *([figure(estimate.memory_fit_probability, narrow_chance)] if risk else []), figure(estimate.mfu_ratio, percent),
            figure(estimate.memory_reserved_bytes, gib), *([f"{plan.layout.world:,}"] if fewer else []),
            Cell(words=words(plan.label), label=True),
        ))
    return table((*names, "layout"), rows, right=range(len(names)), whole=range(len(names)))
