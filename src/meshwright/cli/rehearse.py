"""``meshwright rehearse``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.rehearse import RehearseAnswer, RehearseRequest, rehearse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright rehearse --ranks 2 --out rehearsal"
FIELDS = (*RehearseRequest.FIELDS, JSON)
REQUEST, ASK = RehearseRequest, rehearse


def WATCH(options: Mapping[str, Any], _show: object) -> dict[str, Any]:  # noqa: N802 (a word of the verb's table)
    """Each loop is shown when it is done: the next takes minutes."""
    return {} if options["json"] else {"each": _shown}


def _shown(view: dict[str, Any]) -> None:
    from meshwright.cli.output import print_report
    from meshwright.report.rehearse import rehearsal_report

    print_report(rehearsal_report(view))


def report(_answer: RehearseAnswer, _options: object) -> Iterable[Told]:
    """Nothing more: every loop has been shown."""
    return ()
