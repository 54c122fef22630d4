"""Which layers stand on which stage, and which stages are alike."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.layout import Full, Grid, Mixed, NoRecompute, Selective
from meshwright.domain.model import Mlp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Recompute, Treatment
    from meshwright.domain.model import LayerKind, Model

Split = Grid
"""Layers per chunk and stage, ``[chunk][stage]``."""
KEPT = NoRecompute()


class Uneven(Struct, frozen=True):
    """What stands on each chunk, of the splits whose chunks are not alike on some stage."""

    layers: tuple[NDArray[np.float64] | None, ...]
    """Per treatment of ``treatments_of``: ``[row, chunk, kind, split]``, None where no layer is treated so."""
    split: NDArray[np.int64]
    """Which of the splits a column has, -1 where its chunks are alike: ``[column]``, of one composition ``[1]``."""


class Composition(Struct, frozen=True):
    """Stages of a pipeline by what stands on them; alike stages are one row, the lowest of them standing for all.

    The lowest stage of a kind holds most micro-batches in flight, so the maximum over rows is the maximum over stages. Where chunks
    differ, stages are alike whose chunks are; where they are folded, too, the highest of a kind is a row beside the lowest.
    Arrays have the rows first; a column of compositions has them first, too: ``[row, kind, column]``.
    """

    stage: NDArray[np.float64]
    """Index of the stage that stands for the row."""
    multiplicity: NDArray[np.float64]
    """Stages alike; 0 pads."""
    counts: tuple[NDArray[np.float64] | None, ...]
    """Per treatment of ``treatments_of``: layers ``[row, kind]``, None where no layer is treated so."""
    embedding: NDArray[np.float64]
    head: NDArray[np.float64]
    uneven: Uneven | None = None
    """None where the chunks of every stage are alike."""

    @property
    def layers(self) -> NDArray[np.float64]:
        """Layers per row (and column), all kinds and treatments."""
        return np.asarray(self.kind_counts().sum(axis=1))

    def kind_counts(self) -> NDArray[np.float64]:
        """Layers per row and kind, all treatments."""
        total = sum(count for count in self.counts if count is not None)
        assert not isinstance(total, int), "a composition without layers"
        return total


@lru_cache(maxsize=4096)
def even_split(num_layers: int, stages: int, chunks: int) -> Split:
    """Layers as even as possible; what is left over goes to the chunks in the middle of the pipeline.

    The first chunk also holds the embedding and the last one the output layer, so they get the remainder last.

    Units:   layers.
    Holds:   num_layers >= 1; a chunk may be empty where layers are fewer than chunks.
    Source:  Megatron-Core --pipeline-model-parallel-layout expresses any such split.

    >>> even_split(10, 4, 1)
    ((2, 3, 3, 2),)
    """
    places = stages * chunks
    base, extra = divmod(num_layers, places)
    order = sorted(range(places), key=lambda place: (place in (0, places - 1), abs(2 * place - (places - 1)), place))
    layers = [base] * places
    for place in order[:extra]:
        layers[place] += 1
    return tuple(tuple(layers[chunk * stages : (chunk + 1) * stages]) for chunk in range(chunks))


def cost_split(model: Model, stages: int) -> Split:
    """Layers as nanotron places its blocks: by cumulative cost, the output layer counted, so stages are uneven.

    A block goes to the present rank; the rank ends with the block whose cumulative cost passes its share of the total.

        layer 4 H d h + 3 h f;   output layer V h

    Symbols: H d all query heads; f the feed-forward width (of mixtures: of the experts that a token meets).
    Units:   layers; a stage may be empty, and what closes after the last layer is counted on the last stage.
    Holds:   one chunk per stage.
    Source:  nanotron pipeline_parallel and models/base.py build_model, get_block_compute_costs.
    """
    costs = []
    for kind in model.kinds:
        block = kind.feed_forward
        width = block.width if isinstance(block, Mlp) else block.experts_per_token * block.expert_width + block.shared_width
        query = kind.attention.query_width if kind.attention else kind.mixer.value_width if kind.mixer else 0
        costs.append(4 * query * model.hidden + 3 * width * model.hidden)
    total = sum(costs[kind] for kind in model.pattern) + model.vocabulary * model.hidden
    counts, rank, passed = [0] * stages, 0, 0
    for kind_index in model.pattern:
        counts[rank] += 1
        passed += costs[kind_index]
        if passed * stages > total * (rank + 1) and rank < stages - 1:
            rank += 1
    return (tuple(counts),)


def fill_split(num_layers: int, stages: int) -> Split:
    """Layers as DeepSpeed's PipelineModule places them: stage after stage is filled, the last one has what is left.

    The bottleneck of a balanced partition is ceil(L / P) layers; stages are filled up to it in order.

    Units:   layers.
    Source:  deepspeed/runtime/utils.py partition_balanced with the partition method ``type:transformer``; BigScience's chronicles
             (train/tr11-176B-ml/chronicles-prequel.md, "Re-do"): 78 layers on 12 stages are eleven times 7 and 1.

    >>> fill_split(78, 12)
    ((7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1),)
    """
    most = -(-num_layers // stages)
    return (tuple(max(0, min(most, num_layers - stage * most)) for stage in range(stages)),)


def default_split(case: Case, stages: int, chunks: int) -> Split:
    """Layers per chunk and stage where the layout does not say: what the implementation does by itself.

    Multi-token-prediction layers count as layers of the last stage, so that it gets as many fewer of the others. Layers that take
    over what another has chosen stay on its stage.
    """
    if case.implementation.stage_split == "cost" and chunks == 1:
        return cost_split(case.model, stages)
    if case.implementation.stage_split == "fill" and chunks == 1:
        return fill_split(case.model.num_layers, stages)
    return joined_split(case.model, _level_split(case.model, stages, chunks))


def _level_split(model: Model, stages: int, chunks: int) -> Split:
    """As even as possible, with the layers of multi-token prediction on the last stage."""
    extra = len(model.mtp_kinds)
    if not extra or stages * chunks == 1:
        return even_split(model.num_layers, stages, chunks)
    *first, last = even_split(model.num_layers + extra, stages, chunks)
    return (*first, (*last[:-1], last[-1] - extra)) if last[-1] >= extra else even_split(model.num_layers, stages, chunks)


def joined_split(model: Model, split: Split) -> Split:
    """A split whose chunks begin with layers that make their own choice, each cut at the nearest such layer.

    Units:   layers.
    Holds:   itself where no layer of the model takes over a choice, and where there are fewer such places than cuts.
    Source:  Megatron-Core 0.19 ``_validate_dsa_index_share_pipeline_split``: stages hand on hidden states alone.

    >>> from meshwright.catalog import load_model
    >>> joined_split(load_model("glm-5.2"), ((13, 13, 13, 14, 13, 12),))
    ((14, 12, 12, 16, 12, 12),)
    """
    return _joined(model, split) if any(map(_borrows, model.kinds)) else split


@lru_cache(maxsize=4096)
def _joined(model: Model, split: Split) -> Split:
    """``joined_split`` of a model with such layers."""
    borrows = [_borrows(model.kinds[index]) for index in model.pattern]
    places = [place for place, borrowed in enumerate(borrows) if place and not borrowed]
    stages, cuts = len(split[0]), list(accumulate(count for chunk in split for count in chunk))[:-1]
    if len(places) < len(cuts):
        return split
    chosen: list[int] = []
    for number, cut in enumerate(cuts):
        left = places[len(chosen) and places.index(chosen[-1]) + 1 : len(places) - (len(cuts) - number - 1)]
        chosen.append(min(left, key=lambda place: abs(place - cut)))
    counts = [end - begin for begin, end in pairwise((0, *chosen, model.num_layers))]
    return tuple(tuple(counts[start : start + stages]) for start in range(0, len(counts), stages))


def _borrows(kind: LayerKind) -> bool:
    """Whether a kind of layer attends to what another has chosen."""
    attention = kind.attention
    return attention is not None and attention.selected_tokens is not None and not (attention.indexer or attention.compressed)


def chunk_kinds(model: Model, split: Split, *, folded: bool) -> NDArray[np.float64]:
    """Layers of each kind on each chunk and stage, ``[chunk, stage, kind]``; multi-token-prediction layers stand last.

    ``folded``: the second chunk runs back from the last stage to the first (DualPipeV), else chunks follow in rounds.
    """
    prefix, begin, end = _placed(model, split, folded=folded)
    return np.asarray(prefix[end] - prefix[begin])


def _placed(model: Model, split: Split, *, folded: bool) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Layers of each kind before every position of the model, ``[position, kind]``; where each chunk begins and ends there,
    ``[chunk, stage]``."""
    chunks, stages = len(split), len(split[0])
    extra = len(model.mtp_kinds)
    prefix = _before(model)
    layers = np.array(split, dtype=np.int64)
    if folded:
        layers[1::2] = layers[1::2, ::-1]
    end = np.cumsum(layers).reshape(chunks, stages)
    begin = end - layers
    end[-1, -1] += extra
    if folded:
        begin[1::2], end[1::2] = begin[1::2, ::-1].copy(), end[1::2, ::-1].copy()
    return prefix, begin, end


@lru_cache(maxsize=64)
def _before(model: Model) -> NDArray[np.float64]:
    """Layers of each kind before every position of the model, ``[position, kind]``."""
    own = np.zeros((model.num_layers + len(model.mtp_kinds), len(model.kinds)))
    own[np.arange(len(own)), (*model.pattern, *model.mtp_kinds)] = 1.0
    prefix = np.concatenate([np.zeros((1, len(model.kinds))), np.cumsum(own, axis=0)])
    prefix.flags.writeable = False
    return prefix


def last_stage(stages: int, chunks: int, *, folded: bool) -> int:
    """The stage that holds the output layer: the last, or the first where chunks are folded."""
    return 0 if folded and chunks % 2 == 0 else stages - 1


def treatments_of(recompute: Recompute) -> tuple[Treatment, ...]:
    """What the layers of a layout do with their activations: nothing, which is left to those that are not counted, and the rest."""
    match recompute:
        case NoRecompute():
            return (KEPT,)
        case Selective():
            return (KEPT, recompute)
        case Full():
            return (KEPT, Full())
        case Mixed(parts=parts):
            return (KEPT, *(treatment for treatment, _ in parts))


def treated_kinds(model: Model, split: Split, recompute: Recompute, *, folded: bool) -> tuple[NDArray[np.float64] | None, ...]:
    """Layers of each kind on each chunk and stage by treatment of ``treatments_of``; None where no layer is treated so.

    Shapes:  ``[chunk, stage, kind]`` each.
    Holds:   treatments take the first layers of a chunk in their order, and no more than there are.
    """
    prefix, begin, end = _placed(model, split, folded=folded)
    match recompute:
        case NoRecompute():
            return (prefix[end] - prefix[begin],)
        case Selective() | Full(layers=None):
            return None, prefix[end] - prefix[begin]
        case Full(layers=int(first)):
            wanted = [np.full_like(begin, first)]
        case Full(layers=tuple(counts)):
            wanted = [np.array(counts, dtype=np.int64)]
        case Mixed(parts=parts):
            wanted = [np.array(counts, dtype=np.int64) for _, counts in parts]
    taken, at = [], begin
    for count in wanted:
        upto = np.minimum(at + count, end)
        taken.append(prefix[upto] - prefix[at])
        at = upto
    return prefix[end] - prefix[at], *taken


def compose(
    model: Model, split: Split, *, folded: bool = False, recompute: Recompute = KEPT, every_stage: bool = False
) -> Composition:
    """The composition of a split: one row per sort of stage, or one per stage; made once: nobody changes it.

    Which modules are recomputed is no matter of the stages: all layers are treated alike.
    """
    return _composed(model, split, folded, Full() if isinstance(recompute, Selective) else recompute, every_stage)


@lru_cache(maxsize=4096)
def _composed(model: Model, split: Split, folded: bool, recompute: Recompute, every_stage: bool) -> Composition:
    by_chunk = treated_kinds(model, split, recompute, folded=folded)
    treated = [None if each is None else each.sum(axis=0) for each in by_chunk]
    chunks, stages = len(split), len(split[0])
    embedding, head = np.zeros(stages), np.zeros(stages)
    embedding[0], head[last_stage(stages, chunks, folded=folded)] = 1.0, 1.0
    apart = any(bool((each != each[:1]).any()) for each in by_chunk if each is not None)
    told = by_chunk if apart else [None if each is None else each[None] for each in treated]
    parts = [part for each in told if each is not None for part in each]
    keys = np.concatenate([*parts, embedding[:, None], head[:, None]], axis=1)
    first, multiplicity = _sorts(keys, ends=folded and apart, every_stage=every_stage)
    layers = tuple(None if each is None else each[:, first].swapaxes(0, 1)[..., None] for each in by_chunk)
    return Composition(
        stage=first.astype(np.float64),
        multiplicity=multiplicity,
        counts=tuple(None if each is None else each[first] for each in treated),
        embedding=embedding[first],
        head=head[first],
        uneven=Uneven(layers=layers, split=np.zeros(1, dtype=np.int64)) if apart else None,
    )


def _sorts(keys: NDArray[np.float64], *, ends: bool, every_stage: bool) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The stages that stand for a sort each, and how many they stand for; ``ends``: the lowest and the highest of each sort."""
    if every_stage:
        return np.arange(len(keys)), np.ones(len(keys))
    sorts: dict[tuple[float, ...], list[int]] = {}
    for stage, key in enumerate(map(tuple, keys.tolist())):
        sorts.setdefault(key, []).append(stage)
    rows: list[tuple[int, int]] = []
    for alike in sorts.values():
        highest = int(ends and len(alike) > 1)
        rows += [(alike[0], len(alike) - highest), *[(alike[-1], 1)] * highest]
    return np.array([stage for stage, _ in rows]), np.array([float(number) for _, number in rows])


def stack(items: Sequence[Composition], kinds: int) -> Composition:
    """Compositions as columns: rows are padded to the longest with copies of stage 0 that count for nothing.

    Shapes:  n compositions -> ``[row, (kind,) n]``.
    """
    rows = max(len(item.stage) for item in items)
    columns = len(items)
    stage, multiplicity = np.zeros((rows, columns)), np.zeros((rows, columns))
    embedding, head = np.zeros((rows, columns)), np.zeros((rows, columns))
    used = [any(count is not None for count in counts) for counts in zip(*(item.counts for item in items), strict=True)]
    counts = [np.zeros((rows, kinds, columns)) if use else None for use in used]
    for column, item in enumerate(items):
        size = len(item.stage)
        stage[:size, column], multiplicity[:size, column] = item.stage, item.multiplicity
        stage[size:, column] = item.stage[0]
        embedding[:size, column], head[:size, column] = item.embedding, item.head
        for own, target in zip(item.counts, counts, strict=True):
            if own is not None and target is not None:
                target[:size, :, column] = own
    return Composition(
        stage=stage, multiplicity=multiplicity, counts=tuple(counts), embedding=embedding, head=head,
        uneven=_stacked(items, rows, kinds, used),
    )


def _stacked(items: Sequence[Composition], rows: int, kinds: int, used: Sequence[bool]) -> Uneven | None:
    """The chunks of those compositions that are uneven, each once however often it stands in the stack."""
    places: dict[int, tuple[int, Uneven]] = {}
    for item in items:
        if item.uneven is not None:
            places.setdefault(id(item), (len(places), item.uneven))
    if not places:
        return None
    chunks = max(each.shape[1] for _, uneven in places.values() for each in uneven.layers if each is not None)
    layers = [np.zeros((rows, chunks, kinds, len(places))) if use else None for use in used]
    for place, uneven in places.values():
        for own, target in zip(uneven.layers, layers, strict=True):
            if own is not None and target is not None:
                target[: own.shape[0], : own.shape[1], :, place] = own[..., 0]
    split = [places[id(item)][0] if item.uneven is not None else -1 for item in items]
    return Uneven(layers=tuple(layers), split=np.array(split, dtype=np.int64))


def take_columns(composition: Composition, index: NDArray[np.int64]) -> Composition:
    """Chosen columns of a stack."""
    return Composition(
        stage=composition.stage[:, index], multiplicity=composition.multiplicity[:, index],
        counts=tuple(None if count is None else count[:, :, index] for count in composition.counts),
        embedding=composition.embedding[:, index], head=composition.head[:, index],
        uneven=None if composition.uneven is None else structs.replace(composition.uneven, split=composition.uneven.split[index]),
    )


def treated(composition: Composition, treatment: int, number: int) -> Composition:
    """All layers of a composition under one of so many treatments."""
    layers, uneven = composition.kind_counts(), composition.uneven
    if uneven is not None:
        own = sum(each for each in uneven.layers if each is not None)
        uneven = structs.replace(uneven, layers=tuple(np.asarray(own) if index == treatment else None for index in range(number)))
    counts = tuple(layers if index == treatment else None for index in range(number))
    return structs.replace(composition, counts=counts, uneven=uneven)
