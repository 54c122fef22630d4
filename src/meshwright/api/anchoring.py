"""``--anchor-memory``: what a probe showed, as a correction of the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate
    from meshwright.estimate.anchor import Probe


class Anchor(NamedTuple):
    """Where a peak was measured, a stage or the plan file of a probe, and how large it was."""

    where: str
    peak_bytes: float


def anchor(word: str) -> Anchor:
    """``0=61.2GiB`` or ``probe/plan.yaml=43.5GiB``."""
    where, equals, size = word.rpartition("=")
    if not equals or not where:
        raise fault("anchor.form", "{word!r}: write STAGE=BYTES or PROBE_PLAN=BYTES, as in 0=61.2GiB", word=word)
    return Anchor(where.strip(), numbers.size(size))


ANCHOR = Field(
    name="anchor_memory", parse=anchor, kind="many", metavar="WHAT=BYTES", panel="Layout", in_file=False,
    help="A measured peak of memory that corrects the prediction: WHAT is a stage of this plan, or the plan.yaml of a probe.",
)


def with_anchors(given: Setup, estimate: Estimate, anchors: Sequence[Anchor]) -> Estimate:
    """The estimate with memory as the probes saw it."""
    from meshwright.estimate.anchor import anchored

    return anchored(given.case, estimate, [_probe(estimate, each) for each in anchors]) if anchors else estimate


def _probe(estimate: Estimate, given: Anchor) -> Probe:
    """What was predicted for the probe, with what it showed."""
    from meshwright.api.cases import setup
    from meshwright.api.saved import load_plan
    from meshwright.estimate import estimate as predict
    from meshwright.estimate.anchor import Probe

    if given.where.isascii() and given.where.isdigit() and len(given.where) < len("100000"):
        stage = int(given.where)
        known = {each.stage: each.memory for each in estimate.stages}
        if stage not in known:
            raise fault("anchor.stage", "the plan has no stage {stage}: it has {known}",
                        stage=stage, known=", ".join(map(str, known)))
        return Probe(stage=stage, predicted=known[stage], peak_bytes=given.peak_bytes)
    faults = Faults()
    saved = load_plan(given.where, faults)
    there = setup(saved, faults)
    small = predict(there.case, there.layout(saved["layout"]))
    predicted = max((stage.memory for stage in small.stages), key=lambda memory: memory.allocated_bytes)
    return Probe(stage=estimate.peak_stage, predicted=predicted, peak_bytes=given.peak_bytes, same=False)
