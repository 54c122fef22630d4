"""Repair against enumeration in plain Python: the same candidates, the same costs, and the same answers, or none where none is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.domain.layout import Full, Mixed, Selective
from meshwright.estimate import estimate, evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.split import even_split
from meshwright.search import layout_refusals
from meshwright.search.repair import WithinMemory, repair
from meshwright.search.repair.candidates import combined
from meshwright.search.repair.engine import ENOUGH, ROOMY, TIE, prepared
from meshwright.search.repair.following import legal, settle
from meshwright.search.repair.knobs import Ends, Given, knobs
from meshwright.search.repair.levels import possible, target_of
from meshwright.search.repair.prices import Extra, evaluated
from strategies import EVERYTHING, examples, planned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.repair.knobs import Knob

DEGREES = {
    "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages", "ep": "expert_parallel",
    "etp": "expert_tensor_parallel", "mb": "microbatch_sequences", "recompute": "recompute", "offload": "offload",
    "context": "context_kind",
}


def changed(case: Case, features: Features, old: Layout, edits: Mapping[str, Any]) -> Layout | None:
    """The layout with some knobs turned and what follows from them, in whole numbers; None where it cannot be."""
    new = replace(old, **{DEGREES[word]: value for word, value in edits.items() if word in DEGREES})
    parts = new.tensor_parallel * new.context_parallel * new.pipeline_parallel
    if old.world % parts:
        return None
    dp = old.world // parts
    m, rest = divmod(case.batch.global_batch_sequences, dp * new.microbatch_sequences)
    if rest or (old.world // new.pipeline_parallel) % (new.expert_parallel * new.expert_tensor_parallel):
        return None
    if new.pipeline_parallel * new.virtual_stages > case.model.num_layers or ("context" in edits and new.context_parallel == 1):
        return None
    on = edits.get("sp", old.sequence_parallel)
    if old.tensor_parallel == 1 and "sp" not in edits:
        on = case.implementation.sequence_parallel and features.sequence_parallel
    new = replace(new, data_parallel=dp, num_microbatches=m, sequence_parallel=bool(on) and new.tensor_parallel > 1)
    schedule = edits.get("schedule", old.schedule)
    if schedule in ("1f1b", "interleaved"):
        schedule = "interleaved" if new.virtual_stages > 1 else "1f1b"
    split = edits.get("layers", old.stage_layers)
    shape = (new.virtual_stages, new.pipeline_parallel)
    if isinstance(split, Ends):
        split = ends(case.model.num_layers, shape, split)
        if split is None:
            return None
    new = replace(new, schedule=schedule, stage_layers=split)
    if any((len(grid), len(grid[0])) != shape for grid in lists_of(new)):
        return None
    return sharded(case, features, old, new, edits)


def ends(layers: int, shape: tuple[int, int], wanted: Ends) -> tuple[tuple[int, ...], ...] | None:
    """An even split that gives up layers at its ends to the places between."""
    chunks, stages = shape
    flat = [count for row in even_split(layers, stages, chunks) for count in row]
    begin, end = flat[0] - wanted.first, flat[-1] - wanted.last
    between = layers - begin - end
    places = len(flat) - 2
    if places < 0 or min(begin, end) < 1 or between < places or (places == 0 and between != 0):
        return None
    middle = even_split(between, places, 1)[0] if places else ()
    row = (begin, *middle, end)
    return tuple(row[chunk * stages : (chunk + 1) * stages] for chunk in range(chunks))


def lists_of(layout: Layout) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every list by chunk and stage in a layout."""
    if layout.stage_layers is not None:
        yield layout.stage_layers
    if isinstance(layout.recompute, Full) and isinstance(layout.recompute.layers, tuple):
        yield layout.recompute.layers
    if isinstance(layout.recompute, Mixed):
        yield from (counts for _, counts in layout.recompute.parts)


def sharded(case: Case, features: Features, old: Layout, new: Layout, edits: Mapping[str, Any]) -> Layout | None:
    """The layout with its shard groups: full ones stay full, smaller ones stay where they divide."""
    before, after = (each.data_parallel * (each.context_parallel if features.shards_over_context else 1) for each in (old, new))

    def kept(shards: int) -> int:
        if shards == 1:
            return 1
        return shards if shards != before and after % shards == 0 else after

    if "zero" not in edits and "shard" not in edits and before > 1:
        return replace(
            new, optimizer_shards=kept(old.optimizer_shards), gradient_shards=kept(old.gradient_shards),
            parameter_shards=kept(old.parameter_shards),
        )
    stage = edits.get("zero", old.zero_stage)
    if before == 1 and "zero" not in edits and 1 in features.zero_stages:
        stage = max(stage, 1)
    if case.training.optimizer.name in features.plain_optimizers and "zero" not in edits:
        stage = old.zero_stage
    group = after if old.optimizer_shards == 1 else kept(old.optimizer_shards)
    if "shard" in edits:
        group = edits["shard"] or after
        if stage == 0 or after % group:
            return None
    groups = [group if stage >= level else 1 for level in (1, 2, 3)]
    return replace(new, optimizer_shards=groups[0], gradient_shards=groups[1], parameter_shards=groups[2])


@dataclass(frozen=True)
class Tried:
    """A legal candidate of the enumeration."""

    edits: tuple[tuple[str, Any], ...]
    layout: Layout
    step_s: float
    reserved_bytes: float


def enumerated(given: Given, table: tuple[Knob, ...], edits: int) -> list[Tried]:
    """Every legal combination of so many edits, one at a time."""
    moving = [knob for knob in table if len(knob.values) > 1]
    found = []
    for chosen in combinations(moving, edits):
        for values in product(*(knob.values[1:] for knob in chosen)):
            edited = dict(zip((knob.word for knob in chosen), values, strict=True))
            new = changed(given.case, given.features, given.layout, edited)
            if new is not None and not layout_refusals(given.case, given.features, new):
                found.append((tuple(edited.items()), new))
    step_s, reserved = evaluate_many(given.case, [new for _, new in found])
    return [Tried(edits, new, float(t), float(b)) for (edits, new), t, b in zip(found, step_s, reserved, strict=True)]


def thinned(table: tuple[Knob, ...], most: int) -> tuple[Knob, ...]:
    """The knobs with few values each, so that pairs and triples can be walked."""
    return tuple(
        replace(knob, values=(knob.values[0], *knob.values[1:][:: max(1, -(-len(knob.values[1:]) // most))])) for knob in table
    )


@given(planned(EVERYTHING), st.integers(1, 2))
@examples(25)
def test_candidates_and_their_costs_are_those_of_enumeration(both: tuple[Case, Layout], edits: int) -> None:
    case, layout = both
    asked = Given(case=case, features=EVERYTHING, layout=layout, world=layout.world)
    table = thinned(knobs(asked), 4 if edits == 1 else 2)
    codes = np.concatenate([*combined(table, edits), np.zeros((len(table), 0), dtype=np.int16)], axis=1)
    rows = legal(settle(asked, table, codes))
    step_s, _, needed = evaluated(rows, Extra())

    def moved(index: int) -> tuple[tuple[str, Any], ...]:
        return tuple((table[place].word, table[place].values[rows.codes[place, index]]) for place in rows.moved(index))

    ours = [(moved(index), rows.layout(index)) for index in range(len(rows))]
    theirs = enumerated(asked, table, edits)
    assert ours == [(each.edits, each.layout) for each in theirs]
    assert step_s == pytest.approx([each.step_s for each in theirs], rel=1e-9)
    assert needed == pytest.approx([each.reserved_bytes for each in theirs], rel=1e-9)


ROUNDING = 1e-9
"""One layout and a column of them may sum in another order, so what a bound admits must not hang on its last digit."""
WORDS = ("tp", "cp", "pp", "vp", "ep", "etp", "mb", "zero", "shard", "sp", "recompute", "offload", "layers", "schedule", "context")


@given(planned(EVERYTHING), st.sets(st.sampled_from(WORDS), min_size=2, max_size=4), st.floats(0.0, 0.9))
@examples(40)
def test_answers_are_those_of_enumeration(both: tuple[Case, Layout], free: set[str], share: float) -> None:
    """Nothing fits where nothing fits; an answer fits; what fits is an answer, or further than one, or dominated by one."""
    case, layout = both
    frozen = set(WORDS) - free
    first = Given(case=case, features=EVERYTHING, layout=layout, world=layout.world)
    needs = sorted(each.reserved_bytes for edits in (1, 2) for each in enumerated(first, knobs(first, frozen), edits))
    lower = [need for need in needs if need < float(np.max(evaluate(case, layout).memory.reserved_bytes))]
    assume(lower)
    bound = lower[int(share * len(lower))] * (1.0 + ROUNDING if share > 0.1 else 0.999)
    wish = WithinMemory(bound_bytes=bound)
    answer = repair(case, EVERYTHING, layout, wish, limit=10**6, frozen=frozen)
    asked, _ = prepared(case, EVERYTHING, layout, wish, estimate(case, layout))
    table = knobs(asked, frozen)
    tried = [each for edits in range(answer.searched_edits + 1) for each in enumerated(asked, table, edits)]
    fitting = {each.layout: each for each in reversed(tried) if each.reserved_bytes <= bound}
    assert bool(answer.found) == bool(fitting)
    fewest = min((len(each.edits) for each in answer.found), default=3)
    assert answer.searched_edits == (0 if fewest == 0 else 2 if fewest == 1 or (fewest == 2 and len(answer.found) >= ENOUGH) else 3)
    assert answer.legal == len(tried)
    answers = [fitting[each.layout] for each in answer.found]
    for told, each in zip(answer.found, answers, strict=True):
        assert [edit.knob for edit in told.edits] == [word for word, _ in each.edits]
    for each in fitting.values():
        assert any((_same_idea(other, each) and other.step_s <= each.step_s) or _dominates(other, each, bound) for other in answers)
    assert not any(_dominates(one, other, bound) for one in answers for other in answers)


def _same_idea(one: Tried, other: Tried) -> bool:
    def sort(word: str, value: object) -> object:
        return (value if isinstance(value, Selective) else type(value)) if word == "recompute" else None

    ideas = [[(word, sort(word, value)) for word, value in tried.edits] for tried in (one, other)]
    return ideas[0] == ideas[1]


def _dominates(one: Tried, other: Tried, bound: float) -> bool:
    fewer, part = len(one.edits) < len(other.edits), set(one.edits) < set(other.edits)
    enough = max(other.reserved_bytes, ROOMY * bound)
    return one.step_s <= other.step_s * (1.0 + TIE) and (part or (fewer and one.reserved_bytes <= enough))


@given(planned(EVERYTHING))
@examples(25)
def test_recomputing_some_layers_never_needs_less_than_all(both: tuple[Case, Layout]) -> None:
    """What is left out because all layers recomputed do not fit could not fit."""
    case, layout = both
    asked = Given(case=case, features=EVERYTHING, layout=layout, world=layout.world)
    table = knobs(asked, set(WORDS) - {"recompute", "vp", "layers"})
    rows = legal(settle(asked, table, np.concatenate(list(combined(table, 2)), axis=1)))
    _, _, needed = evaluated(rows, Extra())
    for bound in np.unique(needed):
        target = target_of(case, layout, WithinMemory(bound_bytes=float(bound)), None)
        assert not (~possible(rows, target) & (needed <= bound)).any()
