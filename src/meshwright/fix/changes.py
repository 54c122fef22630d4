"""Changes of each sort: variables of the launch, ChatLearn's packing limit, and the layouts that the search finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import Message
from meshwright.estimate.certainty import expected_s
from meshwright.fix.answer import Change, FieldEdit, Move
from meshwright.fix.written import UNTOUCHED, Written, written
from meshwright.frameworks.environment_edits import VariableEdit
from meshwright.frameworks.resume import changed_knobs, meaning
from meshwright.search.repair import WithinMemory, repair
from meshwright.units import gib

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout, Risk
    from meshwright.fix.asked import FixQuestion, Known
    from meshwright.frameworks.environment_edits import VirtualMemory
    from meshwright.search.repair import Repair, Repairs, Wish

_LEAST = 20
"""Answers that the search is asked for at least: dominated ones fall out among them."""
_PACKING = Message(
    "fix.packing", "the same samples train with the same weights in each step: only how many share a micro-batch changes", {}
)


def search(known: Known, wish: Wish | None, *, fewer: int = 0) -> Repairs | None:
    """What the layouts answer with so many edits fewer than allowed; None without a wish."""
    if wish is None:
        return None
    question, framework = known.question, known.question.framework
    return repair(
        known.case, framework.features, known.layout, wish, check=framework.check, said=framework.overlap,
        max_edits=question.max_edits - fewer, limit=max(_LEAST, question.top), frozen=() if known.packed is None else ("mb",),
    )


def by_environment(known: Known, memory: VirtualMemory | None) -> Iterator[Change]:
    """Virtual memory as a change of its own, where it is enough: no step is slower."""
    base, question = known.base, known.question
    if memory is None or not memory.edits or base is None or not known.joining_is_enough:
        return
    notes = memory.messages
    if base.memory_reserved_bytes > known.bound_bytes:
        values = {"need": gib(base.memory_reserved_bytes), "bound": gib(known.bound_bytes)}
        notes = (*notes, Message("fix.by-message", "that it fits is what the message says; the prediction of {need} is above "
                                 "{bound}: should it run out again, the next change helps", values))
    yield _change(
        question, _write(question, variables=memory.edits), moves=(_move(memory),), layout=question.layout, each=base, step=0.0,
        memory=0.0, notes=notes, by_hand=memory.state == "by hand",
    )


def by_packing(known: Known, wish: Wish | None) -> Iterator[Change]:
    """The packing limit with the least expected time of a step, among those under which it fits."""
    packing, base, question = known.packed, known.base, known.question
    if packing is None or base is None or not isinstance(wish, WithinMemory) or question.reading is None:
        return

    def needed(each: Estimate) -> float:
        lifted = (known.extra_bytes if wish.stage in (None, one.stage) else 0.0 for one in each.stages)
        return max(one.memory.reserved_bytes + lift for one, lift in zip(each.stages, lifted, strict=True))

    def expected(limit: int) -> float:
        each = packing.estimate(limit)
        return float(expected_s(question.case, np.asarray(1.0 / each.tokens_per_s), np.asarray(needed(each))))

    largest = packing.largest(lambda each: needed(each) <= known.bound_bytes)
    if largest is None:
        return
    limit = min(packing.up_to(largest), key=expected)
    each = packing.estimate(limit)
    step = base.tokens_per_s / each.tokens_per_s - 1.0
    setting = question.reading.source.settings.get(packing.limit.key)
    home = setting.file if setting else question.reading.source.documents[0].path
    edit = VariableEdit(
        name=packing.limit.key, before=setting.value if setting else None, after=limit, file=home,
        line=setting.line if setting else 0,
    )
    move = Move(sort="packing", words=f"{packing.limit.key} {packing.limit.tokens} -> {limit}")
    yield _change(
        question, _write(question, variables=(edit,)), moves=(move,), layout=question.layout, each=each, step=step,
        interval=_interval(question.case, step), memory=each.memory_reserved_bytes - base.memory_reserved_bytes,
        margin=known.bound_bytes - needed(each), notes=(_PACKING,),
    )


def by_layout(known: Known, repairs: Repairs | None, memory: VirtualMemory | None) -> Iterator[Change]:
    """What the layouts answer; and what they answer beside virtual memory, where it helps but is not enough."""
    if repairs is None:
        return
    for each in repairs.found:
        if each.edits or each.layout.world != known.layout.world:
            yield _of_repair(known, repairs, each, None)
    helps = memory is not None and memory.edits and known.joined_extra_bytes < known.extra_bytes
    if not helps or known.joining_is_enough or not isinstance(repairs.wish, WithinMemory) or known.question.max_edits < 2:
        return
    alone = {each.layout for each in repairs.found}
    wish = WithinMemory(bound_bytes=known.bound_bytes, extra_bytes=known.joined_extra_bytes, stage=repairs.wish.stage)
    beside = search(known, wish, fewer=1)
    for each in beside.found if beside is not None else ():
        if each.edits and each.layout not in alone:
            yield _of_repair(known, repairs, each, memory)


def _of_repair(known: Known, repairs: Repairs, each: Repair, memory: VirtualMemory | None) -> Change:
    """An answer of the search as a change of the files."""
    question = known.question
    variables = memory.edits if memory is not None else ()
    case = replace(question.case, cluster=repairs.case.cluster)
    layout = each.layout if known.packed is None else known.packed.in_sequences(each.layout)
    result = _write(question, case=case, layout=layout, variables=variables)
    if len(result.edits) == len(variables):  # no files, or they cannot be changed in place
        result.edits = [*_label_edits(question, each), *result.edits]
    words = [edit.words for edit in each.edits] or [f"dp {known.layout.data_parallel} -> {each.layout.data_parallel}"]
    moves = tuple(Move(sort="layout", words=word) for word in words)
    if question.reading is not None:
        layout = question.framework.normal(case, layout)
    return _change(
        question, result, moves=moves if memory is None else (_move(memory), *moves), layout=layout, each=each.estimate,
        step=each.step_change_ratio, interval=each.step_change_interval, memory=each.memory_change_bytes, margin=each.margin_bytes,
        risk=each.risk, notes=memory.messages if memory is not None else (),
        by_hand=memory is not None and memory.state == "by hand",
    )


def _move(memory: VirtualMemory) -> Move:
    return Move(sort="environment", words=f"{memory.edits[0].after} ({memory.edits[0].name})")


def _interval(case: Case, step: float) -> tuple[float, float] | None:
    """Where a relative change of the step time lies by the calibration's error between two layouts of one case."""
    if case.calibration.uncertainty is None:
        return None
    apart = 1.0 + case.calibration.uncertainty.ranking_ratio
    return (1.0 + step) / apart - 1.0, (1.0 + step) * apart - 1.0


def _label_edits(question: FixQuestion, each: Repair) -> list[FieldEdit]:
    """Edits in the words of the layout."""
    table = question.framework.resume
    return [
        FieldEdit(field=one.field, before=one.before, after=one.after, meaning=meaning(table, (one.knob,))) for one in each.edits
    ]


def _write(
    question: FixQuestion, *, case: Case | None = None, layout: Layout | None = None, variables: Sequence[VariableEdit] = ()
) -> Written:
    """A change as edits of the files, or without files as variables alone."""
    if question.reading is not None:
        return written(question.framework, question.reading, case or question.case, layout=layout, variables=variables,
                       originals=question.originals)
    edits = [FieldEdit(field=each.name, before=each.before, after=each.after, meaning=UNTOUCHED) for each in variables]
    knobs = changed_knobs(question.layout, layout) if layout is not None else ()
    return Written(edits=edits, meaning=meaning(question.framework.resume, knobs))


def _change(
    question: FixQuestion, result: Written, *, moves: tuple[Move, ...], layout: Layout, each: Estimate, step: float | None,
    memory: float | None, interval: tuple[float, float] | None = None, margin: float | None = None, risk: Risk = "exact",
    notes: tuple[Message, ...] = (), by_hand: bool = False,
) -> Change:
    """All of it together; what would be a note is something to do where the files cannot do it."""
    hand = (*result.by_hand, *(notes if by_hand and question.reading is not None else ()))
    return Change(
        moves=moves, edits=tuple(result.edits), layout=layout, estimate=each, fits=margin is None or margin >= 0.0,
        step_change_ratio=step, step_change_interval=interval, memory_change_bytes=memory, margin_bytes=margin, risk=risk,
        meaning=result.meaning, files=result.files, diff=result.diff, by_hand=hand,
        launcher_only=all(message.id == "edit.devices" for message in hand), notes=() if hand and by_hand else notes,
    )
