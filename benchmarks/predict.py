"""Predictions of corpus rows, and what each row measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.domain.features import Features
from meshwright.evidence.rows import ImpossibleError, Run, UnreadableError, run
from meshwright.plan import estimate
from meshwright.search import layout_refusals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.estimate import TimeSplit
    from meshwright.evidence.rows import Row

FEATURES = Features(
    name="corpus", schedules=("1f1b", "interleaved"), zero_stages=(0, 1, 2, 3), parameter_shards_with_pipeline=True,
    positions=("rope", "learned", "alibi", "none"), context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
    interleaved_needs_multiple=False,
)  # fmt: skip
"""Everything that some framework runs: the rows ran, whatever today's frameworks would refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row, predicted and measured."""

    run: Run
    step_s: float
    memory_bytes: float
    """Of the kind that the row measured."""
    reserved_bytes: float
    fits: bool
    measured_mfu: float
    """Published where there is one, else from the step time and causal model FLOPs."""
    time: TimeSplit
    refused: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Predicted over measured step time."""
        return self.step_s / self.run.step_s if self.run.step_s else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions of a set of rows."""

    rows: tuple[Prediction, ...]
    impossible: tuple[Row, ...]
    """Rows whose degrees cannot run; predicted not to fit."""
    skipped: Counter[str]
    """Why other rows are left out."""


def predict(rows: Iterable[Row]) -> Predictions:
    """Predictions of all rows without a flag that can be read."""
    found: list[Prediction] = []
    impossible: list[Row] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        if row["flag"]:
            skipped["flagged"] += 1
            continue
        try:
            each = run(row)
        except ImpossibleError:
            impossible.append(row)
            continue
        except UnreadableError as why:
            skipped[str(why)] += 1
            continue
        found.append(_prediction(each))
    return Predictions(rows=tuple(found), impossible=tuple(impossible), skipped=skipped)


def _prediction(each: Run) -> Prediction:
    result = estimate(each.case, each.layout)
    refused = layout_refusals(each.case, FEATURES, each.layout)
    kind = each.row["mem_kind"]
    memory = result.memory_peak_bytes if kind.startswith("allocated") else result.memory_reserved_bytes
    mfu = result.mfu_ratio * result.step_s / each.step_s if each.step_s else 0.0
    return Prediction(
        run=each, step_s=result.step_s, memory_bytes=memory, reserved_bytes=result.memory_reserved_bytes,
        fits=result.fits and not refused, measured_mfu=float(each.row["mfu"] or mfu), time=result.time, refused=refused,
    )  # fmt: skip
