"""All metrics of a validation: per source, set, device, framework and kind of model, over cells, and of probabilities."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import source_group
from meshwright.evidence.score.cells import cells_of, decisions
from meshwright.evidence.score.metrics import reliability, scores
from meshwright.evidence.score.sets import sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.evidence.score.cells import Cell, Decisions
    from meshwright.evidence.score.metrics import Bin, Scores
    from meshwright.evidence.score.scored import Scored
    from meshwright.evidence.score.sets import Target
    from meshwright.evidence.score.validation import Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the rows, scored together."""

    name: str
    scores: Scores
    decisions: Decisions | None = None
    aims: tuple[Aim, ...] = ()

    @property
    def strain(self) -> float:
        """That of the target missed most; 0 without targets."""
        return max((each.strain for each in self.aims), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All metrics; parts by name."""

    total: Part
    groups: Mapping[str, Part]
    sets: tuple[Part, ...]
    devices: Mapping[str, Part]
    frameworks: Mapping[str, Part]
    kinds: Mapping[str, Part]
    cells: tuple[Cell, ...]
    reliability: tuple[Bin, ...]


def summarise(validation: Validation) -> Summary:
    """Score a validation by every part that has a row."""
    rows = validation.rows
    left_out = Counter(source_group(each.id) for each in validation.skipped)
    groups = _parts(rows, lambda each: each.source, left_out)
    for name in sorted(left_out.keys() - groups.keys()):  # a source that is left out altogether is still named
        groups[name] = Part(name=name, scores=scores((), skipped=left_out[name]))
    cells = cells_of(rows)
    return Summary(
        total=Part(name="all", scores=scores(rows, skipped=len(validation.skipped)), decisions=decisions(cells)),
        groups=groups, sets=_sets(rows), devices=_parts(rows, lambda each: each.device or each.row.device),
        frameworks=_parts(rows, lambda each: each.row.framework),
        kinds=_parts(rows, lambda each: "mixture of experts" if each.is_moe else "dense"), cells=cells,
        reliability=reliability(rows),
    )


def _parts(rows: tuple[Scored, ...], key: Callable[[Scored], str], left_out: Mapping[str, int] | None = None) -> dict[str, Part]:
    found: dict[str, list[Scored]] = defaultdict(list)
    for each in rows:
        found[key(each)].append(each)
    return {
        name: Part(
            name=name, scores=scores(found[name], skipped=(left_out or {}).get(name, 0)), decisions=decisions(cells_of(found[name]))
        )
        for name in sorted(found)
    }


def _sets(rows: tuple[Scored, ...]) -> tuple[Part, ...]:
    """Every set that holds a row, in the order of the file."""
    found = []
    for each in sets():
        inside = [row for row in rows if each.where.holds(row)]
        if not inside:
            continue
        own, choices = scores(inside), decisions(cells_of(inside))
        aims = []
        for metric, target in each.targets.items():
            value = getattr(own, metric, None) if hasattr(own, metric) else getattr(choices, metric, None)
            if value is not None:
                aims.append(Aim(metric=metric, target=target, value=float(value)))
        found.append(Part(name=each.name, scores=own, decisions=choices, aims=tuple(aims)))
    return tuple(found)
