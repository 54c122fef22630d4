"""The grid of the contract: which values each knob takes, before any rule refuses one.

Devices are split as tp x cp x pp x dp; expert degrees divide the devices of a stage; micro-batches divide the global batch;
chunks go from 1 to 8; sharding is ZeRO 0, or 1 to 3 over all data-parallel ranks or over those of one node; recompute is none,
selective or full; the schedules are those that the framework offers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.kernels import own_unsaid, with_kernels
from meshwright.domain.label import ATTENTION_KERNELS, CONTEXT_KINDS, MODULES
from meshwright.domain.label_reader import overlap_of
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.errors import InputError, Message, did_you_mean
from meshwright.search.rules import context_kinds, sequence_parallel_unasked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import AttentionKernel, ContextKind, Schedule, Treatment

    Ints = NDArray[np.int64]

MAX_VIRTUAL_STAGES = 8
TREATMENTS = ("none", "selective", "full")
PIN_KNOBS = ("tp", "cp", "pp", "vp", "ep", "etp", "dp", "mb", "zero", "shard", "recompute", "schedule", "sp", "offload",
             "cp_kind", "attention", "compile", "overlap")

CHOICES: Mapping[str, tuple[str, ...]] = {"offload": ("none", "optimizer"), "cp_kind": CONTEXT_KINDS,
                                              "attention": ATTENTION_KERNELS, "compile": ("on", "off")}
"""Knobs that are pinned to a word."""


class ShardOption(Struct, frozen=True):
    """A value of the sharding knobs: the ZeRO stage, and over all ranks, over one node, or over a pinned number."""

    stage: int
    group: str
    """``all``, ``node``, ``none`` or a number."""


SHARD_OPTIONS: tuple[ShardOption, ...] = (
    ShardOption(0, "none"),
    *(ShardOption(stage, over) for stage in (1, 2, 3) for over in ("all", "node")),
)


class Pins(Struct, frozen=True, kw_only=True):
    """Knobs that the user fixed; None leaves a knob free."""

    tp: int | None = None
    cp: int | None = None
    pp: int | None = None
    vp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    mb: int | None = None
    zero: int | None = None
    shard: int | None = None
    recompute: str | None = None
    modules: tuple[str, ...] | None = None
    schedule: str | None = None
    sp: bool | None = None
    offload: str | None = None
    """``none`` or ``optimizer``."""
    cp_kind: ContextKind | None = None
    attention: AttentionKernel | None = None
    compile: str | None = None
    """``on`` or ``off``."""
    overlap: str | None = None
    """Words as behind ``overlap=`` of a label."""

    @property
    def chunked(self) -> bool:
        """Whether the chunks of a stage are pinned, under schedules that have any number of them."""
        return self.schedule == "interleaved" or (self.vp is not None and self.schedule in (None, "1f1b"))

    @property
    def freed(self) -> Pins:
        """The pins without those of the chunks."""
        return structs.replace(self, vp=None, schedule=None)


def parse_pins(raw: Mapping[str, str]) -> Pins:
    """Pins from label words and their values; every fault at once.

    Errors: an unknown knob, a value that is no positive whole number, an unknown treatment or schedule.
    """
    faults: list[Message] = []
    values: dict[str, Any] = {}
    for knob, text in raw.items():
        if knob not in PIN_KNOBS:
            faults.append(
                Message(
                    "pin.unknown",
                    "unknown knob {knob!r}{hint}; knobs: {known}",
                    {"knob": knob, "hint": did_you_mean(knob, PIN_KNOBS), "known": " ".join(PIN_KNOBS)},
                    path="--pin",
                )
            )
            continue
        if knob == "recompute":
            name, _, modules = text.partition(":")
            unknown = [module for module in modules.split(",") if modules and module not in MODULES]
            if name not in TREATMENTS or unknown or (modules and name != "selective"):
                faults.append(
                    Message(
                        "pin.recompute",
                        "recompute={value} is none of none, selective[:modules], full; modules: {modules}",
                        {"value": text, "modules": ",".join(MODULES)},
                        path="--pin",
                    )
                )
            values["recompute"] = name
            values["modules"] = tuple(modules.split(",")) if modules else None
        elif knob == "schedule":
            values["schedule"] = text
        elif knob == "overlap":
            try:
                overlap_of(text)
            except InputError as error:
                faults += [replace(each, path="--pin") for each in error.messages]
            values["overlap"] = text
        elif knob in CHOICES:
            if text not in CHOICES[knob]:
                rule = "one of " + ", ".join(CHOICES[knob])
                faults.append(
                    Message("pin.value", "{knob}={value} is not {rule}", {"knob": knob, "value": text, "rule": rule}, path="--pin")
                )
            values[knob] = text
        elif knob == "sp":
            if text not in ("0", "1", "true", "false", "on", "off"):
                faults.append(Message("pin.sp", "sp={value} is neither 0 nor 1", {"value": text}, path="--pin"))
            values["sp"] = text in ("1", "true", "on")
        else:
            lowest = 0 if knob == "zero" else 1
            if not text.isascii() or not text.isdigit() or int(text) < lowest or (knob == "zero" and int(text) > 3):
                rule = "one of 0, 1, 2, 3" if knob == "zero" else "a whole number of at least 1"
                faults.append(
                    Message("pin.value", "{knob}={value} is not {rule}", {"knob": knob, "value": text, "rule": rule}, path="--pin")
                )
                continue
            values[knob] = int(text)
    if faults:
        raise InputError(faults)
    return Pins(**values)


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, rising.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


class Space(Struct, frozen=True, kw_only=True):
    """The values of every knob for a number of devices, as the pins leave them."""

    case: Case
    features: Features
    devices: int
    pins: Pins
    microbatches: tuple[int, ...]
    chunks: tuple[int, ...]
    shard_options: tuple[ShardOption, ...]
    treatments: tuple[str, ...]
    schedules: tuple[Schedule, ...]

    context_kind: ContextKind
    """The kind of context parallelism of the grid: as pinned, or the first that the framework has for the model."""
    compiled: bool | None = None
    attention: AttentionKernel | None = None
    """Kernels as pinned, which the case has; None where they are its own."""
    module_sets: tuple[tuple[str, ...], ...] = ()
    """Modules of selective recomputation that are asked side by side, where the treatments are these."""

    @property
    def recomputes(self) -> tuple[Treatment, ...]:
        """What the codes of treatments stand for: those of ``TREATMENTS``, or the sets of modules."""
        if self.module_sets:
            return tuple(Selective(modules=modules) for modules in self.module_sets)
        return (NoRecompute(), Selective(modules=self.selective_modules), Full())

    @property
    def codes(self) -> tuple[int, ...]:
        """Places of the treatments in ``recomputes``."""
        return tuple(range(len(self.module_sets)) or (TREATMENTS.index(each) for each in self.treatments))

    @property
    def offload(self) -> tuple[str, ...]:
        """What the layouts of the grid keep in host memory."""
        return ("optimizer",) if self.pins.offload == "optimizer" else ()

    @property
    def sequence_parallel(self) -> bool:
        """Whether layouts with tensor parallelism have sequence parallelism: as pinned, or as the framework has it."""
        return sequence_parallel_unasked(self.case, self.features) if self.pins.sp is None else self.pins.sp

    @property
    def children(self) -> int:
        """Grid points below one mesh: micro-batches x chunks x sharding x recompute x schedules."""
        return len(self.microbatches) * len(self.chunks) * len(self.shard_options) * len(self.treatments) * len(self.schedules)

    @property
    def selective_modules(self) -> tuple[str, ...]:
        """Modules of selective recomputation: as pinned, or those that plain ``selective`` means to the framework."""
        pinned = self.pins.modules
        return pinned if pinned and pinned != Selective().modules else self.features.selective_default


def make_space(case: Case, features: Features, devices: int, pins: Pins) -> Space:
    """The grid for a case on a number of devices."""
    options = tuple(option for option in SHARD_OPTIONS if pins.zero is None or option.stage == pins.zero)
    if pins.shard is not None:
        stages = sorted({option.stage for option in options if pins.zero is not None or (option.stage > 0) == (pins.shard > 1)})
        options = tuple(ShardOption(stage, str(pins.shard)) for stage in stages)
    wanted = pins.schedule
    schedules = tuple(dict.fromkeys(name for name in features.schedules if wanted is None or _same_schedule(name, wanted)))
    kinds = context_kinds(case.model, features)
    wish = None if pins.compile is None else pins.compile == "on"
    compiled, attention = own_unsaid(
        case, features.attentions, compiled=wish, attention=pins.attention, by_default=features.own_attention
    )
    case = with_kernels(case, compiled=compiled, attention=attention)
    if attention == "math":
        pins = structs.replace(pins, cp=1)
    return Space(
        compiled=compiled, attention=attention,
        context_kind=pins.cp_kind or (kinds[0] if kinds else "ring"), case=case, features=features, devices=devices, pins=pins,
        microbatches=_pinned(divisors(case.batch.global_batch_sequences), pins.mb),
        chunks=_pinned(tuple(range(1, MAX_VIRTUAL_STAGES + 1)), pins.vp),
        shard_options=options,
        treatments=TREATMENTS if pins.recompute is None else (pins.recompute,),
        schedules=schedules or ((cast("Schedule", wanted),) if wanted else ()),
    )


def _same_schedule(name: str, wanted: str) -> bool:
    """``1f1b`` with several chunks runs interleaved, so a pin of it allows both."""
    return name == wanted or (name, wanted) == ("interleaved", "1f1b")


def _pinned(values: tuple[int, ...], pin: int | None) -> tuple[int, ...]:
    return values if pin is None else (pin,)


def mesh_grid(space: Space) -> dict[str, Ints]:
    """Every split of the devices into tp, cp, pp, dp and expert degrees, as columns in a fixed order.

    Holds:   a pin that means something under another degree alone has that degree: ``sp`` tp, ``cp_kind`` cp above 1.
    """
    splits = _splits(space.devices, space.pins, moe=space.case.model.is_moe)
    return dict(zip(("tp", "cp", "pp", "dp", "ep", "etp"), splits, strict=True))


@lru_cache(maxsize=8)
def _splits(devices: int, pins: Pins, *, moe: bool) -> Ints:
    """The columns of ``mesh_grid``, read-only: grids of other kinds of context parallelism have the same."""
    every = divisors(devices)
    rows: list[tuple[int, int, int, int, int, int]] = []
    experts: dict[int, list[tuple[int, int]]] = {}
    degrees = [tp for tp in _pinned(every, pins.tp) if tp > 1 or not pins.sp]
    contexts = [cp for cp in _pinned(every, pins.cp) if cp > 1 or pins.cp_kind is None]
    for tp, cp, pp in product(degrees, contexts, _pinned(every, pins.pp)):
        if devices % (tp * cp * pp):
            continue
        dp, stage = devices // (tp * cp * pp), devices // pp
        if pins.dp is not None and dp != pins.dp:
            continue
        if stage not in experts:
            able = tuple(d for d in every if stage % d == 0) if moe else (1,)
            pairs = product(_pinned(able, pins.ep), _pinned(able, pins.etp))
            experts[stage] = [(ep, etp) for ep, etp in pairs if stage % (ep * etp) == 0]
        rows += [(tp, cp, pp, dp, ep, etp) for ep, etp in experts[stage]]
    columns: Ints = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    columns.flags.writeable = False
    return columns
