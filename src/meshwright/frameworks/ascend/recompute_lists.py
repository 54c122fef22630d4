"""MindSpore's recompute lists: how many layers of each chunk and stage are recomputed in which way, from and to them.

One list counts the layers that are recomputed in full, and one for each thing that is recomputed of a layer (``select``, ``comm``)
counts from the first layer of a chunk (MindFormers) or behind the fully recomputed ones (MindSpeed-Core-MS). Two lists begin at the
same layer, so they cannot say a chunk that has layers with the one thing alone beside layers with the other alone.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from meshwright.domain.layout import Full, Grid, Mixed, NoRecompute, Selective, mixed, ordered_parts
from meshwright.estimate.split import treatments_of
from meshwright.frameworks.ascend.stages import counts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.domain.layout import Recompute

Kind = Literal["full", "both", "select", "comm"]
LISTS = ("recompute", "select_recompute", "select_comm_recompute")
Parts = tuple[tuple[Selective | Full, Grid], ...]
SELECT, COMM = "select", "comm"
KINDS: Mapping[Kind, Selective | Full] = {
    "full": Full(), "both": Selective(modules=(COMM, SELECT)), "select": Selective(modules=(SELECT,)),
    "comm": Selective(modules=(COMM,)),
}


def parts_of_lists(full: Grid, words: Mapping[str, Grid], *, behind_full: bool) -> Parts:
    """Treatments with their counts, of a list of full layers and of one for each module.

    ``behind_full``: the modules' lists count from behind the full layers, otherwise from the first layer of a chunk.
    Shapes:  everything is ``[chunk][stage]``.
    Source:  MindFormers models/utils.py LayerSetting; MindSpeed-Core-MS legacy/model/transformer.py ParallelTransformer.

    >>> parts = parts_of_lists(((1, 0),), {"mlp_act": ((3, 2),), "comm": ((2, 3),)}, behind_full=False)
    >>> [(getattr(treatment, "modules", "full"), counts) for treatment, counts in parts]
    [('full', ((1, 0),)), (('comm', 'mlp_act'), ((1, 2),)), (('comm',), ((0, 1),)), (('mlp_act',), ((1, 0),))]
    """
    found: dict[tuple[str, ...], dict[tuple[int, int], int]] = defaultdict(dict)
    for chunk, row in enumerate(full):
        for stage, whole in enumerate(row):
            own = {word: lists[chunk][stage] - (0 if behind_full else whole) for word, lists in words.items()}
            passed = 0
            for count in sorted({each for each in own.values() if each > 0}):
                modules = tuple(sorted(word for word, each in own.items() if each >= count))
                found[modules][chunk, stage] = count - passed
                passed = count
    some = [
        (Selective(modules=modules), tuple(tuple(at.get((c, s), 0) for s in range(len(row))) for c, row in enumerate(full)))
        for modules, at in found.items()
    ]
    return ordered_parts([(Full(), full), *some])


def lists_of_parts(
    parts: Iterable[tuple[Selective | Full, Grid]], words: Iterable[str], split: Grid, *, behind_full: bool
) -> tuple[Grid, dict[str, Grid]]:
    """The list of full layers and one for each module: the inverse of ``parts_of_lists``, where nothing is ``unsayable``.

    full;   of a module: all parts with it [+ full]
    """
    given = list(parts)
    full = _sum((counts for treatment, counts in given if isinstance(treatment, Full)), split)
    lists = {}
    for word in words:
        own = [counts for treatment, counts in given if isinstance(treatment, Selective) and word in treatment.modules]
        lists[word] = _sum([*own, *([] if behind_full else [full])], split)
    return full, lists


def parts_of(recompute: Recompute, split: Grid) -> Parts:
    """Treatments with their counts by chunk and stage."""
    match recompute:
        case NoRecompute():
            return ()
        case Full():
            return ((Full(), counts_of(recompute, split)),)
        case Selective():
            return ((recompute, split),)
        case Mixed(parts=parts):
            return parts


def recomputed_modules(recompute: Recompute) -> frozenset[str]:
    """Modules that some layers recompute apart."""
    return frozenset(module for treatment in treatments_of(recompute) for module in getattr(treatment, "modules", ()))


def recompute_of_lists(full: Grid, words: Mapping[str, Grid], split: Grid, *, behind_full: bool) -> Recompute:
    """What lists recompute, as a layout says it."""
    return mixed(parts_of_lists(full, words, behind_full=behind_full), split)


def unsayable(parts: Parts, split: Grid) -> tuple[int, int] | None:
    """The first chunk and stage whose treatments no lists can say; None where lists say all."""
    words = sorted({word for treatment, _ in parts if isinstance(treatment, Selective) for word in treatment.modules})
    full, lists = lists_of_parts(parts, words, split, behind_full=True)
    said, wanted = dict(parts_of_lists(full, lists, behind_full=True)), dict(ordered_parts(parts))
    zeros = _sum([], split)
    places = [
        (chunk, stage) for chunk, row in enumerate(split) for stage in range(len(row))
        if any(
            said.get(each, zeros)[chunk][stage] != wanted.get(each, zeros)[chunk][stage] for each in {*said, *wanted}
        )
    ]
    return places[0] if places else None


def lists_of_kinds(kinds: Mapping[str, Grid], split: Grid, *, behind_full: bool) -> dict[str, Grid]:
    """The three lists of layers by kind (full, both, select, comm; what is missing is nowhere), whatever select recomputes.

    >>> lists = lists_of_kinds({"full": ((1, 0),), "both": ((2, 0),), "comm": ((0, 3),)}, ((4, 4),), behind_full=False)
    >>> lists["recompute"], lists["select_recompute"], lists["select_comm_recompute"]
    (((1, 0),), ((3, 0),), ((3, 3),))
    """
    full, lists = lists_of_parts(kind_parts(kinds), (SELECT, COMM), split, behind_full=behind_full)
    return dict(zip(LISTS, (full, lists[SELECT], lists[COMM]), strict=True))


def kinds_of_lists(lists: Mapping[str, Grid], split: Grid, *, behind_full: bool) -> dict[Kind, Grid]:
    """Layers by kind of the three lists (what is missing is empty); the inverse of ``lists_of_kinds``."""
    zeros = _sum([], split)
    full, select, comm = (lists.get(name, zeros) for name in LISTS)
    parts = dict(parts_of_lists(full, {SELECT: select, COMM: comm}, behind_full=behind_full))
    return {kind: parts.get(treatment, zeros) for kind, treatment in KINDS.items()}


def crossing(kinds: Mapping[str, Grid], split: Grid) -> tuple[int, int] | None:
    """The first chunk and stage with select alone beside comm alone, which no lists can say; None where there is none."""
    return unsayable(kind_parts(kinds), split)


def kind_parts(kinds: Mapping[str, Grid]) -> Parts:
    """Kinds as treatments of the pseudo-modules select and comm."""
    return tuple((treatment, kinds[kind]) for kind, treatment in KINDS.items() if kind in kinds)


def excess(parts: Parts, split: Grid) -> tuple[int, int, int] | None:
    """Chunk, stage and count of the first chunk that recomputes more layers than it has, or fewer than none; None: no such."""
    total = _sum((counts for _, counts in parts), split)
    places = [
        (chunk, stage, total[chunk][stage]) for chunk, row in enumerate(split) for stage, layers in enumerate(row)
        if total[chunk][stage] > layers or any(counts[chunk][stage] < 0 for _, counts in parts)
    ]
    return places[0] if places else None


def offsets(split: Grid) -> Grid:
    """What MindFormers' ``offset`` adds to the average of each chunk and stage: ``num_layers // (stages x chunks)``."""
    average = sum(map(sum, split)) // sum(map(len, split))
    return tuple(tuple(count - average for count in row) for row in split)


def _sum(grids: Iterable[Grid], split: Grid) -> Grid:
    """Counts added up; zeros of the split's shape for none."""
    total = tuple((0,) * len(row) for row in split)
    for grid in grids:
        total = tuple(tuple(map(int.__add__, *rows)) for rows in zip(total, grid, strict=False))
    return total
