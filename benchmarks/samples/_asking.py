"""How figures of logs are asked of what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from statistics import median

from benchmarks.samples import Expected
from meshwright.domain.observed import RunLog, Step
from meshwright.readers.formats import Observed

Said = float | str | None


def log(seen: Observed, format: str = "") -> RunLog:
    """The log of the file, of a format where several are in it."""
    return next(each for each in seen.observations if isinstance(each, RunLog) and format in each.format)


def _got(got: Callable[[RunLog], Said], format: str, seen: Observed) -> Said:
    return got(log(seen, format))


def asked(
    file: str, rows: Mapping[str, tuple[Said, Callable[[RunLog], Said]]], format: str = "", tolerance: float = 1e-6
) -> Iterable[Expected]:
    for what, (want, got) in rows.items():
        yield Expected(file=file, what=what, want=want, got=partial(_got, got, format), tolerance_ratio=tolerance)


def middle(log: RunLog, of: Callable[[Step], float | None], first: int = 0) -> float | None:
    values = [value for step in log.steps[first:] if (value := of(step)) is not None]
    return median(values) if values else None


def step_ms(log: RunLog, first: int = 0) -> float | None:
    value = middle(log, lambda step: step.step_s, first)
    return None if value is None else 1e3 * value


def part_ms(name: str) -> Callable[[RunLog], Said]:
    return lambda log: 1e3 * (middle(log, lambda step: step.parts.get(name)) or 0.0)


def each_step(log: RunLog, of: Callable[[Step], Said], *places: int) -> str:
    return " ".join(str(of(log.steps[place])) for place in places)


def share(name: str) -> Callable[[RunLog], Said]:
    return lambda log: (middle(log, lambda step: step.parts.get(name)) or 0.0) / (middle(log, lambda step: step.step_s) or 1.0)


def setting(*names: str) -> Callable[[RunLog], Said]:
    return lambda log: " ".join(log.settings.get(name, "") for name in names)


def signs(name: str) -> Callable[[RunLog], Said]:
    return lambda log: float(sum(sign.times for sign in log.signs if sign.id == name))
