"""When no layout is legal: which divisibility fails, and which batches near by work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.domain.kernels import own_unsaid
from meshwright.errors import Message
from meshwright.estimate.overlap import overlap_for
from meshwright.search.grid import Counts, evaluate_grid, sequence_parallel
from meshwright.search.idle import idle_nodes
from meshwright.search.rules import Level, knobs_of, rules_of
from meshwright.search.space import Pins, make_space, mesh_grid
from meshwright.words import integer

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.search.result import SearchOptions

TRIED = 16
"""Batches on each side of the user's that are tried."""
LEVELS: dict[str, Level] = {
    **dict.fromkeys(("tp", "cp", "pp", "ep", "etp", "dp", "sp"), "mesh"), "mb": "microbatch",
    **dict.fromkeys(("vp", "schedule", "recompute"), "pipeline"), **dict.fromkeys(("zero", "shard"), "sharding"),
}
"""Knob -> the level of the rules that judge it."""
BATCH_RULES = ("dp does not divide the global batch", "dp x mb does not divide the global batch")


def lacking_kernels(case: Case, features: Features, pins: Pins) -> list[Message]:
    """One line for each pinned kernel, and for pinned overlap, that the framework has no key for and does not have by itself."""
    wish = None if pins.compile is None else pins.compile == "on"
    compiled, attention = own_unsaid(
        case, features.attentions, compiled=wish, attention=pins.attention, by_default=features.own_attention
    )
    words = set(features.overlap_words(case.training.optimizer.name))
    asked: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "attention": (attention, features.attentions),
        "compile": (None if compiled is None else pins.compile, ("on", "off") if features.compiles else ()),
        "overlap": (
            pins.overlap if pins.overlap not in (None, "none") and not words.issuperset(str(pins.overlap).split(",")) else None,
            tuple(sorted(words)),
        ),
    }
    template = "{framework} has no {name}={value}"
    return [
        Message("plan.lacks", template + ("; it has {name}={values}" if able else ""),
                {"framework": features.name, "name": name, "value": value, "values": ", ".join(able)}, path="--pin")
        for name, (value, able) in asked.items() if value is not None and value not in able
    ]


def no_legal_layout(case: Case, features: Features, options: SearchOptions, pins: Pins) -> list[Message]:
    """One line for each thing that makes the grid empty: pins that nothing satisfies, the batch, or the rules that refuse most."""
    devices = case.cluster.num_devices
    pinned = {name: value for name, value in structs.asdict(pins).items() if value is not None}
    model, tokens = case.model, case.batch.sequence_tokens
    if model.position == "learned" and tokens > model.position_table:
        words = "{model} has learned {most} positions: a sequence of {tokens} tokens has none beyond"
        beyond = {"model": model.name, "most": integer(model.position_table), "tokens": integer(tokens)}
        return [Message("plan.positions", words, beyond, path="--sequence")]
    messages: list[Message] = []
    offered: dict[str, tuple[object, ...]] = {
        "schedule": features.schedules, "zero": features.zero_stages, "recompute": features.recompute,
    }
    for name, able in offered.items():
        if name in pinned and pinned[name] not in able and (name, pinned[name]) != ("schedule", "1f1b"):
            messages.append(
                Message(
                    "plan.lacks", "{framework} has no {name}={value}; it has {name}={values}",
                    {"framework": features.name, "name": name, "value": pinned[name], "values": ", ".join(map(str, able))},
                    path="--pin",
                )
            )
    if messages:
        return messages
    if pinned and _any_legal(case, features, devices, Pins()):
        for name, value in pinned.items():
            if name != "modules" and not _any_legal(case, features, devices, structs.replace(Pins(), **{name: value})):
                messages.append(
                    Message(
                        "plan.pin",
                        "no layout on {devices} devices has {name}={value}: {reason}",
                        {
                            "devices": devices,
                            "name": name,
                            "value": value,
                            "reason": _reason(case, features, devices, structs.replace(Pins(), **{name: value})),
                        },
                        path="--pin",
                    )
                )
        if not messages:
            messages.append(
                Message(
                    "plan.pins",
                    "no layout satisfies the pins together: {pins}",
                    {"pins": " ".join(f"{knob}={value}" for knob, value in options.pins.items())},
                    path="--pin",
                )
            )
        return messages
    batches = nearest_batches(case, features, pins)
    if batches:
        values = {"devices": devices, "batch": case.batch.global_batch_sequences, "near": ", ".join(map(str, batches))}
        words = "no layout on {devices} devices divides a global batch of {batch} sequences; nearest that work: {near}"
        idle = idle_nodes(case, features, pins)
        if idle:
            values |= {"idle": idle, "nodes": case.cluster.num_nodes - idle, "all": case.cluster.num_nodes}
            words += "; or, with this batch, up to {idle} of the {all} nodes idle: --spare-nodes {idle}"
        return [Message("plan.batch", words, values, path="--global-batch")]
    return [
        Message(
            "plan.illegal",
            "no layout on {devices} devices is legal: {reason}",
            {"devices": devices, "reason": _reason(case, features, devices, pins)},
        )
    ]


def _any_legal(case: Case, features: Features, devices: int, pins: Pins) -> bool:
    counts = Counts(rejected=Counter())
    return any(
        counts.legal for _ in evaluate_grid(make_space(case, features, devices, pins), counts, overlap=overlap_for(case))
    ) or bool(counts.legal)


def _reason(case: Case, features: Features, devices: int, pins: Pins) -> str:
    """The rules that refused most, of the level at which a pinned knob is known where they did."""
    counts = Counts(rejected=Counter())
    for _ in evaluate_grid(make_space(case, features, devices, pins), counts, overlap=overlap_for(case)):
        pass
    if not counts.rejected:
        return "the degrees do not divide the devices"
    levels = {level for knob, level in LEVELS.items() if getattr(pins, knob) is not None}
    known = {rule.reason for level in levels for rule in rules_of(level)}
    every = [reason for reason, _ in counts.rejected.most_common()]
    return ", or ".join(([reason for reason in every if reason in known] or every)[:2])


def nearest_batches(case: Case, features: Features, pins: Pins) -> tuple[int, ...]:
    """The nearest global batches below and above for which a layout is legal under the pins.

    Holds:   multiples of a mesh's sequences per micro-batch, the nearest ``TRIED`` of each side; each one given has been tried.
    """
    space = make_space(case, features, case.cluster.num_devices, pins)
    mesh = mesh_grid(space)
    for rule in rules_of("mesh"):
        if rule.reason in BATCH_RULES:
            continue
        knobs = knobs_of(mesh, sp=sequence_parallel(space, mesh["tp"]), context=space.context_kind)
        keep = np.broadcast_to(np.asarray(rule.holds(case, features, knobs)), mesh["tp"].shape)
        mesh = {name: column[keep] for name, column in mesh.items()}
    if not len(mesh["dp"]):
        return ()
    batch = case.batch.global_batch_sequences
    steps = sorted({int(dp) * (pins.mb or 1) for dp in mesh["dp"]})
    if any(batch % step == 0 for step in steps):
        return ()
    multiples = {(batch // step + away) * step for step in steps for away in range(-TRIED, TRIED + 1)}
    below = sorted((value for value in multiples if 0 < value < batch), reverse=True)[:TRIED]
    above = sorted(value for value in multiples if value > batch)[:TRIED]

    def legal(value: int) -> bool:
        own = replace(case, batch=replace(case.batch, global_batch_sequences=value))
        return _any_legal(own, features, case.cluster.num_devices, pins)

    nearest = (next((value for value in side if legal(value)), None) for side in (below, above))
    return tuple(value for value in nearest if value is not None)
