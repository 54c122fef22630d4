"""The framework as a search asks it: what it refuses, and what it runs beside compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout, Overlap


class Runner(Protocol):
    """What is asked of a framework; every ``Framework`` is one."""

    def check(self, case: Case, layout: Layout) -> Sequence[object]:
        """Why it cannot run a layout; empty where it can."""
        ...

    def overlap(self, case: Case, layout: Layout) -> Overlap:
        """What it runs beside compute under a layout."""
        ...


class Functions(Struct, frozen=True, kw_only=True):
    """A runner of two functions; what is not given refuses nothing and changes nothing."""

    acceptable: Callable[[Layout], bool] | None = None
    said: Callable[[Layout], Overlap] | None = None

    def check(self, case: Case, layout: Layout) -> Sequence[object]:
        """The layout itself where it is refused."""
        return () if self.acceptable is None or self.acceptable(layout) else (layout,)

    def overlap(self, case: Case, layout: Layout) -> Overlap:
        """The layout's own where nobody says another."""
        return layout.overlap if self.said is None else self.said(layout)
