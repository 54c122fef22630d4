"""The page of ``sweep``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.pages.trials import trials_page

if TYPE_CHECKING:
    from meshwright.api.verbs.sweep import SweepAnswer
    from meshwright.report.blocks import View


def page_of(answer: SweepAnswer) -> View:
    """The page of an answer."""
    return trials_page("sweep", answer.to_json(), answer.ok)
