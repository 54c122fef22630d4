"""What the lines of a log have said so far, until it is a ``RunLog``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from statistics import median
from typing import Any

from meshwright.domain.observed import RankMemory, RunLog, Sign, Step, Timer
from meshwright.readers.endings import ended
from meshwright.readers.logs.parts import outside
from meshwright.readers.loose import MOST_RANKS, amount

MOST_STEPS = 200_000
MOST_TIMERS = 20_000
MOST_MEMORIES = 100_000
MOST_SETTINGS = 5_000
MOST_TOKENS = 10**12
"""Of a sequence: more of them are no count."""
_SIGNED, _SHARES = {"loss"}, {"mfu_ratio", "actor_mfu_ratio"}
_WHOLE = {"averaged", "sequences", "tokens", "skipped", "optimizer_steps"}
_FIGURES = {each.name for each in fields(Step)} - {"number", "line", "parts", "least"}


@dataclass(slots=True)
class Draft:
    """Mutable: one reader writes, line by line."""

    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: int | None = None
    """The step that lines without a number of their own are about."""
    timers: list[Timer] = field(default_factory=list)
    memory: dict[tuple[int, int], RankMemory] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    world: int | None = None
    sequence_tokens: int | None = None
    pending: dict[str, float] = field(default_factory=dict)
    """Figures printed before the step that they are of."""
    late: dict[int, dict[str, float]] = field(default_factory=dict)
    """The same by the step's number, for what its own lines do not say."""
    state: dict[str, Any] = field(default_factory=dict)
    """What one dialect remembers from line to line."""

    def step(self, number: int, line: int, **said: float | None) -> None:
        """A step, or more of it: what ranks repeat counts once, the first figure of each kind; of memories the largest."""
        if number not in self.steps and len(self.steps) >= MOST_STEPS:
            self.note(f"Only the first {MOST_STEPS:,} steps are kept.")
            return
        kept = self.steps.setdefault(number, {"line": line, "parts": {}, "least": {}})
        self.open = number
        for name, value in said.items():
            if name not in _FIGURES:
                raise KeyError(name)
            if value is None or not _can_be(name, value):
                continue
            if name == "memory_bytes":
                kept[name] = max(value, kept.get(name, 0.0))
            else:
                kept.setdefault(name, value)

    def timer(self, name: str, least_s: float, most_s: float, line: int) -> None:
        """A timer's seconds: a part of the open step, or by itself where such a thing is no part of steps."""
        if amount(least_s) is None or amount(most_s) is None:
            return
        if self.open is not None and not outside(name):
            self.steps[self.open]["parts"].setdefault(name, most_s)
            self.steps[self.open]["least"].setdefault(name, least_s)
        elif len(self.timers) < MOST_TIMERS:
            self.timers.append(Timer(name=name, least_s=least_s, most_s=most_s, line=line, step=self.open))

    def remember(self, memory: RankMemory) -> None:
        """What an allocator says, once for each rank and step."""
        if len(self.memory) < MOST_MEMORIES:
            self.memory.setdefault((memory.rank, memory.step), memory)

    def setting(self, name: str, value: str) -> None:
        """An argument of the run, the first time that it is said."""
        if len(self.settings) < MOST_SETTINGS:
            self.settings.setdefault(name, value)

    def figure(self, name: str, value: float | None) -> None:
        """A figure that stands once, the first time that it is said."""
        if value is not None and amount(value) is not None:
            self.figures.setdefault(name, value)

    def note(self, sentence: str) -> None:
        """What was assumed or left out."""
        self.notes[sentence] = None

    def finished(self, *, file: str, format: str, framework: str, signs: tuple[Sign, ...], lines: int) -> RunLog:
        """The log as a value."""
        steps = tuple(_step(number, said) for number, said in sorted(self.steps.items()))
        figures = {name: value for name, value in self.figures.items() if amount(value) is not None}
        log = RunLog(
            file=file, format=format, framework=framework, steps=steps, settings=self.settings,
            world=_some(self.world, MOST_RANKS), sequence_tokens=_some(self.sequence_tokens, MOST_TOKENS),
            timers=tuple(self.timers), memory=tuple(self.memory.values()), signs=signs, figures=figures, notes=tuple(self.notes),
            lines=lines,
        )
        return replace(log, ending=ended([log]))


def _can_be(name: str, value: float) -> bool:
    """Whether a figure of a step is one: of bounded size, and only a loss may be negative."""
    found = amount(abs(value) if name in _SIGNED else value)
    return found is not None and not (name in _SHARES and found > 1)


def _some(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 < value <= most else None


def _step(number: int, said: Mapping[str, Any]) -> Step:
    figures = {name: round(value) if name in _WHOLE else value for name, value in said.items() if name in _FIGURES}
    varied = {name: value for name, value in said["least"].items() if value != said["parts"].get(name)}
    return Step(number=number, line=said["line"], parts=said["parts"], least=said["least"] if varied else {},
                **{"step_s": None, **figures})


def settings_said(draft: Draft, text: str, keys: Sequence[str]) -> None:
    """Settings by those keys in a printed configuration that has their last names, ``'name': value`` or ``name=value``."""
    for key in keys:
        name = key.rpartition(".")[2]
        if name in text and (found := re.search(rf"\b{name}['\"]?\s{{0,4}}[:=]\s{{0,4}}([\w.]{{1,40}})", text)) is not None:
            draft.setting(key, found[1])


def intervals(draft: Draft) -> None:
    """Say of steps that are means how many they stand for: the distance to the one before."""
    numbers = sorted(draft.steps)
    gaps = [after - before for before, after in pairwise(numbers)]
    for index, number in enumerate(numbers):
        gap = gaps[index - 1] if index else (gaps[0] if gaps and number == gaps[0] else 1)
        draft.steps[number].setdefault("averaged", max(1, gap))


def by_clock(draft: Draft) -> None:
    """Seconds of steps that say only when they were printed."""
    before: tuple[int, float] | None = None
    for number, said in sorted(draft.steps.items()):
        now = said.get("at_s")
        if now is None:
            continue
        if before is not None and "step_s" not in said and now > before[1]:
            said["step_s"] = (now - before[1]) / (number - before[0])
            said["averaged"] = number - before[0]
            draft.note("Seconds of a step are the time between two lines: whatever went on between them is in it.")
        before = (number, now)


def world_by_rates(draft: Draft, tolerance: float = 0.02) -> None:
    """Ranks of the run, where steps say their tokens and the tokens per second of one device.

        world = tokens / (step seconds x tokens per second and device)
    """
    found = [
        said["tokens"] / said["step_s"] / said["tokens_per_s_per_device"] for said in draft.steps.values()
        if said.get("tokens") and said.get("step_s") and said.get("tokens_per_s_per_device")
    ]
    if draft.world is not None or not found:
        return
    worth = median(found)
    if worth >= 1 - tolerance and abs(worth - round(worth)) <= tolerance * worth and round(worth) <= MOST_RANKS:
        draft.world = round(worth)
        draft.note("The number of ranks is worked out of the tokens per second of all and of one.")


def sequence_by_rates(draft: Draft, tolerance: float = 0.005) -> None:
    """Tokens of a sequence, where steps say sequences, the rate of one device and the run its ranks.

        sequence = tokens per second and device x step seconds x ranks / sequences
    """
    if draft.sequence_tokens is not None:
        return
    found = [
        tokens / said["sequences"] for said in draft.steps.values() if said.get("sequences")
        and (tokens := said.get("tokens") or _tokens(said, draft.world))
    ]
    if not found:
        return
    worth = median(found)
    near = 64 * round(worth / 64)
    if near and abs(worth - near) <= tolerance * worth:
        draft.sequence_tokens = near
        draft.note("The length of sequences is worked out of the tokens per second.")


def _tokens(said: Mapping[str, Any], world: int | None) -> float | None:
    rate, step_s = said.get("tokens_per_s_per_device"), said.get("step_s")
    return rate * step_s * world if rate and step_s and world else None
