"""Communication kernels with what is known of each: the operation, its group, its bytes, its place in the group's sequence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.observed import Collective
from meshwright.readers.traces.columns import MAX_COLLECTIVES, NO_ARGS, Columns, Device, Host
from meshwright.readers.traces.intervals import together, union
from meshwright.readers.traces.names import CLASSES, COMMUNICATION, OPERATIONS, element_bytes, operation
from meshwright.text import visible

if TYPE_CHECKING:
    from meshwright.readers.traces.event import Args
    from meshwright.readers.traces.timeline import Timeline

LONGEST_NAME = 300
_RANKS = re.compile(r"\[\s*\d{1,7}(?:\s*,\s*\d{1,7})*\s*\]")
_US = 1e-6


@dataclass(frozen=True, eq=False)
class Communication:
    """Rows of a device that communicate, and the arguments of each."""

    rows: Device
    args: list[Args]
    names: list[str]
    origin: float
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def unnamed(self) -> int:
        """Kernels of which not even the operation is known."""
        return sum(not _operation(each, name) for each, name in zip(self.args, self.names, strict=True))

    @property
    def largest_group(self) -> int:
        """Ranks of the largest group that any says."""
        return max((each.group_size for each in self.args), default=0)

    def collectives(self, line: Timeline) -> tuple[Collective, ...]:
        """Each kernel in order of start."""
        exposed = line.exposed(self.rows.start, self.rows.end)
        return tuple(
            Collective(
                operation=_operation(each, self.names[index]), start_s=float(self.rows.start[index] - self.origin) * _US,
                end_s=float(self.rows.end[index] - self.origin) * _US, exposed_s=float(exposed[index]) * _US, group=group_of(each),
                ranks=ranks_of(each), sequence=each.sequence if each.sequence >= 0 else None, message_bytes=_bytes(each),
            )
            for index, each in enumerate(self.args[:MAX_COLLECTIVES])
        )

    def exposed(self, line: Timeline) -> dict[str, float]:
        """Exposed seconds of each group."""
        numbers: dict[str, int] = {}
        group = np.array([numbers.setdefault(group_of(each), len(numbers)) for each in self.args], dtype=np.int64)
        found = {}
        for name, number in numbers.items():
            own = self.rows.rows(group == number)
            cover = together((line.compute, union(own.start, own.end)))
            found[name] = (cover.total - line.compute.total) * _US
        return found


def on_host(host: Host, origin: float) -> tuple[Collective, ...]:
    """Collectives that the host itself runs (gloo), in order of start: all that there is where no device was recorded."""
    rows = np.flatnonzero(host.what == CLASSES.index("gloo"))
    found = []
    for index in rows[np.argsort(host.start[rows], kind="stable")][:MAX_COLLECTIVES].tolist():
        start, number = (float(host.start[index]) - origin) * _US, int(host.number[index])
        length, what = float(host.duration[index]) * _US, OPERATIONS[number] if number >= 0 else ""
        found.append(Collective(operation=what, start_s=start, end_s=start + length, exposed_s=length))
    return tuple(found)


def communication(device: Device, columns: Columns, host: Host, origin: float) -> Communication:
    """What communicates; a kernel that says nothing of its collective is told by the operator that asked for it."""
    rows = device.rows(device.kind == COMMUNICATION)
    names = list(columns.names)
    args = [_told(int(each), columns, host) for each in rows.correlation]
    groups = {group_of(each): ranks for each in args if (ranks := ranks_of(each))}
    return Communication(rows, args, [names[int(each)] for each in rows.name], origin, groups)


def _told(correlation: int, columns: Columns, host: Host) -> Args:
    own = columns.comms.get(correlation, NO_ARGS)
    if own.collective:
        return own
    external = max(own.external, own.external_old)
    if external < 0 and len(host.correlation):
        index = int(np.searchsorted(host.correlation, correlation))
        if index < len(host.correlation) and host.correlation[index] == correlation:
            external = int(host.external[index])
    return columns.operators.get(external, own) if external >= 0 else own


def _operation(args: Args, name: str) -> str:
    return operation(args.collective) or operation(name)


def group_name(name: str, says: str) -> str:
    """A process group's name and description as one text; empty where neither is said."""
    return visible(f"{name} {says}".strip())[:LONGEST_NAME]


def group_of(args: Args) -> str:
    """The process group of a collective."""
    return group_name(args.group, args.group_says)


def ranks_of(args: Args) -> tuple[int, ...]:
    """The group's ranks; nothing where the list was shortened."""
    return tuple(int(each) for each in re.findall(r"\d+", args.group_ranks)) if _RANKS.fullmatch(args.group_ranks.strip()) else ()


def _bytes(args: Args) -> int | None:
    """The larger of what goes in and what comes out."""
    return max(args.elements_in, args.elements_out, 0) * element_bytes(args.dtype) or None
