"""``check``: the files of a framework, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.numbers import real
from meshwright.api.options import FORCE, HTML
from meshwright.api.paged import paged
from meshwright.api.request import Answer, FilesRequest, Progress
from meshwright.api.sources import FILES, Taken, take, wanted
from meshwright.errors import fault

if TYPE_CHECKING:
    from meshwright.check import Checked, Claim, Question
    from meshwright.domain.cluster import Device


def read_claim(text: str) -> Claim:
    """``tokens_per_s=15000`` as a claim."""
    from meshwright.check import claim

    name, equals, value = text.partition("=")
    if not equals:
        raise fault("claim.form", "{text!r} is no NAME=VALUE, as in tokens_per_s=15000", text=text[:60])
    return claim(name.strip().lower(), real(value.removesuffix("%")))


class CheckRequest(FilesRequest, frozen=True, kw_only=True):
    """Files of a framework, the case that they train as far as they leave it open, and what somebody says of the run."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        *FILES,
        Field(name="claim", parse=read_claim, kind="many", metavar="NAME=VALUE", panel="Claims", in_file=False,
              help="What somebody says of the run, repeatable: tokens_per_s, tokens_per_s_per_device, tflops_per_device, mfu, "
                   "step_s, samples_per_s, memory_gb."),
        HTML, FORCE,
    )

    claim: Mapping[str, float] | Sequence[str] = ()
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class CheckAnswer(Answer, frozen=True, kw_only=True):
    """The findings."""

    checked: Checked

    @property
    def ok(self) -> bool:
        """Whether none of them is an error."""
        return self.checked.ok

    def to_json(self) -> dict[str, Any]:
        """The document of ``check --json``."""
        from meshwright.api.views.findings import findings_view

        return findings_view(self.checked)


@door
@paged
def check(request: CheckRequest, *, progress: Progress | None = None) -> CheckAnswer:
    """Judge files by themselves, and for the case that they train.

    Errors:  ``InputError`` with every fault of the request, and for files that cannot be read.
    """
    from meshwright.check import check as judged

    faults = Faults()
    values = request.read(faults)
    return CheckAnswer(checked=judged(_question(values, take(values, faults, figures_do=True, compared=True))))


def _question(values: Values, taken: Taken) -> Question:
    """What was read, as the check wants it."""
    from meshwright.check import Question

    case = taken.case.case if taken.case is not None else None
    lacking = "; ".join([wanted(taken.missing), *map(str, taken.unmodelled)]) if taken.missing else ""
    return Question(
        framework=taken.framework, reading=taken.reading, case=case, model=taken.model, device=_device(values),
        num_devices=case.cluster.num_devices if case else taken.size, asked=taken.asked, starts=taken.starts,
        claims=tuple(values["claim"]), impossible=taken.impossible, wanted=lacking,
    )


def _device(values: Values) -> Device | None:
    """The device that is named, alone or by its cluster."""
    from meshwright.catalog import device, load_cluster

    if "cluster" in values:
        return load_cluster(values["cluster"]).device
    return device(values["device"]) if "device" in values else None
