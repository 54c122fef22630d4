"""``meshwright import``: the files of a framework as a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import JSON
from meshwright.api.sources import FILES, Taken, take

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate

EPILOG = "Example: meshwright import train.sh ds_config.json --from megatron-deepspeed --devices 1024"
FIELDS = (
    *FILES,
    Field(name="save", metavar="FILE", panel="Output", in_file=False,
          help="Write a plan.yaml that estimate, explain and export take; needs --model and a cluster."),
    Field(name="force", kind="flag", panel="Output", in_file=False, help="Overwrite the plan where it exists."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Print what the files come to; exit status 1 where they determine no layout."""
    from meshwright.api.views.reading import reading_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.report.reading import reading_report

    taken = take(values, faults)
    saved = _save(values, taken) if "save" in values else None
    if values["json"]:
        print_json({**reading_view(taken.framework, taken.reading, taken.why_release), "saved": saved})
    else:
        print_report(reading_report(taken.framework, taken.reading, taken.why_release))
        if saved:
            print(saved)
    return 0 if taken.reading.layout is not None else 1


def _save(values: Values, taken: Taken) -> str | None:
    """Write the plan and return its path; None where there is no layout to save.

    Errors: ``InputError`` for what a plan lacks, and for a layout that cannot be estimated.
    """
    from meshwright.api.files import check_file, write_file
    from meshwright.api.saved import plan_file
    from meshwright.errors import InputError, fault

    target = values["save"]
    if taken.reading.layout is None:
        return None
    if taken.missing:
        raise fault(
            "import.save", "a plan also needs {missing}", path="--save",
            missing=", ".join("MODEL as --model" if name == "model" else f"--{name.replace('_', '-')}" for name in taken.missing),
        )
    if taken.impossible:
        raise InputError(taken.impossible)
    check_file(target, values["files"])
    given = taken.case
    assert given is not None, "nothing is missing or impossible"
    file = plan_file(given.request, _estimate(taken, given))
    _refuse_other(target, file.text, force=values["force"])
    write_file(target, file.text)
    return str(target)


def _refuse_other(target: str, text: str, *, force: bool) -> None:
    """Never overwrite what somebody wrote, unless asked to."""
    from pathlib import Path

    from meshwright.errors import fault

    path = Path(target)
    if path.exists() and not force and path.read_text(encoding="utf-8", errors="replace") != text:
        raise fault("file.exists", "exists with other content; --force overwrites it", path=target)


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
