"""``meshwright calibrate``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.calibrate import CalibrateAnswer, CalibrateRequest, calibrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright calibrate --runs my-runs.csv --name mine --out mine.json"
FIELDS = (*CalibrateRequest.FIELDS, JSON)
REQUEST, ASK = CalibrateRequest, calibrate


def report(answer: CalibrateAnswer, _options: object) -> Iterator[Told]:
    """What was learnt."""
    from meshwright.report.calibration import calibration_report
    from meshwright.report.few_shot import few_shot_report

    yield from calibration_report(answer.table, answer.readings, answer.freedoms, answer.path)
    if answer.few_shot is not None:
        yield from few_shot_report(answer.few_shot)
