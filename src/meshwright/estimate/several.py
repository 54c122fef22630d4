"""A few dozen layouts estimated together: what layers and stages cost is evaluated as columns, and pipelines are simulated side by
side."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from meshwright.domain.kernels import with_kernels
from meshwright.estimate.degrees import Degrees, columns_of
from meshwright.estimate.evaluate import Evaluation, composition_of, evaluate, evaluate_columns, settings_of, whole_step
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.simulate import simulated_bubbles_s
from meshwright.estimate.single import estimate, with_bubble
from meshwright.estimate.split import stack, treatments_of
from meshwright.estimate.tables import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout, Treatment
    from meshwright.estimate.costs import Settings, WorkCosts
    from meshwright.estimate.split import Composition

Value = TypeVar("Value")


def estimates(case: Case, layouts: Sequence[Layout], known: KnownWork | None = None) -> list[Estimate]:
    """Predict some layouts.

    ``known``: what micro-batches of the case cost, as far as that was asked before; it gets to know these.

    Units:   as ``estimate``.
    Holds:   to the bit what ``estimate`` says of each.
    Source:  ``estimate.single.estimate``.
    """
    closed = evaluations(case, layouts, known)
    bubbles = simulated_bubbles_s(case, list(zip(layouts, closed, strict=True)))
    return [
        estimate(case, layout, each, with_bubble(each, bubble))
        for layout, each, bubble in zip(layouts, closed, bubbles, strict=True)
    ]


def evaluations(case: Case, layouts: Sequence[Layout], known: KnownWork | None = None) -> list[Evaluation]:
    """Evaluate some layouts, one row per stage; ``known`` as in ``estimates``.

    Units:   s and bytes.
    Holds:   to the bit what ``evaluate`` says of each.
    Source:  ``estimate.evaluate.evaluate_columns``.
    """
    known = known or KnownWork()  # groups differ in schedules, of which work knows nothing
    groups: defaultdict[Settings, list[int]] = defaultdict(list)
    for index, layout in enumerate(layouts):
        groups[structs.replace(settings_of(layout), treatments=())].append(index)
    found: dict[int, Evaluation] = {}
    for settings, members in groups.items():
        own = [layouts[index] for index in members]
        together = [evaluate(case, own[0], known)] if len(own) == 1 else _group(case, settings, own, known)
        found |= dict(zip(members, together, strict=True))
    return [found[index] for index in range(len(layouts))]


def _group(case: Case, settings: Settings, layouts: Sequence[Layout], known: KnownWork) -> list[Evaluation]:
    """Layouts that differ in degrees, stages and recomputation, each taken out of the columns of all."""
    every = tuple(dict.fromkeys(each for layout in layouts for each in treatments_of(layout.recompute)))
    compositions = [composition_of(case, layout) for layout in layouts]
    spread = [_spread(each, layout, every) for each, layout in zip(compositions, layouts, strict=True)]
    columns = evaluate_columns(
        case, structs.replace(settings, treatments=every), Degrees.of(columns_of(layouts)), stack(spread, len(case.model.kinds)),
        known,
    )
    fitted = with_kernels(case, compiled=settings.compiled, attention=settings.attention)
    return [
        _alone(fitted, columns, number, layout, composition)
        for number, (layout, composition) in enumerate(zip(layouts, compositions, strict=True))
    ]


def _spread(composition: Composition, layout: Layout, every: tuple[Treatment, ...]) -> Composition:
    """A composition whose counts stand under the treatments of all layouts."""
    place = [every.index(each) for each in treatments_of(layout.recompute)]
    uneven = composition.uneven
    return structs.replace(
        composition, counts=_placed(composition.counts, place, len(every)),
        uneven=None if uneven is None else structs.replace(uneven, layers=_placed(uneven.layers, place, len(every))),
    )


def _placed(values: Sequence[Value | None], place: Sequence[int], number: int) -> tuple[Value | None, ...]:
    found: list[Value | None] = [None] * number
    for at, value in zip(place, values, strict=True):
        found[at] = value
    return tuple(found)


def _alone(case: Case, columns: Evaluation, number: int, layout: Layout, composition: Composition) -> Evaluation:
    """One layout out of columns; the step is put together from its own figures, whose sum over stages knows no padding."""
    settings, rows = settings_of(layout), len(composition.stage)
    place = [columns.settings.treatments.index(each) for each in settings.treatments]

    degrees, costs = column(columns.degrees, number), column(_under(columns.costs, place), number)
    stages, state = column(columns.stages, number, rows), column(columns.state, number, rows)
    activation = column(columns.activation, number, rows)
    return Evaluation(
        settings=settings, degrees=degrees, composition=composition, costs=costs, stages=stages, state=state, activation=activation,
        parameters=column(columns.parameters, number, rows), memory=column(columns.memory, number, rows),
        time=whole_step(case, settings, degrees, composition, stages, state, activation, hop_s=costs.hop_s),
    )


def _under(costs: WorkCosts, place: Sequence[int]) -> WorkCosts:
    """Costs under some treatments alone."""
    kinds = tuple(
        structs.replace(
            kind, recompute=tuple(kind.recompute[at] for at in place), saved_bytes=tuple(kind.saved_bytes[at] for at in place),
            transient_bytes=tuple(kind.transient_bytes[at] for at in place),
        )
        for kind in costs.kinds
    )
    return structs.replace(costs, kinds=kinds)

