"""``import``: the files of a framework as a layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.request import Answer, FilesRequest, Progress
from meshwright.api.sources import FILES, Taken, take, wanted
from meshwright.outputs import obstacles

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate


class ImportRequest(FilesRequest, frozen=True, kw_only=True):
    """Files of a framework, and where to write the plan that they are."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *FILES,
        Field(name="save", metavar="FILE", panel="Output", in_file=False,
              help="Write a plan.yaml that estimate, explain and export take; needs --model and a cluster."),
        Field(name="force", kind="flag", panel="Output", in_file=False, help="Overwrite the plan where it exists."),
    )

    save: str | Path | None = None
    force: bool = False


class ImportAnswer(Answer, frozen=True, kw_only=True):
    """The files as read."""

    taken: Taken
    saved: str | None
    """The path of the plan that was written."""

    @property
    def ok(self) -> bool:
        """Whether the files determine a layout."""
        return self.taken.reading.layout is not None

    def to_json(self) -> dict[str, Any]:
        """The document of ``import --json``."""
        from meshwright.api.views.reading import reading_view

        taken = self.taken
        return {**reading_view(taken.framework, taken.reading, taken.why_release, taken.label), "saved": self.saved}


@door
def import_(request: ImportRequest, *, progress: Progress | None = None) -> ImportAnswer:
    """Read files, without running anything.

    Errors:  ``InputError`` with every fault of the request and of the files.
    """
    faults = Faults()
    values = request.read(faults)
    if "save" in values:
        faults.note(obstacles([values["save"]], inputs=values["files"], force=values["force"]))
    taken = take(values, faults)
    return ImportAnswer(taken=taken, saved=_save(values, taken) if "save" in values else None)


def _save(values: Values, taken: Taken) -> str | None:
    """Write the plan and return its path; None where there is no layout to save.

    Errors: ``InputError`` for what a plan lacks, and for a layout that cannot be estimated.
    """
    from meshwright.api.saved import plan_file
    from meshwright.errors import InputError, fault
    from meshwright.outputs import Output, write

    target = values["save"]
    if taken.reading.layout is None:
        return None
    if counts := [each for each in taken.reading.messages if each.id == "launch.count"]:
        raise InputError(counts)
    if taken.missing:
        raise fault("import.save", "a plan also needs {missing}", path="--save", missing=wanted(taken.missing))
    if taken.impossible:
        raise InputError(taken.impossible)
    given = taken.case
    assert given is not None, "nothing is missing or impossible"
    file = plan_file(given.request, _estimate(taken, given))
    write([Output(path=target, text=file.text)], force=values["force"], inputs=values["files"])
    return str(target)


def _estimate(taken: Taken, given: Any) -> Estimate:
    """The prediction of the layout that the files have."""
    from meshwright.errors import InputError, Message
    from meshwright.estimate import estimate as predict
    from meshwright.search.legality import arithmetic_refusals

    layout = taken.reading.layout
    assert layout is not None, "the caller has checked"
    case = given.case
    reasons = list(arithmetic_refusals(case, taken.framework.features, layout))
    product = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
    if product != case.batch.global_batch_sequences:
        reasons.append(f"the files train {product} sequences a step, --global-batch says {case.batch.global_batch_sequences}")
    if reasons:
        raise InputError(Message("layout.refused", "{reason}", {"reason": reason}, path="layout") for reason in reasons)
    return predict(case, layout)
