"""What a profile measures, as a list of values. Pure but for reading ``grids.yaml``; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from meshwright.domain.sample import Argument, Bench
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped

if TYPE_CHECKING:
    from meshwright.engine.profile.machine import Kind

GRIDS = Path(__file__).with_name("grids.yaml")
HALF, FULL = "bf16", "fp32"
PRODUCT_DIRECTIONS = ("forward", "input", "weight")
BOTH = ("forward", "backward")
ONE_WAY = ("copy", "adam", "router", "gathered", "scattered")
"""Passes without gradients that pass through."""
WHOLE = ("adam",)
"""Passes in FP32; all others are in BF16."""
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to time."""

    bench: Bench
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def key(self, busy_ranks: int) -> tuple[Any, ...]:
        """That of its sample."""
        return (self.bench, tuple(sorted(self.arguments.items())), busy_ranks)

    @property
    def label(self) -> str:
        """A few words for messages."""
        return " ".join([self.bench, *(str(each) for each in self.arguments.values())])


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Ranks that measure together: all of them, and those of one node."""

    ranks: int
    ranks_per_node: int

    @property
    def nodes(self) -> int:
        """Hosts."""
        return self.ranks // self.ranks_per_node

    def sizes(self) -> list[tuple[int, str]]:
        """(Ranks, tier) of the groups that collectives are timed on: divisors of a node, then what spans nodes."""
        inside = [(size, "scale_up") for size in divisors(self.ranks_per_node)]
        return inside + [(size, "network") for size in divisors(self.nodes)] + (
            [(self.ranks, "network")] if self.nodes > 1 and self.ranks_per_node > 1 else []
        )

    def groups(self, size: int, tier: str) -> list[list[int]]:
        """Ranks of every group of a size; every rank is in one of them, so that all are busy.

        ``scale_up``: neighbours inside a node; ``network``: one rank of each of ``size`` nodes, or neighbours over nodes where
        there are not so many.
        """
        per_node, nodes = self.ranks_per_node, self.nodes
        if tier == "scale_up" or size > nodes:
            return [list(range(first, first + size)) for first in range(0, self.ranks, size)]
        return [
            [node * per_node + place for node in range(first, first + size)]
            for first in range(0, nodes, size)
            for place in range(per_node)
        ]


def divisors(number: int) -> list[int]:
    """Divisors from 2 on, in order."""
    return [size for size in range(2, number + 1) if number % size == 0]


def jobs(kind: Kind, world: World, *, quick: bool = False) -> tuple[Job, ...]:
    """Everything that a profile of such a device and so many ranks measures, in an order that spreads each sort over the run."""
    return spread(every_job(grid(kind, quick=quick), kind, world))


def grid(kind: Kind, *, quick: bool = False) -> Mapping[str, Any]:
    """Sizes for a sort of device."""
    return require_mapping(_grids()[("cpu" if kind == "cpu" else "accelerator") + ("-quick" if quick else "")], "grids.yaml")


@cache
def _grids() -> Mapping[str, Any]:
    return require_mapping(load_shipped(GRIDS), GRIDS.name)


def spread(found: Sequence[Job]) -> tuple[Job, ...]:
    """The same jobs, shuffled alike every time: what drifts while a profile runs does not settle on one sort of benchmark."""
    mixed = list(found)
    Random(0).shuffle(mixed)
    return tuple(mixed)


def every_job(sizes: Mapping[str, Any], kind: Kind, world: World) -> list[Job]:
    """The jobs of a grid, sort by sort."""
    found = [*_products(sizes["products"]), *_cores(sizes), *_passes(sizes["passes"], world), *_copies(sizes, kind)]
    found += [Job(bench="operator", arguments={"kind": kind_of}) for kind_of in (*BOTH, "plain")]
    if world.ranks > 1:
        found += _exchanges(sizes, world)
    return found


def _products(sizes: Mapping[str, Any]) -> Iterator[Job]:
    lattice = [(rows, columns, inner) for rows in sizes["rows"] for columns in sizes["columns"] for inner in sizes["inner"]]
    for rows, columns, inner in [*lattice, *sizes.get("further", ())]:
        for direction in PRODUCT_DIRECTIONS:
            yield Job(bench="product", arguments={
                "rows": rows, "columns": columns, "inner": inner, "dtype": HALF, "direction": direction})


def _cores(sizes: Mapping[str, Any]) -> Iterator[Job]:
    """Attention and experts' products."""
    for direction in BOTH:
        for sequences, heads, key_heads, tokens, width in sizes["attention"]:
            yield Job(bench="attention", arguments={
                "sequences": sequences, "heads": heads, "key_heads": key_heads, "tokens": tokens, "head_dim": width,
                "dtype": HALF, "direction": direction})
        for rows, columns, inner, groups in sizes["grouped"]:
            yield Job(bench="grouped", arguments={
                "rows": rows, "columns": columns, "inner": inner, "groups": groups, "dtype": HALF, "direction": direction
            })


def _passes(sizes: Mapping[str, Any], world: World) -> Iterator[Job]:
    for kind, grid_of_kind in sizes.items():
        extra = dict(grid_of_kind.get("extra", {}))
        if kind == "loss_parallel":
            if world.ranks_per_node == 1:
                continue
            extra["ranks"] = world.ranks_per_node
        for width in grid_of_kind["widths"]:
            for power in grid_of_kind["elements"]:
                for direction in ("forward",) if kind in ONE_WAY else BOTH:
                    yield Job(bench="pass", arguments={
                        "kind": kind, "elements": max(2**power // width, 1) * width, "width": width,
                        "dtype": FULL if kind in WHOLE else HALF, "direction": direction, **extra})


def _copies(sizes: Mapping[str, Any], kind: Kind) -> Iterator[Job]:
    for direction in ("on_device",) if kind == "cpu" else ("on_device", "to_device", "to_host"):
        for power in sizes["transfers"]:
            yield Job(bench="transfer", arguments={"direction": direction, "bytes": 2**power})
    for power in sizes["memory"]:
        yield Job(bench="memory", arguments={"bytes": 2**power})


def _exchanges(sizes: Mapping[str, Any], world: World) -> Iterator[Job]:
    """What takes several ranks."""
    for ranks, tier in world.sizes():
        for operation in OPERATIONS:
            if operation == "send" and tier == "network" and ranks > world.nodes:
                continue  # its neighbours are on one node
            for power in sizes["collectives"]:
                yield Job(bench="collective", arguments={
                    "operation": operation, "ranks": ranks, "payload_bytes": 2**power, "tier": tier})
    near = world.ranks_per_node if world.ranks_per_node > 1 else world.ranks
    for direction in BOTH:
        yield Job(bench="distributed", arguments={"kind": direction, "ranks": near})
    for kind in (*BOTH, "step"):
        yield Job(bench="unit", arguments={"kind": kind, "ranks": near})
    for payload in sizes["messages"]:
        yield Job(bench="message", arguments={"ranks": near, "payload_bytes": payload})
    for payload in sizes["beside"]:
        for operation in ("all-reduce", "all-gather"):
            yield Job(bench="beside", arguments={"operation": operation, "payload_bytes": payload, "ranks": near})


def work_flops(job: Job) -> float:
    """Arithmetic of products in one call, of attention over whole squares; 0 for everything else."""
    sizes = {name: float(value) for name, value in job.arguments.items() if not isinstance(value, str)}
    backward = job.arguments.get("direction") == "backward"
    if job.bench in ("product", "grouped"):
        return (4.0 if backward else 2.0) * sizes["rows"] * sizes["columns"] * sizes["inner"]
    if job.bench == "attention":
        squares = sizes["sequences"] * sizes["heads"] * sizes["tokens"] ** 2 * sizes["head_dim"]
        return (10.0 if backward else 4.0) * squares
    return 0.0
