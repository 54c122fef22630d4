"""Balanced stages as JSON: the contract's keys, and what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.api.views.estimates import layout_view, number, whole
from meshwright.documents.quoting import flags, flow
from meshwright.search.balance.memory import excess
from meshwright.search.balance.times import chunk_times, slot_times
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.balance import Balance, BalanceProblem, Overfull, Placement
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.stage_lists import Words

Document = dict[str, Any]


class Units(Value, frozen=True, kw_only=True):
    """What times and memories of a problem are in."""

    time: str = ""
    """``s``, or empty: whatever the file has."""
    memory: str = "mb"
    """``mb`` (as the file means it) or ``bytes``."""


FILE_UNITS = Units()
SECONDS_AND_BYTES = Units(time="s", memory="bytes")


class Rival(Value, frozen=True, kw_only=True):
    """A placement that somebody named, beside the answer."""

    name: str
    placement: Placement
    fits: bool


class StageLine(Value, frozen=True, kw_only=True):
    """One stage of an answer."""

    stage: int
    layers: tuple[int, ...]
    """By chunk."""
    recompute: dict[str, tuple[int, ...]]
    """By treatment that occurs anywhere, by chunk."""
    memory: float
    memory_slack: float
    slot: float
    slot_slack: float
    """Below the slot of the slowest stage."""
    busy_ratio: float
    """Of the simulated time."""


class BalanceShown(Value, frozen=True, kw_only=True):
    """A problem with its answer, and what belongs beside it."""

    balance: Balance
    units: Units
    words: tuple[Words, ...] = ()
    rivals: tuple[Rival, ...] = ()
    label: str = ""
    """The layout with this placement, where there is a model."""
    framework: str = ""
    estimate: Estimate | None = None
    """Of that layout, and of the one that was given."""
    estimate_before: Estimate | None = None

    @property
    def problem(self) -> BalanceProblem:
        """What was asked."""
        return self.balance.problem

    @property
    def time(self) -> float:
        """The simulated pipeline of what is answered."""
        return self.balance.best.simulated_time

    @property
    def fits(self) -> bool:
        """Whether it fits by the estimate, too, where there is a model."""
        return self.estimate is None or bool(self.estimate.fits)


def rival(problem: BalanceProblem, name: str, placement: Placement) -> Rival:
    """A placement under a name."""
    return Rival(name=name, placement=placement, fits=bool(excess(problem, np.array(placement.stage_memory)) == 0.0))


def treated(problem: BalanceProblem, placement: Placement) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Recomputed layers ``[chunk][stage]`` by treatment, in the problem's order; ``none`` keeps everything and is left out."""
    return {name: placement.treated(index) for index, name in enumerate(problem.treatments) if name != "none"}


def stage_lines(problem: BalanceProblem, placement: Placement) -> tuple[StageLine, ...]:
    """Every stage with what is left of its memory and of its time."""
    times = chunk_times(problem, placement.counts)
    slots = [float(slot_times(type(times)(*(each[stage : stage + 1] for each in times)))) for stage in range(problem.stages)]
    busy = (times.forward + times.backward).sum(axis=1) * problem.microbatches
    used = {name: grid for name, grid in treated(problem, placement).items() if any(map(any, grid))}
    return tuple(
        StageLine(
            stage=stage, layers=tuple(row[stage] for row in placement.layers),
            recompute={name: tuple(row[stage] for row in grid) for name, grid in used.items()},
            memory=placement.stage_memory[stage], memory_slack=problem.memory_bounds[stage] - placement.stage_memory[stage],
            slot=slots[stage], slot_slack=max(slots) - slots[stage], busy_ratio=float(busy[stage]) / placement.simulated_time,
        )
        for stage in range(problem.stages)
    )


def balance_view(answer: BalanceShown) -> Document:
    """The document of an answer; ``slot_time`` and ``simulated_time`` are in the unit that ``units`` names."""
    balance, units = answer.balance, answer.units
    problem, best = balance.problem, balance.best
    document: Document = _placement_view(problem, best, units)
    document |= {
        **_proof_view(balance), "solve_s": number(balance.solve_s),
        "objective": balance.objective, "slot_found": number(balance.slot_found), "slot_gap_ratio": number(balance.gap_ratio),
        "slot_bound": number(balance.slot_bound), "simulated_bound": number(balance.simulated_bound),
        "bubble": {
            "total_ratio": number(balance.bubble.total_ratio), "ideal_ratio": number(balance.bubble.ideal_ratio),
            "imbalance_ratio": number(balance.bubble.imbalance_ratio),
            "recompute_ratio": number(balance.bubble.recompute_ratio),
            "communication_ratio": number(balance.bubble.communication_ratio),
        },
        "stages": [_stage_view(line, units) for line in stage_lines(problem, best)],
        "others": [_other_view(problem, best, other, units) for other in balance.others],
        "faster": None if balance.faster is None else _other_view(problem, best, balance.faster, units),
        "compared": [
            {"name": rival.name, "fits": rival.fits, **_other_view(problem, best, rival.placement, units)}
            for rival in answer.rivals
        ],
        "schedule": problem.schedule, "pipeline_parallel": problem.stages, "virtual_stages": problem.chunks,
        "num_microbatches": problem.microbatches, "sequence_splits": problem.sequence_splits,
        "units": {"time": units.time or "as given", "memory": units.memory},
        "emitted": {each.framework: _words_view(each) for each in answer.words},
    }
    return document | _estimate_view(answer)


def _proof_view(balance: Balance) -> Document:
    """Whether the answer is proved to be the best under its objective, or how far from it at most."""
    gap = balance.answer_gap_ratio
    return {"status": "gap" if gap else "optimal", "gap_ratio": number(gap)}


def _estimate_view(answer: BalanceShown) -> Document:
    """The layout of an answer and its step beside the given one's; nothing without a model."""
    after, before = answer.estimate, answer.estimate_before
    if after is None or before is None:
        return {}
    return {
        "label": answer.label, "layout": layout_view(after.layout, experts=after.experts), "framework": answer.framework,
        "fits": bool(after.fits),
        "memory_fit_probability": number(after.memory_fit_probability), "fit_probability": number(after.fit_probability),
        "step_s": number(after.step_s), "memory_reserved_bytes": whole(after.memory_reserved_bytes),
        "given": {
            "label": before.label, "fits": bool(before.fits), "step_s": number(before.step_s),
            "memory_reserved_bytes": whole(before.memory_reserved_bytes),
        },
        "step_change_ratio": number(after.step_s / before.step_s - 1),
    }


def ranking_view(answers: Sequence[BalanceShown]) -> list[Document]:
    """Numbers of virtual stages by simulated time."""
    return [
        {
            "virtual_stages": each.problem.chunks, "simulated_time": number(each.balance.best.simulated_time),
            "slot_time": number(each.balance.best.slot_time), **_proof_view(each.balance),
            "solve_s": number(each.balance.solve_s),
            "bubble_ratio": number(each.balance.bubble.total_ratio),
        }
        for each in answers
    ]


def overfull_view(problem: BalanceProblem, verdict: Overfull, units: Units) -> Document:
    """That nothing fits, and by how much."""
    unit = units.memory
    return {
        "fits": False, "stage": verdict.stage, f"demand_{unit}": _memory(verdict.demand, units),
        f"bound_{unit}": _memory(verdict.bound, units), f"gap_{unit}": _memory(verdict.gap, units), "proved": verdict.proved,
        "levers": list(verdict.levers), "virtual_stages": problem.chunks, "schedule": problem.schedule,
    }


def _placement_view(problem: BalanceProblem, placement: Placement, units: Units) -> Document:
    """Counts, times and memories of one placement."""
    slot, simulated = number(placement.slot_time), number(placement.simulated_time)
    return {
        "stage_layers": _lists(placement.layers),
        "recompute": {name: _lists(grid) for name, grid in treated(problem, placement).items()},
        **_by_body(problem, placement),
        "slot_time": slot, "simulated_time": simulated,
        **({f"slot_time_{units.time}": slot, f"simulated_time_{units.time}": simulated} if units.time else {}),
        f"stage_memory_{units.memory}": [_memory(value, units) for value in placement.stage_memory],
    }


def _by_body(problem: BalanceProblem, placement: Placement) -> Document:
    """Which of several bodies is recomputed, for lists by stage do not say it."""
    if len(problem.bodies) == 1:
        return {}
    return {"recompute_by_body": {
        body.name: {
            name: placement.counts[number, index].tolist() for index, name in enumerate(problem.treatments) if name != "none"
        }
        for number, body in enumerate(problem.bodies)
    }}


def _other_view(problem: BalanceProblem, best: Placement, other: Placement, units: Units) -> Document:
    """A placement beside the best."""
    change = other.simulated_time / best.simulated_time - 1
    return {**_placement_view(problem, other, units), "change_ratio": number(change)}


def _stage_view(line: StageLine, units: Units) -> Document:
    """One stage."""
    unit = units.memory
    return {
        "stage": line.stage, "layers": list(line.layers), "recompute": {name: list(row) for name, row in line.recompute.items()},
        f"memory_{unit}": _memory(line.memory, units), f"memory_slack_{unit}": _memory(line.memory_slack, units),
        "slot_time": number(line.slot), "slot_slack": number(line.slot_slack), "busy_ratio": number(line.busy_ratio),
    }


def _words_view(words: Words) -> Document:
    """A framework's settings, and what it has none for."""
    return {"settings": _plain(words.settings), "lacks": list(words.lacks), "notes": list(words.notes)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _lists(grid: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row) for row in grid]


def _memory(value: float, units: Units) -> Any:
    """Bytes are whole; megabytes are as they come."""
    return round(value) if units.memory == "bytes" and np.isfinite(value) else number(value)


def setting_text(key: str, value: object) -> str:
    """A setting as it stands in a file or on a command line."""
    if not key.startswith("--"):
        return f"{key}: {flow(value)}"
    return flags({key: tuple(value) if isinstance(value, list) else value})[0]
