"""What is to be fixed, what is wished of it, and what is known before anything is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.errors import Message
from meshwright.estimate.single import estimate
from meshwright.fix.observed import Observed, observe
from meshwright.fix.packing import Packed, packed
from meshwright.search.legality import arithmetic_refusals, layout_refusals
from meshwright.search.repair import Devices, Faster, Legal, WithinMemory

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed.out_of_memory import OutOfMemory
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading
    from meshwright.search.repair import Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class FixQuestion:
    """A configuration and what is wished of it; with no wish, whatever is wrong with it is to be put right."""

    framework: Framework
    """At the release of the files, with the features that are left for the case."""
    case: Case
    layout: Layout
    reading: Reading | None = None
    """The files, where the layout comes from files."""
    originals: Mapping[str, str] = field(default_factory=dict)
    """Texts of files as they stand on disk, where the reading has more in front of them."""
    messages: tuple[OutOfMemory, ...] = ()
    bound_bytes: float | None = None
    """What each device may hold; None: what the case allows."""
    faster_ratio: float | None = None
    devices: int | None = None
    max_edits: int = 3
    top: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is found out before anything is searched."""

    question: FixQuestion
    case: Case
    layout: Layout
    """What is predicted and searched: the question's, or with packed micro-batches as one sequence each."""
    base: Estimate | None
    """The configuration as it is; None: no framework could run it."""
    broken: tuple[Message, ...]
    observed: Observed | None
    packed: Packed | None
    bound_bytes: float
    extra_bytes: float
    """Beyond the prediction of the layout."""
    joined_extra_bytes: float
    """The same where no memory is lost to scattered pieces."""

    @property
    def only_pieces(self) -> bool:
        """Whether pieces were all that was in the way when the message was written."""
        return self.observed is not None and self.observed.kind == "fragmentation"

    @property
    def joining_is_enough(self) -> bool:
        """Whether joining pieces is enough: by the message it is, and the step does not certainly need more than there is."""
        if self.observed is None or self.base is None or not self.only_pieces:
            return False
        base = self.base
        least = base.interval.memory_peak_bytes[0] if base.interval is not None else base.memory_peak_bytes
        return least + (base.memory_reserved_bytes - base.memory_peak_bytes) <= self.observed.device_bytes


def look(question: FixQuestion) -> Known:
    """Prediction, broken rules, what was observed, how samples are packed."""
    case, layout, features = question.case, question.layout, question.framework.features
    impossible = arithmetic_refusals(case, features, layout)
    refusals = impossible or layout_refusals(case, features, layout)
    said = tuple(Message("layout.refused", "{reason}", {"reason": reason}, "layout") for reason in refusals)
    broken = (*said, *(() if impossible else question.framework.check(case, layout)))
    packing = None
    if not impossible and question.reading is not None:
        packing = packed(case, layout, question.framework, question.reading)
    whole = (case, layout) if packing is None else packing.one_sequence(packing.limit.tokens)
    base = None if impossible else estimate(*whole)
    observed = None
    if question.messages and base is not None:
        observed = observe(case, layout, base, question.messages, stages_inside_replicas=_inside(question))
    bound = case.capacity_bytes if question.bound_bytes is None else min(question.bound_bytes, case.capacity_bytes)
    extra, joined = (
        observed.extra_bytes(case, base, joined=joined) if observed is not None and base is not None else 0.0
        for joined in (False, True)
    )
    return Known(
        question=question, case=whole[0], layout=whole[1], base=base, broken=broken, observed=observed, packed=packing,
        bound_bytes=bound, extra_bytes=extra, joined_extra_bytes=joined,
    )


def wish_of(known: Known) -> Wish | None:
    """The wish as the search takes it; None where nothing is wrong, or where no layout could help."""
    question = known.question
    if question.devices is not None:
        return Devices(count=question.devices)
    if question.faster_ratio is not None:
        return Faster(ratio=question.faster_ratio)
    if known.base is None:
        return Legal() if question.bound_bytes is None else WithinMemory(bound_bytes=known.bound_bytes)
    stage = known.observed.stage if known.observed is not None and known.extra_bytes > 0.0 else None
    fit = WithinMemory(bound_bytes=known.bound_bytes, extra_bytes=known.extra_bytes, stage=stage)
    if known.observed is not None:
        return None if known.observed.kind == "host" else fit
    if question.bound_bytes is not None:
        return fit
    if known.broken:
        return Legal()
    return fit if known.base.memory_reserved_bytes > known.bound_bytes else None


def _inside(question: FixQuestion) -> bool:
    """Whether neighbouring stages are neighbouring ranks."""
    facts, reading = question.framework.facts, question.reading
    told = None if reading is None or not facts.stages_inside_key else reading.source.value(facts.stages_inside_key)
    return facts.stages_inside_replicas or told not in (None, False)
