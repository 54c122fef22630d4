"""``tune``: the fastest layout in the fewest trials, run for real or recorded by others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.measuring.candidates import TOP_TUNED, check_which, which
from meshwright.api.measuring.options import SHARED, TrialsRequest
from meshwright.api.options import CASE
from meshwright.api.paged import paged
from meshwright.api.request import INTERRUPTED, Answer, Progress

if TYPE_CHECKING:
    from meshwright.api.measuring.session import Confirm, Told
    from meshwright.api.measuring.tuned import Tuned
    from meshwright.api.replaying import Replay
    from meshwright.errors import Message

_HOW, _REPLAY = "How it chooses", "Recorded runs"
TUNING = (
    Field(name="sampler", parse=one_of("model", "tpe", "gp", "random"), metavar="model|tpe|gp|random", panel=_HOW, in_file=False,
          help="What says which layout is next: the calibrated cost model, a sampler of Optuna, or chance [default: model]."),
    Field(name="stop_probability", parse=numbers.share, metavar="P", panel=_HOW, in_file=False,
          help="Stop when another layout is more than 1 % faster with less than this probability [default: 0.05]."),
)
REPLAY = (
    Field(name="replay", metavar="CSV", panel=_REPLAY, in_file=False,
          help="Measured runs in the schema of the corpus, failures included, instead of hardware: they name the case."),
    Field(name="cell", metavar="ID", panel=_REPLAY, in_file=False,
          help="Which case of the file, by its identifier or a part of it [default: the one with most measured layouts]."),
    Field(name="seeds", parse=numbers.count, metavar="N", panel=_REPLAY, in_file=False,
          help="Replay so often, each with other random numbers [default: 1]."),
)
OF_REPLAY = ("replay", "cell", "seeds", "sampler", "stop_probability", "trials", "calibration", "html", "force")
"""What a replay takes: the rest is the file's."""


class TuneRequest(TrialsRequest, frozen=True, kw_only=True):
    """A case and how trials of it are chosen and run, or recorded runs."""

    FIELDS: ClassVar[tuple[Field, ...]] = (*CASE, *which(TOP_TUNED), *TUNING, *SHARED, *REPLAY)

    top: int | str | None = None
    layouts: str | Path | None = None
    grid: bool = False
    sampler: str | None = None
    stop_probability: float | str | None = None
    replay: str | Path | None = None
    cell: str | None = None
    seeds: int | str | None = None


class TuneAnswer(Answer, frozen=True, kw_only=True):
    """What was tried, and what is left."""

    tuned: Tuned | None = None
    replayed: Replay | None = None

    @property
    def refusal(self) -> Message | None:
        """Why the rows could not be written."""
        return None if self.tuned is None else self.tuned.unsaved

    @property
    def status(self) -> int:
        """2 where rows could not be written; interrupted; a no where no layout ended well."""
        if self.refusal is not None:
            return 2
        if self.replayed is not None:
            return int(self.replayed.runs[0].best is None)
        if self.tuned is None or self.tuned.conducted is None:
            return 0
        if self.tuned.conducted.interrupted:
            return INTERRUPTED
        from meshwright.api.measuring.session import best_of

        return int(best_of(self.tuned.conducted.attempts) is None)

    @property
    def ok(self) -> bool:
        """Whether a layout was found that runs."""
        return self.status == 0

    def to_json(self) -> dict[str, Any]:
        """The document of ``tune --json``."""
        from meshwright.api.views.replays import replay_view
        from meshwright.api.views.tuned import tuned_view

        if self.replayed is not None:
            return replay_view(self.replayed)
        assert self.tuned is not None, "an answer is one of the two"
        return tuned_view(self.tuned)


@door
@paged
def tune(
    request: TuneRequest, *, progress: Progress | None = None, told: Told | None = None, confirm: Confirm | None = None
) -> TuneAnswer:
    """Find the fastest layout. ``told`` is called with every event; ``confirm`` is asked before the first trial.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where no layout fits, devices are busy, or a sampler
             is not installed.
    """
    from meshwright.api.measuring.tuned import run

    faults = Faults()
    values = request.read(faults)
    if "replay" in values or "replay" in faults.failed:
        return _replay(values, faults)
    for name in ("cell", "seeds"):
        if name in values:
            faults.add("tune.replay", "needs --replay CSV: recorded runs", path=f"--{name}")
    check_which(values, faults)
    return TuneAnswer(tuned=run(values, faults, progress, told, confirm))


def _replay(values: Values, faults: Faults) -> TuneAnswer:
    """Recorded runs instead of hardware."""
    from meshwright.api.replaying import replay
    from meshwright.catalog.calibrations import check_name

    for field in TuneRequest.FIELDS:
        if values.get(field.name) and field.name not in OF_REPLAY:
            faults.add("tune.recorded", "is the file's to say with --replay: leave it out", path=field.option)
    with faults.at("calibration"):
        check_name(values.get("calibration", "none"))
    faults.check()
    return TuneAnswer(replayed=replay(values))
