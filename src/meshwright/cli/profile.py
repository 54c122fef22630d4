"""``meshwright profile``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.profile import ProfileAnswer, ProfileRequest, profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright profile --ranks 2 --out machine.yaml, then meshwright plan ... --cluster machine.yaml. "
    "Over nodes: torchrun --nnodes 2 --nproc-per-node 8 ... -m meshwright profile. Samples are kept as they come: "
    "the same command goes on where it was stopped."
)
FIELDS = (*ProfileRequest.FIELDS, JSON)
REQUEST, ASK = ProfileRequest, profile


def report(answer: ProfileAnswer, _options: object) -> Iterator[Told]:
    """What was measured, and how well the cost model says it again."""
    from meshwright.report.profile import profile_report

    return profile_report(answer.profile, answer.found, answer.path, answer.samples)
