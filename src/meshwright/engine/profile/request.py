"""What the ranks of a profile are to do. Plain values; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.engine.profile.jobs import Job, World
    from meshwright.engine.profile.machine import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How carefully everything is timed."""

    tolerance: float
    """Half of the median's interval, relative to the median, that is good enough."""
    block_s: float
    """What one block of calls takes, about."""


NORMAL, QUICK = Care(tolerance=0.05, block_s=0.02), Care(tolerance=0.10, block_s=0.008)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Jobs, and how they are timed."""

    jobs: tuple[Job, ...]
    samples: str
    """File that the first rank appends to."""
    kind: Kind
    world: World
    care: Care
    job_s: float
    """Seconds that a job may take, on average."""
