"""The machine that samples belong to. No torch at import: samples are read where none is installed."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from meshwright.engine.launch import cores_here
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["cpu", "cuda", "npu"]
VARYING = ("host", "date", "ranks", "ranks_per_node")
"""Fields in which samples of one store may differ: every sample says how many ranks were busy, and nodes of a sort are alike.
Their number may not: so many ranks on one node are busier there than on two."""
MOST = 2**63
"""No count of a machine, not even of bytes, is so large."""
MEMORY_TOLERANCE = 0.02
"""Kernels and drivers report a little more or less memory from boot to boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a profile was measured on."""

    name: str
    """The device's model, as the system says it."""
    kind: Kind
    cores: int
    """Processor cores of a host that this process may use."""
    memory_bytes: int
    """Of one device; of the whole host where the processor is the device, which all ranks share."""
    host_memory_bytes: int
    ranks: int
    """Processes that measured at the same time."""
    ranks_per_node: int
    num_units: int
    """Streaming multiprocessors; 1 where there are none."""
    threads: int
    """Threads of a rank on the processor."""
    torch: str
    host: str
    date: str
    """Day of the profile, ISO 8601."""

    def document(self) -> dict[str, object]:
        """The machine as JSON."""
        return asdict(self)

    def differences(self, other: Machine) -> list[str]:
        """In what another machine differs so that samples of both do not go together, in words."""
        found = []
        nodes, others = (each.ranks // max(1, each.ranks_per_node) for each in (self, other))
        if nodes != others:
            found.append(f"nodes {nodes} and not {others}")
        for name in (each.name for each in fields(self) if each.name not in VARYING):
            one, two = getattr(self, name), getattr(other, name)
            near = name.endswith("_bytes") and abs(one - two) <= MEMORY_TOLERANCE * max(one, two)
            if one != two and not near:
                found.append(f"{name} {one} and not {two}")
        return found


def machine_of(document: Mapping[str, object], where: str) -> Machine:
    """A machine from JSON.

    Errors:  InputError where a field is missing or of another kind.
    """
    known = {"str": str, "int": int, "Kind": str}
    for field in fields(Machine):
        value = document.get(field.name)
        wanted = known[str(field.type)]
        if not isinstance(value, wanted) or isinstance(value, bool) or (wanted is int and not 0 <= cast("int", value) < MOST):
            raise fault("profile.machine", "the first line does not describe a machine: {field} is {value!r}", path=where,
                        field=field.name, value=value)
    if document["kind"] not in get_args(Kind):
        raise fault("profile.machine", "the first line does not describe a machine: {field} is {value!r}", path=where,
                    field="kind", value=document["kind"])
    return Machine(**{field.name: document[field.name] for field in fields(Machine)})  # type: ignore[arg-type]


def this_machine(kind: Kind, *, ranks: int, ranks_per_node: int, threads: int) -> Machine:
    """The machine that this process runs on."""
    memory = host_memory_bytes()
    name, device_bytes, units = processor(), memory, 1
    if kind != "cpu":
        from meshwright.engine.profile.clock import device_facts

        name, device_bytes, units = device_facts(kind)
    return Machine(
        name=name, kind=kind, cores=cores_here(), memory_bytes=device_bytes, host_memory_bytes=memory, num_units=units, ranks=ranks,
        ranks_per_node=ranks_per_node, threads=threads, torch=torch_version(), host=platform.node() or "unknown",
        date=datetime.now(tz=UTC).date().isoformat(),
    )


def torch_version() -> str:
    """The installed release, without importing it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        raise fault("engine.torch", "this needs PyTorch, which is not installed: pip install 'meshwright[torch]'") from None


def host_memory_bytes() -> int:
    """Memory of this host; where a container allows less, that."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return pages
    return min(pages, limit)


def processor() -> str:
    """Model of the processor, as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "unknown processor"


def load_average() -> float:
    """Load of the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0
