"""``meshwright lint``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.lint import LintAnswer, LintRequest, lint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright lint train.py run.sh ds_config.json --purpose speed   One rule: meshwright lint --explain step.item"
FIELDS = (*LintRequest.FIELDS, JSON)
REQUEST, ASK = LintRequest, lint


def report(answer: LintAnswer, _options: object) -> Iterator[Told]:
    """The findings, or one rule."""
    from meshwright.report.lint import lint_report

    return lint_report(answer)
