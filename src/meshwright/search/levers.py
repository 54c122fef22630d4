"""When nothing fits: which changes would make it fit, each searched and not guessed; plan, explain, fix and check say the same."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.domain.training import Lora
from meshwright.estimate.overlap import DEFAULT_RISK, overlap_for
from meshwright.search.finding import find
from meshwright.search.least import least_demanding
from meshwright.search.offloaded import OFFLOAD, first_of, host_short_bytes, may_move
from meshwright.search.result import SearchOptions
from meshwright.search.sizes import on, that_fit
from meshwright.search.space import make_space, parse_pins
from meshwright.units import gib
from meshwright.words import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Risk
    from meshwright.search.runner import Runner

MAX_NODES = 4096
MOST_SIZES = 4
"""Numbers of devices that are searched, where the framework refuses all that fits on the smaller ones."""


class Lever(Struct, frozen=True, kw_only=True):
    """A change of what was asked, with the best layout under it; where none fits, the least demanding one."""

    words: str
    options: str
    """What to add on the command line; empty where something is to be left out."""
    case: Case
    estimate: Estimate

    @property
    def fits(self) -> bool:
        """Whether the layout fits its devices, and what it keeps in host memory the nodes."""
        return self.estimate.fits and self.host_short_bytes <= 0.0

    @property
    def host_short_bytes(self) -> float:
        """What a node lacks of host memory."""
        return host_short_bytes(self.case, self.estimate)

    def __str__(self) -> str:
        """``optimizer states in host memory (--pin offload=optimizer): fits, 61.2 GiB as tp4 ..., 91.0 s a step``."""
        each, options = self.estimate, f" ({self.options})" if self.options else ""
        if not each.fits:
            short = each.memory_reserved_bytes - each.memory_capacity_bytes
            return f"{self.words}{options}: still {gib(short)} short, as {each.label}"
        found = f"{gib(each.memory_reserved_bytes)} as {each.label}, {seconds(each.step_s)} a step"
        if self.host_short_bytes > 0.0:
            return f"{self.words}{options}: {found}, but a node lacks {gib(self.host_short_bytes)} of host memory for it"
        return f"{self.words}{options}: fits, {found}"


def levers(
    case: Case, features: Features, runner: Runner, *, pins: Mapping[str, str] | None = None, risk: Risk = DEFAULT_RISK,
    balance: bool = True, pinnable: bool = True, bound_bytes: float | None = None,
) -> tuple[Lever, ...]:
    """Changes that would make a case fit, and what each gives: applied, each is the estimate that it carries.

    Optimizer states in host memory, gradients in BF16, both, LoRA, a larger share of memory, more devices, or fewer pins; only
    what the framework has, and only layouts that it does not refuse. ``pinnable``: whether the verb that asks has ``--pin``;
    otherwise the verb that has it is named. ``bound_bytes``: what is wished where that is less than the device allows.

    Errors:  none; a change under which no layout is legal is left out.
    Holds:   of each the gap is smaller than that of the case as it is.
    """
    search = _Search(runner=runner, risk=risk, balance=balance, bound_bytes=bound_bytes, pin="--pin" if pinnable else "plan --pin")
    found = tuple(_levers(case, features, search, dict(pins or {})))
    as_it_is = search.least(case, features, pins or {})
    most = math.inf if as_it_is is None else as_it_is.memory_reserved_bytes
    return tuple(each for each in found if each.estimate.fits or each.estimate.memory_reserved_bytes < most)


def _levers(case: Case, features: Features, search: _Search, pins: Mapping[str, str]) -> Iterator[Lever]:
    moved, pin = {**pins, **OFFLOAD}, f"{search.pin} offload=optimizer"
    able, here = may_move(features, pins), False
    shorter = replace(
        case, training=replace(case.training, precision=replace(case.training.precision, gradient_bytes=2.0))
    ) if case.training.precision.gradient_bytes > 2.0 else None
    if able:
        for each in search.lever("optimizer states in host memory", pin, case, features, moved):
            here = each.fits
            yield each
    if shorter is not None:
        yield from search.lever("gradients in BF16", "--gradient-dtype bf16", shorter, features, pins)
    if shorter is not None and able:
        yield from search.lever(
            "optimizer states in host memory and gradients in BF16", f"{pin} --gradient-dtype bf16", shorter, features, moved
        )
    if case.training.task != "lora" and "lora" in features.tasks:
        adapters = replace(case, training=replace(case.training, task="lora", lora=Lora()))
        yield from search.lever("adapters only", "--task lora", adapters, features, pins)
    if case.memory_ratio < 1.0:
        whole = replace(case, memory_ratio=1.0)
        at_the_edge = search.lever("the whole device, where the allocator retries", "--max-memory-ratio 1", whole, features, pins)
        yield from (each for each in at_the_edge if each.fits)
    if pins:
        yield from search.lever("fewer pins than " + " ".join(f"{knob}={value}" for knob, value in sorted(pins.items())), "", case,
                                features, {})
    else:
        yield from search.more_devices(case, features, moved=not here)


class _Search(Struct, frozen=True, kw_only=True):
    """How the best layout of a changed case is found."""

    runner: Runner
    risk: Risk
    balance: bool
    bound_bytes: float | None
    """What a step may need at most, whatever the device allows."""
    pin: str
    """How to fix a knob."""

    def lever(self, words: str, options: str, case: Case, features: Features, pins: Mapping[str, str]) -> Iterator[Lever]:
        """The lever of a change, where any layout is legal under it."""
        own = self.within(case)
        found = self.best(own, features, pins) or self.least(own, features, pins)
        if found is not None:
            yield Lever(words=words, options=options, case=own, estimate=found)

    def within(self, case: Case) -> Case:
        """The case with no more memory than is wished."""
        if self.bound_bytes is None or case.capacity_bytes <= self.bound_bytes:
            return case
        return replace(case, memory_ratio=self.bound_bytes / case.cluster.device.memory_bytes + case.reserve_ratio)

    def best(self, case: Case, features: Features, pins: Mapping[str, str]) -> Estimate | None:
        """The first plan, as a search with these pins finds it; None where nothing fits, or the framework refuses what does."""
        found = find(case, features, SearchOptions(top=1, pins=pins, risk=self.risk, balance=self.balance), self.runner, able=True)
        return found.plans[0].estimate if found.plans else None

    def least(self, case: Case, features: Features, pins: Mapping[str, str]) -> Estimate | None:
        """The least demanding layout that the framework runs."""
        overlap = overlap_for(case, self.risk, features.overlap_words(case.training.optimizer.name))
        return least_demanding([make_space(case, features, case.cluster.num_devices, parse_pins(pins))], overlap, self.runner)

    def more_devices(self, case: Case, features: Features, *, moved: bool) -> Iterator[Lever]:
        """The smallest larger number of devices on which ``plan`` finds a layout.

        ``moved``: one with optimizer states in host memory counts, because on the devices of the case that does not help yet.
        """
        case = self.within(case)
        options = SearchOptions(top=1, risk=self.risk, balance=self.balance)
        larger = that_fit(case, features, above=case.cluster.num_devices, limit_nodes=MAX_NODES, moved=moved)
        for devices in islice(larger, MOST_SIZES):
            own = on(case, devices)
            if (found := first_of(own, features, options, self.runner)) is not None:
                per_node = case.cluster.devices_per_node
                size = f"--nodes {devices // per_node}" if devices % per_node == 0 else f"--devices {devices}"
                yield Lever(words=f"{devices} devices", options=size, case=own, estimate=found)
                return
