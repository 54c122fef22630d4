"""What a layout is to do that it does not, which edits would make it, and how an answer looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout, Risk
    from meshwright.errors import Message

Value: TypeAlias = int | bool | str
"""A value of a knob as a label says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinMemory:
    """It must fit in memory: reserved + extra <= bound on every stage."""

    bound_bytes: float | None = None
    """Of one device; None: what the case may use."""
    extra_bytes: float = 0.0
    """What a run needed beyond its prediction."""
    stage: int | None = None
    """The stage that overran: what was needed beyond counts on the stage with its part (first, last, between); None: on all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """So many more tokens per second, 0.05 for 5 %; it must fit, too."""

    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """It must run, and fit, on so many devices."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """The rules of layouts and the framework's limits must hold; what does not fit in memory comes last."""


Wish: TypeAlias = WithinMemory | Faster | Devices | Legal


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One knob, moved."""

    knob: str
    """The word of the label."""
    field: str
    """The key of the contract's layout."""
    before: Value
    after: Value
    risk: Risk

    @property
    def words(self) -> str:
        """``tp 4 -> 8``."""
        return f"{self.knob} {_word(self.before)} -> {_word(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A change that makes the wish true, estimated again and asked of the framework."""

    edits: tuple[Edit, ...]
    layout: Layout
    estimate: Estimate
    margin_bytes: float
    """Bound less what the tightest stage needs."""
    step_change_ratio: float | None = None
    """Step time relative to the given layout's, less one; None where that one cannot be estimated."""
    step_change_interval: tuple[float, float] | None = None
    """Where that ratio lies by the calibration's error between two layouts of one case; None without one."""
    memory_change_bytes: float | None = None
    """Reserved bytes of the fullest rank."""

    @property
    def risk(self) -> Risk:
        """The most that any of its edits does to the arithmetic."""
        order: tuple[Risk, ...] = ("exact", "equivalent", "approximate")
        return max((edit.risk for edit in self.edits), key=order.index, default="exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """Where nothing answers: the change that comes closest, and what it lacks."""

    edits: tuple[Edit, ...]
    layout: Layout
    estimate: Estimate
    missing: float
    unit: str
    """``B`` of memory on one device, or ``s`` of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """The answers to a wish, smallest first, and how far was looked."""

    case: Case
    """The case in which the answers hold: with the number of devices that was wished for."""
    wish: Wish
    layout: Layout
    base_estimate: Estimate | None
    """None where the given layout is impossible under any framework."""
    base_refusals: tuple[str, ...]
    """Rules of layouts that the given one breaks."""
    base_broken: tuple[Message, ...]
    """Limits of the framework that the given layout breaks."""
    found: tuple[Repair, ...]
    """By number of edits, then cost; dominated ones left out. The first has no edits where nothing has to change."""
    satisfying: int
    """Candidates that satisfy the wish by the model, before the framework is asked."""
    searched_edits: int
    """Every combination of up to so many edits was looked at."""
    candidates: int
    """Combinations of edits."""
    legal: int
    """Those that the rules of layouts allow."""
    proved: bool
    """Nothing smaller than what is found, and nothing at all where nothing is found, up to ``searched_edits`` of these knobs."""
    blocked: tuple[Message, ...]
    """Limits of the framework that every candidate breaks and no layout changes: the device, the model, the training."""
    search_s: float
    nearest: Nearest | None = None


def _word(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
