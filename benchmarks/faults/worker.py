"""One rank of a case: an emulated device, the fault, and the reference step around both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks.faults.device import come_first, emulate
from benchmarks.faults.inject import Fault
from meshwright.engine import measure

if TYPE_CHECKING:
    from benchmarks.faults.draw import Case
    from meshwright.engine.request import Request
    from meshwright.engine.step import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What a rank is told."""

    request: Request
    case: Case
    forward_s: float
    """Of one layer and micro-batch on the emulated device."""


def run(payload: Payload) -> None:
    """Take the steps of a case."""
    come_first()
    fault = Fault(payload.case, payload.forward_s, payload.request)
    built = measure.build

    def build(request: Request, device: torch.device) -> Trainer:
        trainer = built(request, device)
        emulate(trainer, payload.forward_s, fault.slower)
        fault.on(trainer)
        return trainer

    measure.build = build
    try:
        measure.measure(payload.request)
    finally:
        measure.build = built
