"""``sweep``: given layouts run for real, each once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import field

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field
from meshwright.api.measuring.candidates import candidates_of, check_which, which
from meshwright.api.measuring.options import SHARED, TrialsRequest
from meshwright.api.options import CASE
from meshwright.api.paged import paged
from meshwright.api.request import INTERRUPTED, Answer, Progress
from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.measuring.session import Conducted, Confirm, Place, Told
    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.chooser import Candidate
    from meshwright.measure.conduct.budget import Price
    from meshwright.measure.trial import Trial

TOP = 10


class SweepRequest(TrialsRequest, frozen=True, kw_only=True):
    """A case, and which of its layouts are run."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *CASE,
        *which(TOP),
        *SHARED,
    )

    top: int | str | None = None
    layouts: str | Path | None = None
    grid: bool = False


class SweepAnswer(Answer, frozen=True, kw_only=True):
    """What was run, or would be."""

    given: Subject
    where: Place
    candidates: tuple[Candidate, ...]
    cost: Price
    described: tuple[tuple[str, str], ...] = ()
    """Of a dry run: label, and what would be done for it."""
    conducted: Conducted | None = None
    """None of a dry run."""
    written: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Label -> why its run is in no row of ``out``."""
    unsaved: Message | None = None
    """Why the rows could not be written: no reason to lose what was measured."""

    @property
    def refusal(self) -> Message | None:
        """Why the rows could not be written."""
        return self.unsaved

    @property
    def status(self) -> int:
        """2 where rows could not be written; interrupted; a no where nothing ended well."""
        if self.unsaved is not None:
            return 2
        if self.conducted is None:
            return 0
        if self.conducted.interrupted:
            return INTERRUPTED
        from meshwright.api.measuring.session import best_of

        return int(best_of(self.conducted.attempts) is None)

    @property
    def ok(self) -> bool:
        """Whether something was measured, and nothing interrupted it."""
        return self.status == 0

    def to_json(self) -> dict[str, Any]:
        """The document of ``sweep --json``."""
        from meshwright.api.views.trials import trials_view

        view = trials_view(self.given, self.where, self.candidates, self.cost, self.described, self.conducted)
        return view | ({"out": self.written, "left_out": dict(self.left_out)} if self.written else {})


@door
@paged
def sweep(
    request: SweepRequest, *, progress: Progress | None = None, told: Told | None = None, confirm: Confirm | None = None
) -> SweepAnswer:
    """Run layouts of a case. ``told`` is called with every event; ``confirm`` is asked before the first trial.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where no layout fits, or devices are busy.
    """
    from meshwright.api.measuring.rows import rows_of, write_rows
    from meshwright.api.measuring.session import agreed, conduct, place, price_line, priced
    from meshwright.api.measuring.subject import subject
    from meshwright.measure.chooser import Listed

    faults = Faults()
    values = request.read(faults)
    check_which(values, faults)
    given = subject(values, faults)
    where = place(values, faults)
    candidates = candidates_of(given, values, faults, progress, top=TOP)
    cost, trials = priced(given, where, candidates)
    answer = SweepAnswer(given=given, where=where, candidates=tuple(candidates), cost=cost)
    if values["dry_run"]:
        return replace(answer, described=_described(where, trials[: cost.trials]))
    where.executor.check(trials)
    line = price_line(given, where, cost)
    agreed(line, values, confirm)
    done = conduct(given, where, Listed(candidates), candidates, told, most=cost.trials, price_said=line if values["yes"] else "")
    answer = replace(answer, conducted=done)
    if "out" in values:
        rows, left = rows_of(given, done.attempts, where.store)
        try:
            write_rows(str(values["out"]), rows, force=values["force"])
        except InputError as error:
            return replace(answer, unsaved=error.messages[0])
        answer = replace(answer, written=str(values["out"]), left_out=left)
    return answer


def _described(where: Place, trials: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    return tuple((each.label, where.executor.describe(each)) for each in trials)
