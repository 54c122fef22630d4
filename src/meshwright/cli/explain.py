"""``meshwright explain``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Field
from meshwright.api.options import JSON
from meshwright.api.verbs.explain import ExplainAnswer, ExplainRequest, explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright explain llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
ALL = Field(
    name="all", kind="flag", panel="Output", in_file=False,
    help="Also every rule of the guides with its words, and every constant behind the figures.",
)
FIELDS = (*ExplainRequest.FIELDS, ALL, JSON)
REQUEST, ASK = ExplainRequest, explain


def report(answer: ExplainAnswer, options: Mapping[str, Any]) -> Sequence[Told]:
    """The figures of the layout and what there is to say about them."""
    from meshwright.report.explain import told_of

    return told_of(answer, everything=bool(options["all"]))
