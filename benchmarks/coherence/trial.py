"""One case with its plan, and what the laws ask about it: always through the doors that a user has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import meshwright as mw
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.legality import check_layout
from meshwright.api.verbs.plan import PlanAnswer, PlanRequest
from meshwright.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate

SAME = 1e-9
"""Figures nearer than this are the same: no printed digit shows more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One law, asked once."""

    law: str
    broken: str = ""
    """How it is broken; empty where it holds."""
    verb: str = "plan"
    more: dict[str, Any] = field(default_factory=dict)
    """Options beside the case's that show it."""


Law = "Callable[[Trial], Iterator[Asked]]"


@dataclass(slots=True)
class Trial:
    """A case as options, and the answer of ``plan``."""

    options: dict[str, Any]
    """With the packs that ``plan`` chose, where it chose some: what other verbs are asked about its layouts."""
    asked: dict[str, Any]
    """As they were asked."""
    answer: PlanAnswer
    document: dict[str, Any]
    _setups: dict[tuple[tuple[str, Any], ...], Setup] = field(default_factory=dict)

    @classmethod
    def of(cls, options: dict[str, Any]) -> Trial:
        """Plan the case.

        Errors:  those of ``plan``.
        """
        answer = mw.plan(PlanRequest(**options))
        document = answer.to_json()
        chosen = {name: document["request"][name] for name in ("max_tokens", "packs") if name in document["request"]}
        return cls(options | chosen, options, answer, document)

    @property
    def chosen(self) -> dict[str, Any]:
        """Options that the case was not asked with, and that ``plan`` chose: other verbs are asked with them."""
        return {name: value for name, value in self.options.items() if name not in self.asked}

    @property
    def first(self) -> Estimate:
        """The estimate of the first plan."""
        return self.answer.result.plans[0].estimate

    def plan(self, **changes: Any) -> PlanAnswer | str:
        """The answer of ``plan`` with other options, or why it is refused."""
        try:
            return mw.plan(PlanRequest(**{**self.options, **changes}))
        except MeshwrightError as error:
            return refused(error)

    def setup(self, **changes: Any) -> Setup:
        """The case with other options.

        Errors:  ``InputError`` where they make none.
        """
        key = tuple(sorted(changes.items()))
        if key not in self._setups:
            faults = Faults()
            self._setups[key] = setup(mw.PlanRequest(**{**self.options, **changes}).read(faults), faults)
        return self._setups[key]

    def estimate(self, label: str, **changes: Any) -> Estimate | str:
        """What ``estimate`` with the framework named says of a label, or why it is refused."""
        try:
            given = self.setup(**changes)
            layout = given.layout(label)
            check_layout(given, layout, framework_asked=True)
            return mw.estimate(given.case, layout)
        except MeshwrightError as error:
            return refused(error)


def refused(error: MeshwrightError) -> str:
    """The reasons of a refusal in one line."""
    return "; ".join(str(each) for each in error.messages)


def same(one: float | None, other: float | None) -> bool:
    """Whether two figures are printed alike whatever the number of digits."""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= SAME * max(abs(one), abs(other))


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two documents say different things: a path with both values; keys that only one has are no contradiction."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() & other.keys():
            yield from differences(one[key], other[key], f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{path}: {len(one)} and {len(other)} entries"
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from differences(left, right, f"{path}[{index}]")
    elif isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        if not same(one, other):
            yield f"{path}: {one:.6g} and {other:.6g}"
    elif one != other:
        yield f"{path}: {one} and {other}"
