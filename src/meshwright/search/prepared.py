"""A case that is asked about often: what one answer has cost, the next one has for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field

from meshwright.search.learnt import Learnt
from meshwright.search.plan import plan
from meshwright.search.result import SearchOptions
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.result import PlanResult
    from meshwright.search.runner import Runner


class Prepared(Value, frozen=True, kw_only=True):
    """A case with its framework, and what was learnt about it: estimates by layout, the baseline of linearity.

    Holds:   the answers are those of ``estimate`` and ``plan``; nothing is kept that pins or objective change.
    """

    case: Case
    features: Features
    runner: Runner
    learnt: Learnt = field(default_factory=Learnt)

    def what_if(self, layout: Layout) -> Estimate:
        """The estimate of one layout."""
        return self.learnt.estimate(self.case, layout)

    def plan(self, options: SearchOptions | None = None, progress: Callable[[int, int], None] | None = None) -> PlanResult:
        """The best layouts; asked again with another pin, only what that pin changes is computed.

        Errors:  as ``search.plan``.
        """
        return plan(
            self.case, self.features, options or SearchOptions(), progress, runner=self.runner, learnt=self.learnt
        )
