"""``compare``: what changed between two runs that happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from meshwright.api.door import refuse
from meshwright.api.fields import Faults, Field
from meshwright.api.options import CASE
from meshwright.api.request import Answer, NamedCase, Progress
from meshwright.api.verbs.diagnose import DiagnoseAnswer, DiagnoseRequest, diagnose
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.diagnose.comparison import Comparison
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search import PlanResult, SearchOptions
    from meshwright.search.result import Comparison as LayoutComparison


class CompareRequest(NamedCase, frozen=True, kw_only=True):
    """Two runs, as ``diagnose`` takes each, and what is known of both."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(
            name="runs",
            kind="arguments",
            metavar="RUN_A RUN_B",
            in_file=False,
            help="Two runs: of each a log, a trace or a directory of what it left.",
        ),
        *(replace(each, panel="Beside them") for each in DiagnoseRequest.FIELDS if each.name in ("from_", "window")),
        *(replace(field, kind="option", metavar="MODEL", panel="Case") for field in CASE if field.name == "model"),
        *(field for field in CASE if field.name not in ("model", "framework")),
        *(each for each in DiagnoseRequest.FIELDS if each.name == "redact"),
    )

    runs: Sequence[str | Path] = ()
    from_: str | None = None
    window: tuple[int, int] | str | None = None
    redact: bool = False


class CompareAnswer(Answer, frozen=True, kw_only=True):
    """What changed from the first run to the second."""

    comparison: Comparison
    a: DiagnoseAnswer
    b: DiagnoseAnswer
    redact: bool = False

    def to_json(self) -> dict[str, Any]:
        """The document of ``compare --json``."""
        from meshwright.api.views.compare import compare_view
        from meshwright.diagnose.redact import redacted_document

        view = compare_view(self.comparison, self.a.diagnosis, self.b.diagnosis)
        return redacted_document(view) if self.redact else view


@overload
def compare(request: CompareRequest, *, progress: Progress | None = None) -> CompareAnswer: ...
@overload
def compare(
    request: Case, features: Features, result: PlanResult, layout: Layout, options: SearchOptions | None = None
) -> LayoutComparison: ...
def compare(
    request: CompareRequest | Case,
    features: Features | None = None,
    result: PlanResult | None = None,
    layout: Layout | None = None,
    options: SearchOptions | None = None,
    *,
    progress: Progress | None = None,
) -> CompareAnswer | LayoutComparison:
    """Diagnose two runs, and say which part of the step changed and which settings did.

    A case with a plan and a layout is answered as before there was this verb: the layout beside the plan's winner
    (``meshwright.search.compare``).

    Errors:  ``InputError`` with every fault of the request, and where a run holds nothing that is known.
    """
    from meshwright.diagnose.comparison import compare_runs

    if not isinstance(request, CompareRequest):
        from meshwright.domain.case import Case
        from meshwright.search import compare as compare_layouts

        if not isinstance(request, Case):
            refuse("compare", request, "case with a plan and a layout")
        if features is None or result is None or layout is None:
            raise fault("request.layout", "compare takes the features, a plan and a layout beside a case")
        return compare_layouts(request, features, result, layout, options)
    faults = Faults()
    values = request.read(faults)
    if len(values["runs"]) != 2 and "runs" not in faults.failed:
        faults.add("compare.runs", "two runs are compared, not {count}: RUN_A RUN_B", count=len(values["runs"]))
    faults.check()
    common = {field.name: getattr(request, field.name) for field in CompareRequest.FIELDS if field.name != "runs"}
    a, b = (diagnose(DiagnoseRequest(files=[each], **common), progress=progress) for each in values["runs"])
    return CompareAnswer(comparison=compare_runs(a.diagnosis.run, b.diagnosis.run), a=a, b=b, redact=values["redact"])
