"""A wish about a configuration, and its answer: environment first, then packing and the layout, by number of moves, then cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import Message
from meshwright.estimate.certainty import expected_s
from meshwright.fix.advice import advice
from meshwright.fix.answer import Fixed
from meshwright.fix.asked import look, wish_of
from meshwright.fix.changes import by_environment, by_layout, by_packing, search
from meshwright.frameworks.environment_edits import VirtualMemory, virtual_memory
from meshwright.search.levers import levers
from meshwright.search.repair import WithinMemory
from meshwright.units import gib

if TYPE_CHECKING:
    from meshwright.fix.answer import Change
    from meshwright.fix.asked import FixQuestion, Known
    from meshwright.search.repair import Wish

_STILL = Message("fix.pieces", "joining the pieces would have helped at that moment only: by the prediction the whole step needs "
                 "more than the device has", {})
_ON = Message("fix.on", "virtual memory is on already, and the message comes all the same: keep shapes fixed, and empty_cache out "
              "of the loop", {})
_UNUSED = Message("fix.message", "the message is left aside: the layout breaks rules, so no run of it can have written it", {})


def fix(question: FixQuestion) -> Fixed:
    """The smallest changes that grant the wish; that nothing does is an answer, too."""
    known = look(question)
    wish = wish_of(known)
    memory = _virtual_memory(known)
    repairs = search(known, wish)
    found = [*by_environment(known, memory), *by_packing(known, wish), *by_layout(known, repairs, memory)]
    ordered = sorted(found, key=lambda change: _rank(known, change))[: question.top]
    return Fixed(
        wish=wish, layout=question.layout, base=known.base, broken=known.broken, changes=tuple(ordered), repairs=repairs,
        observed=known.observed, extra_bytes=known.extra_bytes, bound_bytes=known.bound_bytes, advice=_advice(known),
        remarks=_remarks(known, memory), levers=() if ordered else _levers(known, wish),
    )


def _levers(known: Known, wish: Wish | None) -> tuple[str, ...]:
    """What would make the case fit in the bound; nothing for other wishes, and where the prediction is lifted by a message."""
    if not isinstance(wish, WithinMemory) or known.extra_bytes > 0.0:
        return ()
    question = known.question
    found = levers(
        known.case, question.framework.features, question.framework, pinnable=False, bound_bytes=question.bound_bytes
    )
    return tuple(map(str, found))


def _rank(known: Known, change: Change) -> tuple[int, bool, bool, bool, float]:
    """By number of moves; then the one that the message itself names; then cost: the expected time of a step, as in the search."""
    base, each = known.base, change.estimate
    step_s = each.step_s if base is None or change.step_change_ratio is None else base.step_s * (1.0 + change.step_change_ratio)
    cost = float(expected_s(known.question.case, np.asarray(step_s), np.asarray(each.memory_reserved_bytes)))
    return len(change.moves), change.margin_bytes is not None, change.risk == "approximate", not change.fits, cost


def _virtual_memory(known: Known) -> VirtualMemory | None:
    """How the allocator would get virtual memory, where a message says that pieces are in its way."""
    if known.observed is None or not any(verdict.kind == "fragmentation" for verdict in known.observed.verdicts):
        return None
    question = known.question
    return virtual_memory(question.framework, question.reading, question.case.cluster.device.family)


def _advice(known: Known) -> tuple[Message, ...]:
    """What helps beside the changes."""
    question = known.question
    return () if known.observed is None else tuple(advice(known.observed, question.framework, question.reading, question.layout))


def _remarks(known: Known, memory: VirtualMemory | None) -> tuple[Message, ...]:
    """What to know of the message and of what it leaves open."""
    remarks = list(known.observed.remarks if known.observed is not None else ())
    asked, capacity = known.question.bound_bytes, known.case.capacity_bytes
    if asked is not None and asked > capacity:
        template = "--memory {asked} is more than the {capacity} that a step may use of each device: the latter is the bound"
        remarks.append(Message("fix.capacity", template, {"asked": gib(asked), "capacity": gib(capacity)}))
    if known.observed is None and known.question.messages:
        remarks.append(_UNUSED)
    if memory is not None:
        remarks += memory.messages if not memory.edits else ()
        if known.only_pieces and memory.state == "on":
            remarks.append(_ON)
        elif known.only_pieces and not known.joining_is_enough:
            remarks.append(_STILL)
    return tuple(remarks)
