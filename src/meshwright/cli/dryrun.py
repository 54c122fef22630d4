"""``meshwright dryrun``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.dryrun import DryrunAnswer, DryrunRequest, dryrun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = 'Example: meshwright dryrun llama3-8b --global-batch 64 --sequence 8192 --layout "tp8 sp dp8 mb1 zero3" --extrapolate'
FIELDS = (*DryrunRequest.FIELDS, JSON)
REQUEST, ASK = DryrunRequest, dryrun


def report(answer: DryrunAnswer, _options: object) -> Iterator[Told]:
    """What the ranks found, beside the cost model's figures where it is the reference step."""
    from meshwright.report.dryrun import dryrun_report, own_report

    if answer.given is None or answer.layout is None:
        return own_report(answer.builder, answer.world, answer.found)
    return dryrun_report(answer.given.case, answer.layout, answer.found)
