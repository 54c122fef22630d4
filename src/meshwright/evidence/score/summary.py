"""All metrics of a validation: per source, set, device, framework and kind of model, over cells, and of probabilities."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import source_group
from meshwright.evidence.score.cells import cells_of, decisions
from meshwright.evidence.score.columns import Columns
from meshwright.evidence.score.metrics import reliability, scores
from meshwright.evidence.score.sets import sets
from meshwright.evidence.score.validation import Tally
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.evidence.score.cells import Cell, Decisions
    from meshwright.evidence.score.columns import View
    from meshwright.evidence.score.metrics import Bin, Scores
    from meshwright.evidence.score.sets import Target
    from meshwright.evidence.score.validation import Validation


KINDS = ("dense", "mixture of experts")
"""By whether a model has experts."""


class Aim(Value, frozen=True, kw_only=True):
    """A target and what is reached."""

    metric: str
    target: Target
    value: float

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.target.met(self.value)

    @property
    def strain(self) -> float:
        """Above 1 the target is missed, the more the worse."""
        return self.target.strain(self.value)


class Part(Value, frozen=True, kw_only=True):
    """A part of the rows, scored together."""

    name: str
    scores: Scores
    decisions: Decisions | None = None
    aims: tuple[Aim, ...] = ()

    @property
    def strain(self) -> float:
        """That of the target missed most; 0 without targets."""
        return max((each.strain for each in self.aims), default=0.0)


class Summary(Value, frozen=True, kw_only=True):
    """All metrics; parts by name."""

    total: Part
    groups: Mapping[str, Part]
    sets: tuple[Part, ...]
    devices: Mapping[str, Part]
    frameworks: Mapping[str, Part]
    kinds: Mapping[str, Part]
    cells: tuple[Cell, ...]
    reliability: tuple[Bin, ...]


def summarise(validation: Validation | Tally) -> Summary:
    """Score a validation by every part that has a row."""
    if isinstance(validation, Tally):
        view, sources = validation.rows.all, validation.skipped.sources
    else:
        view, sources = Columns(validation.rows).all, Counter(source_group(each.id) for each in validation.skipped)
    groups = _parts(view, "source", sources)
    for name in sorted(sources.keys() - groups.keys()):  # a source that is left out altogether is still named
        groups[name] = Part(name=name, scores=scores((), skipped=sources[name]))
    cells = cells_of(view)
    return Summary(
        total=Part(name="all", scores=scores(view, skipped=len(validation.skipped)), decisions=decisions(cells)),
        groups=groups, sets=_sets(view), devices=_parts(view, "device"), frameworks=_parts(view, "framework"),
        kinds=_parts(view, "moe"), cells=cells, reliability=reliability(view),
    )


def _parts(view: View, code: str, left_out: Mapping[str, int] | None = None) -> dict[str, Part]:
    """The rows of each source, framework, device or kind."""
    names = KINDS if code == "moe" else tuple(view.columns.names[code])
    found = {
        (name := names[number]): Part(
            name=name, scores=scores(own, skipped=(left_out or {}).get(name, 0)), decisions=decisions(cells_of(own))
        )
        for number, own in view.by(code)
    }
    return {name: found[name] for name in sorted(found)}


def _sets(view: View) -> tuple[Part, ...]:
    """Every set that holds a row, in the order of the file."""
    found = []
    for place, each in enumerate(sets()):
        inside = view.where(view.columns.code("sets")[view.rows] >> place & 1 == 1)
        if not len(inside):
            continue
        own, choices = scores(inside), decisions(cells_of(inside))
        aims = []
        for metric, target in each.targets.items():
            value = getattr(own, metric, None) if hasattr(own, metric) else getattr(choices, metric, None)
            if value is not None:
                aims.append(Aim(metric=metric, target=target, value=float(value)))
        found.append(Part(name=each.name, scores=own, decisions=choices, aims=tuple(aims)))
    return tuple(found)
