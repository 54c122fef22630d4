"""What searches of one case have in common, whatever is pinned or wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.several import estimates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout


class Baseline(Struct, frozen=True, kw_only=True):
    """The best layout on the smallest number of whole nodes on which one fits."""

    devices: int
    tokens_per_s_per_device: float
    label: str


class Learnt(Struct):
    """What is known about a case: estimates by layout, what micro-batches cost, and what linearity is counted against."""

    estimates: dict[Layout, Estimate] = field(default_factory=dict)
    work: KnownWork = field(default_factory=KnownWork)
    baselines: dict[bool, Baseline | None] = field(default_factory=dict)
    """The baseline, and (true) that of a batch scaled down with the devices."""

    def estimate(self, case: Case, layout: Layout) -> Estimate:
        """A layout's estimate, with its bubble simulated where stages differ; made once."""
        self.know(case, (layout,))
        return self.estimates[layout]

    def know(self, case: Case, layouts: Iterable[Layout]) -> None:
        """Estimate layouts together, as far as they are not known yet."""
        new = list(dict.fromkeys(each for each in layouts if each not in self.estimates))
        if new:
            self.estimates.update(zip(new, estimates(case, new, self.work), strict=True))
