"""Everything in which devices differ for a benchmark: how time is taken, what a device is called, which of them there is."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Callable

LEAD_S = 0.05
"""An accelerator is kept busy for at most so long, so that the host is ahead of it when the timed calls begin."""
CYCLES_PER_S = 2e9
"""Clock of an accelerator, roughly: only how long it is kept busy depends on it."""


def likely_kind() -> Literal["cpu", "cuda", "npu"]:
    """The accelerator that torch reaches here, or the processor."""
    if torch.cuda.is_available():
        return "cuda"
    npu = getattr(torch, "npu", None)
    return "npu" if npu is not None and npu.is_available() else "cpu"


def require(kind: str) -> int:
    """Devices of a sort that torch reaches on this host.

    Errors:  InputError where there is none.
    """
    if kind == "cpu":
        return 1
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        raise fault("profile.device", "torch {version} reaches no {kind} device here", path="--device",
                    version=torch.__version__, kind=kind)
    return int(module.device_count())


def device_facts(kind: str) -> tuple[str, int, int]:
    """(Name, bytes of memory, multiprocessors) of the current accelerator."""
    module: Any = torch.get_device_module(kind)
    properties = module.get_device_properties(module.current_device())
    return str(properties.name), int(properties.total_memory), int(getattr(properties, "multi_processor_count", 1))


class Clock:
    """Times calls on one device: by the processor's clock, or by events on an accelerator's own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)

    def wait(self) -> None:
        """Until the device has done everything."""
        if self._module is not None:
            self._module.synchronize()

    def host_s(self, run: Callable[[], None]) -> float:
        """Seconds until everything is launched and done, as a host sees it."""
        self.wait()
        begin = perf_counter()
        run()
        self.wait()
        return perf_counter() - begin

    def device_s(self, run: Callable[[], None], *, lead_s: float = 0.0) -> float:
        """Seconds that the device itself is at it; ``lead_s``: what the host needs to launch it all."""
        if self._module is None:
            return self.host_s(run)
        begin, end = (self._module.Event(enable_timing=True) for _ in range(2))
        self.wait()
        if lead_s and hasattr(self._module, "_sleep"):
            self._module._sleep(int(min(lead_s, LEAD_S) * CYCLES_PER_S))
        begin.record()
        run()
        end.record()
        self.wait()
        return cast("float", begin.elapsed_time(end)) / 1e3
