"""``tune``: the fastest layout in the fewest trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, one_of
from meshwright.api.request import Answer, Progress, Request

if TYPE_CHECKING:
    from meshwright.api.replaying import Replay

_HOW, _REPLAY = "How it chooses", "Recorded runs"
TUNING = (
    Field(name="sampler", parse=one_of("model", "tpe", "gp", "random"), metavar="model|tpe|gp|random", panel=_HOW, in_file=False,
          help="What says which layout is next: the calibrated cost model, a sampler of Optuna, or chance [default: model]."),
    Field(name="stop_probability", parse=numbers.share, metavar="P", panel=_HOW, in_file=False,
          help="Stop when another layout is more than 1 % faster with less than this probability [default: 0.05]."),
)
REPLAY = (
    Field(name="replay", metavar="CSV", panel=_REPLAY, in_file=False,
          help="Measured runs in the schema of the corpus, failures included, instead of hardware."),
    Field(name="cell", metavar="ID", panel=_REPLAY, in_file=False,
          help="Which case of the file, by its identifier or a part of it [default: the one with most measured layouts]."),
    Field(name="seeds", parse=numbers.count, metavar="N", panel=_REPLAY, in_file=False,
          help="Replay so often, each with other random numbers [default: 1]."),
)


@dataclass(frozen=True, kw_only=True)
class TuneRequest(Request):
    """Recorded runs, and how they are chosen from."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *REPLAY, *TUNING,
        Field(name="trials", parse=numbers.count, metavar="N", panel=_HOW, in_file=False, help="Trials at most."),
        Field(name="calibration", metavar="none|NAME|FILE", panel=_HOW, in_file=False,
              help="Constants with their error: none (priors), shipped, or a file of calibrate [default: shipped]."),
    )

    replay: str | Path | None = None
    cell: str | None = None
    seeds: int | str | None = None
    sampler: str | None = None
    stop_probability: float | str | None = None
    trials: int | str | None = None
    calibration: str | Path | None = None


@dataclass(frozen=True, kw_only=True)
class TuneAnswer(Answer):
    """What was tried, and what is left."""

    replayed: Replay

    @property
    def ok(self) -> bool:
        """Whether a layout was found that runs."""
        return self.replayed.runs[0].best is not None

    def to_json(self) -> dict[str, Any]:
        """The document of ``tune --json``."""
        from meshwright.api.views.replays import replay_view

        return replay_view(self.replayed)


def tune(request: TuneRequest, *, progress: Progress | None = None) -> TuneAnswer:
    """Find the fastest layout of recorded runs.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where a sampler is not installed.
    """
    from meshwright.api.replaying import replay
    from meshwright.catalog.calibrations import check_name

    faults = Faults()
    values = request.read(faults)
    if "replay" not in {*values, *faults.failed}:
        faults.add("tune.replay", "needs --replay CSV: recorded runs", path="tune")
    with faults.at("calibration"):
        check_name(values.get("calibration", "none"))
    faults.check()
    return TuneAnswer(replayed=replay(values))
