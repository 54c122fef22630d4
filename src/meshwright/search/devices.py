"""How many devices: the smallest number that fits, and the smallest that meets a deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.estimate.many import evaluate_many
from meshwright.estimate.overlap import overlap_for
from meshwright.search.cost import run_cost
from meshwright.search.finalists import grid_best
from meshwright.search.offloaded import OFFLOAD, first_of, may_move
from meshwright.search.result import SearchOptions
from meshwright.search.runner import Functions
from meshwright.search.sizes import MAX_NODES, on, sizes, that_fit
from meshwright.search.space import parse_pins
from meshwright.units import SECONDS_PER_DAY
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.search.runner import Runner

    Progress = Callable[[int, int], None]

SLACK = 1.10
"""A number of devices whose plain grid misses the deadline by more than this is not searched further: refinements gain less."""


class CountInterval(Struct, frozen=True, kw_only=True):
    """Where the figures of a number of devices lie with probability ``level``."""

    level: float
    step_s: tuple[float, float]
    days: tuple[float, float] | None
    cost: tuple[float, float] | None


class DeviceCount(Value, frozen=True, kw_only=True):
    """A number of devices with the first plan there: the figures are those that ``plan`` gives on so many."""

    devices: int
    nodes: int
    label: str
    step_s: float
    days: float | None
    cost: float | None
    interval: CountInterval | None


class MinimumDevices(Value, frozen=True, kw_only=True):
    """The smallest numbers; None where none up to the limit does."""

    fits: DeviceCount | None
    meets_deadline: DeviceCount | None
    """By the predicted step."""
    meets_deadline_upper: DeviceCount | None
    """By the upper end of its interval, too."""
    tried: tuple[int, ...]
    """Numbers on which layouts were searched."""


def min_devices(
    case: Case, features: Features, *, tokens: float | None = None, deadline_days: float | None = None,
    limit_nodes: int = MAX_NODES, progress: Progress | None = None, options: SearchOptions | None = None,
    runner: Runner | None = None, price_per_device_hour: float | None = None,
) -> MinimumDevices:
    """The smallest number of devices on which a layout fits, and on which the run meets its deadline.

    Every number is looked at that splits into degrees which divide the model and the batch (``sizes``): parts of a node and whole
    nodes. ``options`` are those of the plan whose figures are given, which keeps optimizer states in host memory where nothing fits
    without.

    Holds:   the global batch stays, so that large numbers may have no legal layout. Numbers are left out below that which would be
             needed at the best device-days of a step seen so far, less ``SLACK``.
    """
    asked = replace(options or SearchOptions(), spare_nodes=0)
    trial = _Trial(case, features, asked, runner or Functions(), tokens, price_per_device_hour)
    moved = asked.pins.get("offload") != "none"
    able = that_fit(case, features, limit_nodes=limit_nodes, moved=moved)
    fits = next((found for devices in able if (found := trial.plan(devices))), None)
    meets = surely = None
    if fits is not None and tokens is not None and deadline_days is not None:
        counts = [each for each in sizes(case, features, limit_nodes) if each >= fits.devices]
        meets = _smallest(trial, counts, fits, deadline_days, lambda found: found.days, progress)
        if meets is not None:
            later = [each for each in counts if each >= meets.devices]
            surely = _smallest(trial, later, meets, deadline_days, _latest, progress)
    return MinimumDevices(
        fits=fits, meets_deadline=meets, meets_deadline_upper=surely, tried=tuple(sorted(trial.searched | trial.glanced))
    )


def _latest(found: DeviceCount) -> float | None:
    """The upper end of the days; the days themselves where nothing is known about the error."""
    return found.interval.days[1] if found.interval is not None and found.interval.days is not None else found.days


class _Trial:
    """Plans of a case on other numbers of devices, each searched once."""

    def __init__(
        self, case: Case, features: Features, options: SearchOptions, runner: Runner, tokens: float | None, price: float | None
    ) -> None:
        """Nothing searched yet."""
        self._case, self._features, self._options, self._runner = case, features, options, runner
        self._tokens, self._price = tokens, price
        self._plans: dict[int, DeviceCount | None] = {}
        self._glances: dict[int, float | None] = {}

    @property
    def searched(self) -> set[int]:
        """Numbers of devices whose plan was searched."""
        return set(self._plans)

    @property
    def glanced(self) -> set[int]:
        """Numbers of devices whose grid was evaluated."""
        return set(self._glances)

    def plan(self, devices: int) -> DeviceCount | None:
        """The first plan on so many devices, or None where the framework runs none that fits."""
        if devices not in self._plans:
            best = first_of(on(self._case, devices), self._features, self._options, self._runner)
            self._plans[devices] = None if best is None else self._count(best)
        return self._plans[devices]

    def days(self, devices: int) -> float | None:
        """Days by the best of the plain grid on so many devices, as a plan says them; None where nothing fits."""
        assert self._tokens is not None, "days are asked of a run"
        if devices not in self._glances:
            own, features, options = on(self._case, devices), self._features, self._options
            overlap = overlap_for(own, options.risk, features.overlap_words(own.training.optimizer.name))
            best = grid_best(own, features, parse_pins(options.pins), overlap=overlap)
            if best is None and may_move(features, options.pins):
                best = grid_best(own, features, parse_pins({**options.pins, **OFFLOAD}), overlap=overlap)
            steps = self._tokens / own.batch.trained_tokens
            self._glances[devices] = steps * float(evaluate_many(own, [best.layout])[0][0]) / SECONDS_PER_DAY if best else None
        return self._glances[devices]

    def _count(self, best: Estimate) -> DeviceCount:
        """What is said of a number of devices."""
        devices, run = best.layout.world, None
        if self._tokens is not None:
            run = run_cost(on(self._case, devices), best, self._tokens, price_per_device_hour=self._price)
        interval = None
        if best.interval is not None:
            ends = run.intervals if run is not None else {}
            interval = CountInterval(
                level=best.interval.level, step_s=best.interval.step_s, days=ends.get("days"), cost=ends.get("cost")
            )
        return DeviceCount(
            devices=devices, nodes=-(-devices // self._case.cluster.devices_per_node), label=best.label, step_s=best.step_s,
            days=None if run is None else run.days, cost=None if run is None else run.cost, interval=interval,
        )


def _smallest(
    trial: _Trial, counts: list[int], known: DeviceCount, deadline_days: float, days: Callable[[DeviceCount], float | None],
    progress: Progress | None,
) -> DeviceCount | None:
    """The smallest number of devices on which a run takes no longer than its deadline, by some figure of its days.

    Powers of two, nearest first, give the device-days that are possible; then every number from there on that might do.
    """
    own = days(known)
    assert own is not None, "days are asked of a run"
    late = own / (known.days or own)
    least = known.devices * own
    rungs = [each for each in counts if each > known.devices and (each & (each - 1)) == 0 and each * deadline_days >= least / 2]
    for rung in rungs:
        found = trial.days(rung)
        if found is not None:
            least = min(least, rung * found * late)
            if found * late <= deadline_days:
                break
    for place, devices in enumerate(counts):
        if progress is not None:
            progress(place + 1, len(counts))
        if devices * deadline_days * SLACK < least:
            continue
        quick = trial.days(devices)
        if quick is None or quick * late > deadline_days * SLACK:
            continue
        count = trial.plan(devices)
        if count is not None and (taken := days(count)) is not None and taken <= deadline_days:
            return count
    return None
