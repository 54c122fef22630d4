"""The balance of a pipeline: a proved slot, near-optimal placements, and of these the one that simulates best."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.balance import PROVED, Balance, Overfull, Placement
from meshwright.search.balance.bubble import bubble_of
from meshwright.search.balance.climb import Standing, climb, kicked, standings
from meshwright.search.balance.fill import applies, least_slot_of_heaviest, shortest_slot
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.programme import Programme, Solved
from meshwright.search.balance.sound import require_sound
from meshwright.search.balance.starts import greedy, leading_choices, led
from meshwright.search.balance.times import chunk_times, simulated_times, slot_times
from meshwright.search.balance.treatments import kinds_at, leading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem, Objective, Status

    Counts = NDArray[np.int64]

SLOT_UNTIL, BOUND_UNTIL, PIPELINE_UNTIL, LOCKSTEP_UNTIL = 0.5, 0.6, 0.7, 0.8
"""Shares of the time at which each programme ends at the latest; the rest is for climbing."""
NEAR = 1e-3
"""A gap at which programmes stop whose answers the local search starts from."""
BOUND_WORK, START_WORK = 170.0, 7.0
"""Work (``Rows.solve``) of a programme for each second of the time, for the bound and for starts: so little that it ends before its
share of the time does, which would make the answer depend on the machine."""
GREEDY_STARTS = 2
"""Greedy placements from which the local search starts beside those of the programmes."""
KICKS, KICKED_OPERATIONS = 24, 4000
"""How often the best placement is shaken and climbed from again: so often as keeps all operations of it below the second."""
FINAL = 64
"""Placements that are simulated whole at the end."""


def balance(
    problem: BalanceProblem, *, objective: Objective = "simulated", time_limit_s: float = 8.0, others: int = 5
) -> Balance | Overfull:
    """Which layers stand where, and which of them are recomputed in which way, so that a step is shortest and every stage fits.

    The slot is minimised by a mixed-integer programme, whose bound is the proof; so is a linear lower bound of the whole pipeline.
    Their answers and greedy ones start a local search that simulates the pipeline; what simulates best is the answer: of all
    placements, or of those with the shortest slot where that is the objective.

    Units:   the problem's.
    Errors:  ``InputError`` for a problem that contradicts itself.
    Holds:   the result depends on the machine only where the time limit ends the search; programmes end by their work before.
    """
    begin = time.perf_counter()
    require_sound(problem)
    run = _Run(problem, begin, time_limit_s, objective=objective)
    found = run.placements()
    if not found:
        return run.overfull()
    return run.answer(found, others)


class _Run:
    """One search: what was proved so far."""

    def __init__(self, problem: BalanceProblem, begin: float, limit_s: float, *, objective: Objective) -> None:
        self.problem, self.begin, self.limit_s, self.objective = problem, begin, limit_s, objective
        self.follows = problem.recompute_rule == "first" or problem.fixed_recompute is not None
        self.slot_bound, self.slot_found = least_slot(problem), float("inf")
        self.pipeline_bound, self.infeasible = least_pipeline(problem), False

    def until(self, share: float) -> float:
        """Seconds until a share of the time is over."""
        return self.begin + share * self.limit_s - time.perf_counter()

    def placements(self) -> list[Standing]:
        """Placements that fit, each once, best first by simulation of all micro-batches."""
        found = list(self._led() if self.follows else self._free())
        once = sorted({each.counts.tobytes(): each for each in found if each.excess == 0.0}.values(), key=lambda each: each.key)
        if not once:
            return []
        slots = slot_times(chunk_times(self.problem, np.stack([each.counts for each in once], axis=-1)))
        self.slot_found = min(self.slot_found, float(slots.min()))
        short = [each for each, slot in zip(once, slots, strict=True) if slot <= self.slot_limit]
        finalists = list({each.counts.tobytes(): each for each in (*once[:FINAL], *short[:FINAL])}.values())
        simulated = simulated_times(self.problem, chunk_times(self.problem, np.stack([each.counts for each in finalists], axis=-1)))
        exact = [each._replace(simulated=float(whole)) for each, whole in zip(finalists, simulated, strict=True)]
        return sorted(exact, key=lambda each: each.key)

    @property
    def slot_limit(self) -> float:
        """The shortest slot found, with room for rounding."""
        return self.slot_found * (1.0 + 1e-9)

    def _free(self) -> list[Standing]:
        """Every chunk chooses its recomputation: what the starts lead to, and kicks from there."""
        met = list(self._climbed())
        if self.problem.fixed_layers is None and met:
            met += self._kicked(met, None)
            if self.objective == "slot":
                slots = slot_times(chunk_times(self.problem, np.stack([each.counts for each in met], axis=-1)))
                short = [each for each, slot in zip(met, slots, strict=True) if slot <= self.slot_limit]
                met += self._kicked(short, self.slot_limit) if short else []
        return met

    def _kicked(self, met: list[Standing], slot_limit: float | None) -> list[Standing]:
        """What the best placement leads to once it is shaken, again and again; less often the longer a simulation takes."""
        problem, here = self.problem, min(met, key=lambda each: each.key)
        more: list[Standing] = []
        operations = 2 * problem.microbatches * problem.stages * problem.chunks
        for number in range(min(KICKS, KICKED_OPERATIONS // operations)):
            if self.until(0.9) < 0.0:
                break
            start = kicked(problem, here.counts, number)
            found = climb(problem, start, deadline=self.begin + self.limit_s, slot_limit=slot_limit)
            more += found
            if found and found[0].beats(here):
                here = found[0]
        return more

    def _climbed(self) -> Iterator[Standing]:
        """Local searches from greedy placements and from those of the programmes."""
        deadline = self.begin + self.limit_s
        ranked = standings(self.problem, greedy(self.problem), keep=GREEDY_STARTS)
        hint = climb(self.problem, ranked[0].counts, deadline=self.begin + 0.1 * self.limit_s, rounds=20)[0]
        shortest, loose = self._programmes(hint)
        if self.infeasible:
            return
        yield from (hint, *ranked)
        for start in shortest:
            yield from climb(self.problem, start, deadline=self.begin + 0.9 * self.limit_s, slot_limit=self.slot_limit)
        for start in (*shortest, *loose, hint.counts, *(each.counts for each in ranked)):
            if self.until(1.0) > 0.0:
                yield from climb(self.problem, start, deadline=deadline)

    def _programmes(self, hint: Standing) -> tuple[list[Counts], list[Counts]]:
        """What the programmes found: placements with the shortest slot, and others; their bounds are noted."""
        problem = self.problem
        start = hint.counts if hint.excess == 0.0 else None
        slot = self._shortest(start)
        self.infeasible = slot.infeasible
        if slot.infeasible:
            return [], []
        self.slot_bound = max(self.slot_bound, slot.bound)
        shortest, loose = [], []
        if slot.counts is not None:
            self.slot_found = float(slot_times(chunk_times(problem, slot.counts)))
            shortest.append(slot.counts)
        if self.until(BOUND_UNTIL) > 0.0:
            pipeline = Programme(problem, goal="pipeline").solve(
                self.until(BOUND_UNTIL), gap_ratio=NEAR, start=slot.counts, work=round(BOUND_WORK * self.limit_s)
            )
            self.pipeline_bound = max(self.pipeline_bound, pipeline.bound)
            loose += [] if pipeline.counts is None else [pipeline.counts]
        if slot.counts is not None:
            goals = (("pipeline", PIPELINE_UNTIL), ("lockstep", LOCKSTEP_UNTIL))
            for goal, share in goals if problem.chunks > 1 else goals[:1]:
                if self.until(share) <= 0.0:
                    break
                among = Programme(problem, goal=goal, slot_limit=self.slot_limit)  # type: ignore[arg-type]
                answer = among.solve(self.until(share), gap_ratio=NEAR, start=slot.counts, work=round(START_WORK * self.limit_s))
                shortest += [] if answer.counts is None else [answer.counts]
        return shortest, loose

    def _shortest(self, start: Counts | None) -> Solved:
        """The placement with the shortest slot, and the proof: stage by stage where nothing binds layers to places."""
        problem = self.problem
        if start is not None and applies(problem):
            deadline = self.begin + SLOT_UNTIL * self.limit_s
            if len(problem.bodies) == 1:
                found = shortest_slot(problem, least=self.slot_bound, start=start, deadline=deadline)
                return Solved(counts=found.counts, objective=found.found, bound=found.bound, infeasible=False)
            self.slot_bound = least_slot_of_heaviest(problem, least=self.slot_bound, start=start, deadline=deadline)
        return Programme(problem, goal="slot").solve(self.until(SLOT_UNTIL), start=start)

    def _led(self) -> Iterator[Standing]:
        """The same number of leading layers of every chunk recomputed: every number tried, the best ones climbed."""
        problem, deadline = self.problem, self.begin + self.limit_s
        choices = leading_choices(problem)
        tried: list[tuple[Standing, tuple[int, int]]] = []
        for choice in choices:
            if not tried or self.until(0.5) > 0.0:
                tried += [(each, choice) for each in standings(problem, led(problem, *choice), keep=1)]
        tried.sort(key=lambda pair: pair[0].key)
        met = [each for each, _ in tried]
        for each, choice in tried if self.until(0.5) > 0.0 else ():
            met += climb(problem, each.counts, deadline=self.begin + 0.5 * self.limit_s, leading_of=choice)
        self._prove_led(choices, met)
        if self.objective == "slot":
            for each, choice in tried:
                met += climb(problem, each.counts, deadline=deadline, leading_of=choice, slot_limit=self.slot_limit)
        yield from met

    def _prove_led(self, choices: list[tuple[int, int]], met: list[Standing]) -> None:
        """That no number of leading layers has a shorter slot, or fits at all; shorter ones that turn up are met, too."""
        problem, fitting = self.problem, [each for each in met if each.excess == 0.0]
        if fitting:
            slots = slot_times(chunk_times(problem, np.stack([each.counts for each in fitting], axis=-1)))
            self.slot_found = min(self.slot_found, float(slots.min()))
        bounds: list[float] = []
        for choice in choices:
            if self.until(0.9) <= 0.0:
                bounds.append(self.slot_bound)
                continue
            limit = None if np.isinf(self.slot_found) else self.slot_found * (1.0 - PROVED)
            each = Programme(problem, goal="slot", slot_limit=limit, leading=choice).solve(self.until(0.9))
            if each.counts is not None:  # which of several bodies in a chunk lead is not the programme's to choose
                led_by = leading(problem, kinds_at(problem, each.counts.sum(axis=(0, 1))), *choice)
                again = standings(problem, led_by[..., None])
                met += again
                if again[0].excess == 0.0:
                    self.slot_found = min(self.slot_found, float(slot_times(chunk_times(problem, led_by))))
            bounds.append(float("inf") if each.infeasible else each.bound)
        self.infeasible = bool(np.isinf(self.slot_found)) and all(np.isinf(bound) for bound in bounds)
        self.slot_bound = max(self.slot_bound, min((*bounds, self.slot_found)))

    def answer(self, found: list[Standing], others: int) -> Balance:
        """The result, its objective evaluated again on every placement."""
        problem = self.problem
        fastest, chosen = found[0], found
        if self.objective == "slot":
            slots = slot_times(chunk_times(problem, np.stack([each.counts for each in found], axis=-1)))
            chosen = [each for each, slot in zip(found, slots, strict=True) if slot <= self.slot_limit]
        best, *rest = placed(problem, [each.counts for each in chosen[: others + 1]])
        bound = min(self.slot_bound, self.slot_found)
        gap = (self.slot_found - bound) / self.slot_found if self.slot_found > 0.0 else 0.0
        status: Status = "optimal" if gap <= PROVED else "gap"
        faster = place(problem, fastest.counts) if fastest.simulated < best.simulated_time * (1.0 - 1e-9) else None
        return Balance(
            problem=problem, objective=self.objective, best=best, others=tuple(rest), faster=faster,
            slot_found=self.slot_found, slot_bound=self.slot_found if status == "optimal" else bound,
            simulated_bound=min(self.pipeline_bound, fastest.simulated), status=status,
            gap_ratio=0.0 if status == "optimal" else gap, bubble=bubble_of(problem, best.counts),
            solve_s=time.perf_counter() - self.begin,
        )

    def overfull(self) -> Overfull:
        """Which stage would have to hold more, and by how much every bound would have to grow."""
        problem = self.problem
        bounds = np.array(problem.memory_bounds)
        choices = leading_choices(problem) if self.follows else []
        tried = np.concatenate([led(problem, *choice) for choice in choices], axis=-1) if choices else greedy(problem)
        columns = [tried]
        if not self.follows:
            least = Programme(problem, goal="memory").solve(max(self.until(1.0), 1.0))
            columns += [] if least.counts is None else [least.counts[..., None]]
        memory = stage_memory(problem, np.concatenate(columns, axis=-1))
        over = (memory - bounds[:, None]).max(axis=0)
        best = int(over.argmin())
        stage = int((memory[:, best] - bounds).argmax())
        return Overfull(stage=stage, demand=float(memory[stage, best]), bound=float(bounds[stage]), proved=self.infeasible)


def place(problem: BalanceProblem, counts: Counts) -> Placement:
    """A placement with its figures; see ``placed``."""
    return placed(problem, [counts])[0]


def placed(problem: BalanceProblem, several: list[Counts]) -> list[Placement]:
    """Placements with their figures, simulated together.

    Errors: ``AssertionError`` where layers are missing: an answer is never taken on trust.
    """
    for counts in several:
        for body, own in zip(problem.bodies, counts.sum(axis=(1, 2, 3)), strict=True):
            assert own == body.layers, f"{own} of {body.layers} layers placed"
    columns = np.stack(several, axis=-1)
    times, memory = chunk_times(problem, columns), stage_memory(problem, columns)
    return [
        Placement(counts=counts, slot_time=float(slot), simulated_time=float(whole), stage_memory=tuple(own.tolist()))
        for counts, slot, whole, own in zip(several, slot_times(times), simulated_times(problem, times), memory.T, strict=True)
    ]


def least_slot(problem: BalanceProblem) -> float:
    """A slot that no placement beats: all work spread evenly over the chunks, or an end alone."""
    spread = sum(body.layers * (body.forward_time + min(body.backward_times)) for body in problem.bodies)
    ends = [end.forward_time + end.backward_time for end in (problem.first, problem.last)]
    return float(max((spread + sum(ends)) / (problem.stages * problem.chunks), *ends))


def least_pipeline(problem: BalanceProblem) -> float:
    """A pipeline time that no placement beats: all work of all micro-batches spread evenly over the stages."""
    spread = sum(body.layers * (body.forward_time + min(body.backward_times)) for body in problem.bodies)
    ends = sum(end.forward_time + end.backward_time for end in (problem.first, problem.last))
    return float(problem.microbatches * (spread + ends) / problem.stages)
