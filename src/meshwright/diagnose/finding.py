"""What a diagnosis is made of: findings with evidence, loss and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.diagnose.remedies import remedies
from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.domain.observed import Place
    from meshwright.frameworks.settings import Severity

HIGH, MEDIUM = 0.05, 0.03
"""Shares of the step from which a loss is a warning, and below which it is left unsaid unless it is more than a time."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that was seen: words with their figures, and where it stands."""

    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a run lost time, memory or its life to."""

    message: Message
    severity: Severity
    evidence: tuple[Evidence, ...] = ()
    loss_ratio: float | None = None
    """Share of the step, or of the wall time, that it took; None where it is no share of either."""
    remedies: tuple[str, ...] = ()
    """What helps, the first first, in the framework's own keys where it has them."""
    predicted_gain_ratio: float | None = None
    """How much shorter the step would be with the best change that the cost model tried; None without a prediction."""
    at_most: bool = False
    """The gain is no prediction but a bound: what was seen of the part, all of it gone."""
    change: str = ""
    """That change, as a layout's label."""
    refuted_by: str = ""
    """What would show that it is not so."""
    source: str = ""
    """Whose threshold it is."""
    general: bool = False
    """It says that something is lost, not what to: told behind those that do."""

    @property
    def id(self) -> str:
        """The stable identifier."""
        return self.message.id

    @property
    def weight(self) -> tuple[int, bool, float]:
        """Order among findings: what ended the run, then by the gain that is predicted or, without one, by the loss."""
        gain = self.loss_ratio if self.predicted_gain_ratio is None or self.at_most else self.predicted_gain_ratio
        return {"error": 0, "warning": 1, "advice": 2}[self.severity], self.general, -(gain or 0.0)


def severity_of(loss_ratio: float) -> Severity:
    """A warning from 5 % of the step, else advice."""
    return "warning" if loss_ratio >= HIGH else "advice"


def seen_at(place: Place, severity: Severity, id: str, template: str, /, *, remedy: str = "", **values: object) -> Finding:
    """What a file shows at one place, without a share of the step; ``remedy``: the row of remedies, where it is not its own."""
    return Finding(
        message=Message(id, template, values), severity=severity, evidence=(Evidence("", place),),
        remedies=remedies(remedy or id, None, values),
    )
