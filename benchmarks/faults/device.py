"""An emulated device for ranks that share two cores: a layer lasts a set time in which its rank sleeps.

Everything else is the reference step's own: its modules, groups, collectives, schedules and records. What a layer computes for real
is a few milliseconds beside the set time, so that neighbours on the machine change little.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.engine.step import Trainer

BACKWARD = 2.0
"""The backward pass of a layer lasts so many times its forward pass."""
PRIORITY = 1


def come_first() -> None:
    """Ranks that sleep wake up in time, where the system lets them: what is measured is the fault, not the neighbours.

    Every thread has a priority of its own, those of gloo, too.
    """
    with suppress(OSError, AttributeError):
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(PRIORITY))


def emulate(trainer: Trainer, forward_s: float, slower: Callable[[], float]) -> None:
    """Every layer of a trainer lasts ``forward_s`` forward and twice that backward, times what ``slower`` says."""
    for part in trainer.parts:
        for block in part.blocks.values():  # type: ignore[union-attr, operator]
            block.register_forward_hook(_lasting(forward_s, slower))


def _lasting(forward_s: float, slower: Callable[[], float]) -> Callable[..., None]:
    def lasts(_: Any, __: Any, out: Any) -> None:
        sleep(forward_s * slower())
        if out.requires_grad:
            out.register_hook(lambda _: sleep(BACKWARD * forward_s * slower()))

    return lasts
