"""``sweep``: given layouts run for real, each once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.measuring.options import SHARED, TrialsRequest
from meshwright.api.options import CASE
from meshwright.api.pins import consistent
from meshwright.api.request import Answer, Progress, ticking
from meshwright.errors import InputError, Message, NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.measuring.session import Conducted, Confirm, Place, Told
    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.chooser import Candidate
    from meshwright.measure.conduct.budget import Price
    from meshwright.measure.trial import Trial

TOP, MOST = 10, 1000
INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class SweepRequest(TrialsRequest):
    """A case, and which of its layouts are run."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *CASE,
        Field(name="top", parse=numbers.count, metavar="K", panel="Which layouts", in_file=False,
              help="The first K plans of the search [default: 10]."),
        Field(name="layouts", metavar="FILE", panel="Which layouts", in_file=False,
              help="Those of a file: a label on each line, or the document of plan --json."),
        Field(name="grid", kind="flag", panel="Which layouts", in_file=False,
              help="Every layout of the grid that fits, the fastest first; --pin narrows it."),
        *SHARED,
    )

    top: int | str | None = None
    layouts: str | Path | None = None
    grid: bool = False


@dataclass(frozen=True, kw_only=True)
class SweepAnswer(Answer):
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

    @property
    def status(self) -> int:
        """Interrupted, or a no where nothing ended well."""
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
    _check(values, faults)
    given = subject(values, faults)
    where = place(values, faults)
    candidates = _candidates(given, values, faults, progress)
    cost, trials = priced(given, where, candidates)
    answer = SweepAnswer(given=given, where=where, candidates=tuple(candidates), cost=cost)
    if values["dry_run"]:
        return replace(answer, described=_described(where, trials[: cost.trials]))
    where.executor.check(trials)
    agreed(price_line(given, where, cost), values, confirm)
    done = conduct(given, where, Listed(candidates), told)
    answer = replace(answer, conducted=done)
    if "out" in values:
        rows, left = rows_of(given, done.attempts, where.store)
        write_rows(str(values["out"]), rows, force=values["force"])
        answer = replace(answer, written=str(values["out"]), left_out=left)
    return answer


def _described(where: Place, trials: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    return tuple((each.label, where.executor.describe(each)) for each in trials)


def _check(values: Values, faults: Faults) -> None:
    """Options that do not go together."""
    ways = [f"--{name}" for name in ("top", "layouts", "grid") if values.get(name)]
    if len(ways) > 1:
        faults.add("sweep.which", "{ways} name different layouts: one of them", path=ways[0], ways=ways)
    if "layouts" in values and values["pin"]:
        faults.add("sweep.pin", "narrows a search, and --layouts names the layouts themselves", path="--pin")


def _candidates(given: Subject, values: Values, faults: Faults, progress: Progress | None) -> list[Candidate]:
    """The layouts that are to be run, with their predictions, in the order in which they are.

    Errors:  ``InputError`` with every fault of a file of layouts; ``NoAnswerError`` where none fits.
    """
    from meshwright import search

    pins = consistent(values["pin"], faults)
    faults.check()
    if "layouts" in values:
        layouts = [given.read(label) for label in _labels(given, values["layouts"])]
    elif values["grid"]:
        from meshwright.search.listing import listed

        every, fitting = listed(given.case, given.features, given.runner, pins, MOST)
        if fitting > MOST and "trials" not in values:
            raise fault("sweep.grid", "{fitting:,} layouts of the grid fit: narrow it by --pin, or say --trials", path="--grid",
                        fitting=fitting)
        layouts = [layout for layout, _, _ in every]
    else:
        options = search.SearchOptions(top=values.get("top", TOP), pins=pins)
        result = search.plan(given.case, given.features, options, progress=ticking(progress, "layouts"), runner=given.runner)
        if result.refused:
            raise NoAnswerError(Message("sweep.refused", "{title} runs none of the best {asked:,} layouts that fit",
                                        {"title": given.title, "asked": result.refused}))
        layouts = [plan.layout for plan in result.plans]
    if not layouts:
        raise NoAnswerError(Message("sweep.none", "no layout of {model} fits the memory of {devices} x {device}", {
            "model": given.case.model.name, "devices": given.case.cluster.num_devices, "device": given.case.cluster.device.name}))
    found = [given.candidate(layout) for layout in layouts]
    if given.template is not None:
        given.template.check(given.case, found)
    return found


def _labels(given: Subject, path: str) -> list[str]:
    """The labels of a file; what is wrong with any of them is said with its line.

    Errors:  ``InputError`` with every fault.
    """
    from meshwright.readers.safe import parse_json, read_text

    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        document = parse_json(text, path)
        plans = document.get("plans") if isinstance(document, dict) else document
        said = [each.get("label") if isinstance(each, dict) else each for each in plans] if isinstance(plans, list) else []
        lines = [(f"{path}: plan {number}", label) for number, label in enumerate(said, 1)]
    else:
        lines = [(f"{path}:{number}", line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    faults = Faults()
    labels = []
    for where, label in lines:
        if label == "":
            continue
        if not isinstance(label, str):
            faults.add("sweep.label", "is no label of a layout", path=where)
            continue
        try:
            if reason := given.refused(given.read(label)):
                faults.add("layout.refused", "{label!r}: {reason}", path=where, label=label, reason=reason)
        except InputError as error:
            faults.note(replace(each, path=where) for each in error.messages)
        labels.append(label)
    faults.check()
    if not labels:
        raise fault("sweep.empty", "names no layout", path=path)
    return labels
