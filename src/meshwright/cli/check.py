"""``meshwright check``: the files of a framework, judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.fields import Faults, Field, Values
from meshwright.api.numbers import real
from meshwright.api.options import JSON
from meshwright.api.sources import FILES, Taken, take
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.check import Claim, Question
    from meshwright.domain.cluster import Device

EPILOG = (
    "Example: meshwright check train.sh --from megatron@0.16 --model llama3-70b --device h100-sxm --devices 512 "
    "--claim tokens_per_s_per_device=900 --claim mfu=0.45"
)


def read_claim(text: str) -> Claim:
    """``tokens_per_s=15000`` as a claim."""
    from meshwright.check import claim

    name, equals, value = text.partition("=")
    if not equals:
        raise fault("claim.form", "{text!r} is no NAME=VALUE, as in tokens_per_s=15000", text=text[:60])
    return claim(name.strip().lower(), real(value.removesuffix("%")))


FIELDS = (
    *FILES,
    Field(name="claim", parse=read_claim, kind="many", metavar="NAME=VALUE", panel="Claims", in_file=False,
          help="What somebody says of the run, repeatable: tokens_per_s, tokens_per_s_per_device, tflops_per_device, mfu, "
               "step_s, samples_per_s, memory_gb."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Print the findings; exit status 1 where one is an error."""
    from meshwright.api.views.findings import findings_view
    from meshwright.check import check
    from meshwright.cli.output import print_json, print_report
    from meshwright.report.findings import findings_report

    checked = check(_question(values, take(values, faults)))
    if values["json"]:
        print_json(findings_view(checked))
    else:
        print_report(findings_report(checked))
    return 0 if checked.ok else 1


def _question(values: Values, taken: Taken) -> Question:
    """What was read, as the check wants it."""
    from meshwright.check import Question

    case = taken.case.case if taken.case is not None else None
    return Question(
        framework=taken.framework, reading=taken.reading, case=case, model=taken.model, device=_device(values),
        num_devices=case.cluster.num_devices if case else taken.size, asked=taken.asked, claims=tuple(values["claim"]),
        impossible=taken.impossible,
    )


def _device(values: Values) -> Device | None:
    """The device that is named, alone or by its cluster."""
    from meshwright import catalog

    if "cluster" in values:
        return catalog.load_cluster(values["cluster"]).device
    return catalog.device(values["device"]) if "device" in values else None
