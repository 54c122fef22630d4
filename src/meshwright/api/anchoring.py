"""``--anchor-memory``: what a probe showed, as a correction of the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate, StageMemory
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


class Small(NamedTuple):
    """What a saved probe was predicted to need on its fullest stage, and what it showed."""

    predicted: StageMemory
    peak_bytes: float


def probed(anchors: Sequence[Anchor], label: str | None, faults: Faults) -> list[Small | Anchor]:
    """Anchors with the plans of probes read and predicted; what is wrong with any of them is noted beside the other faults.

    ``label``: of the plan's layout, right or wrong; None where there is none.
    """
    found: list[Small | Anchor] = []
    stages = None if label is None else _stages_said(label)
    for each in anchors:
        stage = _stage(each)
        with faults.at(ANCHOR.name):
            if stage is None:
                found.append(_small(each))
            elif stages is not None and stage >= stages:
                raise fault("anchor.stage", "the plan has no stage {stage}: it has {known}",
                            stage=stage, known=f"0 to {stages - 1}" if stages > 1 else "0")
            else:
                found.append(each)
    return found


def with_anchors(given: Setup, estimate: Estimate, anchors: Sequence[Small | Anchor]) -> Estimate:
    """The estimate with memory as the probes saw it."""
    from meshwright.estimate.anchor import anchored

    return anchored(given.case, estimate, [_probe(estimate, each) for each in anchors]) if anchors else estimate


def _stages_said(label: str) -> int | None:
    """How many stages a label says, whatever else is wrong with it; None where that is wrong, too."""
    match [word.removeprefix("pp") for word in label.split() if word.startswith("pp")]:
        case []:
            return 1
        case [word] if word.isascii() and word.isdigit() and len(word) < len("100000"):
            return int(word)
    return None


def _stage(anchor: Anchor) -> int | None:
    """The stage that an anchor names, None where it names a plan."""
    where = anchor.where
    return int(where) if where.isascii() and where.isdigit() and len(where) < len("100000") else None


def _small(given: Anchor) -> Small:
    """The prediction of a probe's own plan."""
    from meshwright.api.cases import setup
    from meshwright.api.saved import load_plan
    from meshwright.estimate import estimate as predict

    faults = Faults()
    saved = load_plan(given.where, faults)
    there = setup(saved, faults)
    small = predict(there.case, there.layout(saved["layout"]))
    fullest = max((stage.memory for stage in small.stages), key=lambda memory: memory.allocated_bytes)
    return Small(predicted=fullest, peak_bytes=given.peak_bytes)


def _probe(estimate: Estimate, given: Small | Anchor) -> Probe:
    """What was predicted for the probe, with what it showed."""
    from meshwright.estimate.anchor import Probe

    if isinstance(given, Small):
        return Probe(stage=estimate.peak_stage, predicted=given.predicted, peak_bytes=given.peak_bytes, same=False)
    stage = _stage(given)
    assert stage is not None, "probed() has read the plans"
    return Probe(stage=stage, predicted=estimate.stages[stage].memory, peak_bytes=given.peak_bytes)
