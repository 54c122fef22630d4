"""Samples in micro-batches: how, what that comes to, and which limits were looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.api.packed_curve import Point
    from meshwright.api.packed_dynamic import Dynamic
    from meshwright.api.packed_gain import Speedup
    from meshwright.api.packed_steps import Outcome, Rules
    from meshwright.api.packs import Samples
    from meshwright.domain.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The answer of ``pack``."""

    rules: Rules
    outcome: Outcome
    lower_bound: int
    """Micro-batches that no packing of these samples undercuts."""
    lengths: Samples
    speedup: Speedup
    recommended: int
    """The limit, tokens."""
    keeping: int | None = None
    """Where another program exceeds the limit: the one to give to it, so that its micro-batches stay within; None: not found."""
    keeping_any: int | None = None
    """The same for any samples up to the longest of these; None where that is not known of a program, or it keeps its limit."""
    curve: tuple[Point, ...] = ()
    """Empty without a model."""
    dynamic: Dynamic | None = None
    """Context parallelism by the length of each sample, of the first step; None where it was not asked for."""
    given: Setup | None = None
    layout: Layout | None = None

    @property
    def fits(self) -> bool:
        """Whether a limit fits, where memory is known."""
        return not self.curve or any(each.estimate.fits for each in self.curve)
