"""Sets of rows that are scored together, with the targets on them: ``data/sets.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import make_converter, structure
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.evidence.score.scored import Scored

FILE = Path(__file__).parents[1] / "data" / "sets.yaml"


class Where(Value, frozen=True, kw_only=True):
    """Conditions on a row; the head of the file explains them."""

    sources: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    not_versions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    tuning: str = ""
    mixture: bool | None = None
    micro_batch: bool | None = None
    min_devices: int | None = None
    max_devices: int | None = None
    min_mfu: float | None = None
    max_mfu: float | None = None

    def holds(self, each: Scored) -> bool:
        """Whether a row meets all conditions; an unmeasured row has no MFU and meets no condition on it."""
        row, version = each.row, each.row.framework_version
        devices = row.num_devices or 0
        return (
            (not self.sources or each.source in self.sources)
            and (not self.frameworks or row.framework.lower() in self.frameworks)
            and (not self.versions or version.startswith(self.versions))
            and not (self.not_versions and version.startswith(self.not_versions))
            and (not self.devices or each.device.startswith(self.devices))
            and (not self.precisions or row.precision.startswith(self.precisions))
            and (not self.tasks or row.task in self.tasks)
            and self.tuning in ("", row.said.tuning)
            and self.mixture in (None, each.is_moe)
            and self.micro_batch in (None, bool(row.microbatch_sequences))
            and (self.min_devices is None or devices >= self.min_devices)
            and (self.max_devices is None or devices <= self.max_devices)
            and (self.min_mfu is None or (each.mfu is not None and each.mfu >= self.min_mfu))
            and (self.max_mfu is None or (each.mfu is not None and each.mfu < self.max_mfu))
        )


class Target(Value, frozen=True, kw_only=True):
    """How good a metric must be: its magnitude at most, or at least."""

    below: float | None = None
    above: float | None = None

    def met(self, value: float) -> bool:
        """Whether a metric reaches it."""
        return (self.below is None or abs(value) <= self.below) and (self.above is None or value >= self.above)

    def strain(self, value: float) -> float:
        """How near or how far beyond the target: above 1 it is missed; what is missing of 1 counts for ``above``."""
        tiny = 1e-9
        if self.below is not None:
            return (abs(value) + tiny) / (self.below + tiny)
        assert self.above is not None
        return (1.0 - value + tiny) / (1.0 - self.above + tiny)


class Set(Value, frozen=True, kw_only=True):
    """A set of rows."""

    name: str
    where: Where
    targets: Mapping[str, Target]


@cache
def sets() -> tuple[Set, ...]:
    """All sets of the file, in its order."""
    document = require_mapping(load_shipped(FILE), FILE.name)
    return structure(make_converter(), document["sets"], tuple[Set, ...], where=f"{FILE.name}: sets")
