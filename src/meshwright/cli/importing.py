"""``meshwright import``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.import_ import ImportAnswer, ImportRequest, import_

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright import train.sh ds_config.json --from megatron-deepspeed --devices 1024"
FIELDS = (*ImportRequest.FIELDS, JSON)
REQUEST, ASK = ImportRequest, import_


def report(answer: ImportAnswer, _options: object) -> Iterator[Told]:
    """What the files come to."""
    from meshwright.report.blocks import line
    from meshwright.report.reading import reading_report

    taken = answer.taken
    yield from reading_report(taken.framework, taken.reading, taken.why_release, taken.label)
    if answer.saved:
        yield line(answer.saved, whole=True)
