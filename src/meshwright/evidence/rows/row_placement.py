"""Where a row's framework puts the layers: on which stage and chunk each stands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.estimate.split import cost_split, fill_split
from meshwright.evidence.rows.refused import ImpossibleError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.estimate.split import Split
    from meshwright.evidence.rows.row import Row

MAX_WRITTEN, MAX_SPELT = 1000, 4000
"""Characters of a pipeline layout string as it is written, and with its repeats spelt out: more than any model has."""


def placed(row: Row, model: Model, layout: Layout) -> Layout:
    """The layout with its layers where the row or its framework puts them; a label has said it."""
    if row.said.layout:
        return layout
    said, stages, chunks, layers = row.said, layout.pipeline_parallel, layout.virtual_stages, layout.stage_layers
    if said.placement == "cost" and stages > 1:
        layers = cost_split(model, stages)
    if said.placement == "fill" and stages > 1:
        (places,) = fill_split(model.num_layers, stages * chunks)
        layers = _by_chunk(places, stages)
    if said.pipeline_layout:
        split = layers_of(said.pipeline_layout, stages, chunks)
        layers = split if split and sum(map(sum, split)) == model.num_layers else None
    if said.placement == "ends" and stages > 1:
        layers = _embedding_slots(model.num_layers, stages)
    if said.idle_layers:
        layers = _without_idle(row.shape.num_layers or 0, said.idle_layers, stages, chunks)
    layout = replace(layout, stage_layers=layers)
    if said.placement == "cost" and (reason := _refused_by_cost(layout)):
        raise ImpossibleError(reason)
    return layout


def layers_of(layout: str, stages: int, chunks: int) -> Split | None:
    """Layers per chunk and stage of a pipeline layout string, multi-token-prediction layers not counted.

    ``E`` embedding, ``t`` a layer, ``m`` a multi-token-prediction layer, ``L`` the loss; ``x*n`` and ``(..)*n`` repeat, ``|``
    ends a place. None where the places are not stages x chunks, or where no model has so many.

    Source: Megatron-Core --pipeline-model-parallel-layout (pipeline_parallel_layer_layout.py).

    >>> layers_of("Et*2|(tt|)*2tmL", 2, 2)
    ((2, 2), (2, 1))
    """
    text = layout.replace(" ", "")[:MAX_WRITTEN]
    while found := re.search(r"\(([^()]*)\)\*(\d{1,4})|([A-Za-z])\*(\d{1,4})", text):
        piece, times = found.group(1) or found.group(3) or "", int(found.group(2) or found.group(4))
        if len(text) + len(piece) * times > MAX_SPELT:
            return None
        text = text[: found.start()] + piece * times + text[found.end() :]
    places = [place.count("t") for place in text.split("|")]
    if len(places) != stages * chunks:
        return None
    return _by_chunk(places, stages)


def _by_chunk(places: Sequence[int], stages: int) -> Split:
    """Layers of places, which run over the stages chunk after chunk, by chunk and stage."""
    return tuple(tuple(places[start : start + stages]) for start in range(0, len(places), stages))


def _refused_by_cost(layout: Layout) -> str | None:
    """Why nanotron cannot run a layout, whatever its memory; ``cost_split`` says where its blocks stand.

    Norm, output layer, cast and loss follow the last layer, each rank ending with the block that passes its share of the
    cost: two ranks behind the output layer at most get a block, and those have no parameters, which DDP (ZeRO-0) refuses.
    """
    if layout.num_microbatches < layout.pipeline_parallel - 1:
        return "nanotron asserts at least PP - 1 micro-batches"
    behind = layout.stage_layers[0].count(0) - 1 if layout.stage_layers else 0
    if behind > 2:
        return "nanotron leaves a stage without any block"
    if behind > 0 and layout.zero_stage == 0 and layout.data_parallel > 1:
        return "DDP refuses a stage without parameters"
    return None


def _embedding_slots(num_layers: int, stages: int) -> Split:
    """Megatron-DeepSpeed's partition by transformer and embedding layers: both ends count as a layer each."""
    (counts,) = fill_split(num_layers + 2, stages)
    return ((counts[0] - 1, *counts[1:-1], counts[-1] - 1),)


def _without_idle(num_layers: int, idle: tuple[int, ...], stages: int, chunks: int) -> Split:
    """Layers per chunk and stage where some layers of the script do nothing."""
    each, left = divmod(num_layers, stages * chunks)
    if left:
        raise UnreadableError("cells contradict each other", f"{num_layers} layers on {stages * chunks} chunks, some of them idle")
    counts = [each] * (stages * chunks)
    for layer in idle:
        counts[layer // each] -= 1
    return _by_chunk(counts, stages)
