"""A layer file and a pipeline become a balance problem, by SAPP's conventions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.balance import BalanceProblem
from meshwright.errors import fault
from meshwright.readers.sapp.sequence import split_body, split_first, split_last

if TYPE_CHECKING:
    from meshwright.domain.balance import Grid, RecomputeRule
    from meshwright.readers.sapp.layer_file import LayerFile
    from meshwright.readers.sapp.sequence import SequenceShape

SPLIT_SCHEDULE = "seq1f1b"


def problem(
    layers: LayerFile, *, stages: int, microbatches: int, memory_mb: float | Sequence[float], chunks: int = 1,
    schedule: str | None = None, less_memory: bool = False, sequence_splits: int = 1, sequence: SequenceShape | None = None,
    hop_time: float = 0.0, recompute_rule: RecomputeRule = "any", fixed_layers: Grid | None = None,
    fixed_recompute: tuple[str, int] | None = None,
) -> BalanceProblem:
    """The problem of filling ``stages`` x ``chunks`` with the layers of a file.

    ``memory_mb`` is one bound or one for each stage. ``schedule`` names one of ``perf.schedules.ORDERS``; without it the
    chunks, ``less_memory`` (MindSpore's thrifty interleaving) and ``sequence_splits`` say which. Under splits
    ``microbatches`` still counts whole micro-batches, and memories need the sizes of ``sequence``.

    Units:   memories in MB, times in the file's unit.
    Errors:  a bound for each stage of another number of stages; splits without sizes or of a memory smaller than its keys.
    """
    bounds = tuple(map(float, memory_mb)) if isinstance(memory_mb, Sequence) else (float(memory_mb),) * stages
    if len(bounds) != stages:
        raise fault("sapp.bounds", "{count} memory bounds for {stages} stages", path=layers.source,
                    count=len(bounds), stages=stages)
    if sequence_splits > 1:
        layers = _split(layers, sequence_splits, sequence)
    return BalanceProblem(
        stages=stages, chunks=chunks, microbatches=microbatches * sequence_splits,
        schedule=schedule or _schedule(chunks, less_memory=less_memory, splits=sequence_splits),
        sequence_splits=sequence_splits, treatments=layers.treatments, bodies=layers.bodies, first=layers.first,
        last=layers.last, constant_memory=_constants(layers, stages), memory_bounds=bounds, hop_time=hop_time,
        recompute_rule=recompute_rule, fixed_layers=fixed_layers, fixed_recompute=fixed_recompute,
    )


def _schedule(chunks: int, *, less_memory: bool, splits: int) -> str:
    if splits > 1:
        return SPLIT_SCHEDULE
    if chunks == 1:
        return "1f1b"
    return "interleaved-less-memory" if less_memory else "interleaved"


def _constants(layers: LayerFile, stages: int) -> tuple[float, ...]:
    """The constant by stage: SAPP adds it everywhere; ends that already contain it must not hold it twice."""
    constants = [layers.constant_memory_mb] * stages
    if layers.constant_in_ends:
        constants[0] -= layers.constant_memory_mb
        constants[-1] -= layers.constant_memory_mb
    return tuple(constants) if any(constants) else ()


def _split(layers: LayerFile, splits: int, shape: SequenceShape | None) -> LayerFile:
    if shape is None:
        raise fault("sapp.split_shape", "{splits} splits of the sequence need its length, the batch and the model's widths "
                    "(a training configuration)", path=layers.source, splits=splits)
    if shape.sequence_tokens < splits:
        raise fault("sapp.split_short", "{tokens} tokens cannot be split {splits} times", path=layers.source,
                    tokens=shape.sequence_tokens, splits=splits)
    keys_mb = 2 * shape.key_mb
    for body in layers.bodies:
        kept = zip(layers.treatments, body.backward_times, body.activation_memory, strict=True)
        if any(size < keys_mb for name, time, size in kept if time < math.inf and name != "full"):
            raise fault("sapp.split_memory", "a layer of {name!r} keeps less than the {keys:g} MB of keys and values that a split "
                        "must keep", path=layers.source, name=body.name, keys=keys_mb)
    split = replace(
        layers,
        treatments=tuple(name for name in layers.treatments if name != "full"),
        bodies=tuple(split_body(body, layers.treatments, splits, shape) for body in layers.bodies),
        first=split_first(layers.first, splits, shape),
        last=split_last(layers.last, splits, shape),
    )
    for word, end in (("head", split.first), ("tail", split.last)):
        if end.static_memory < 0:
            raise fault("sapp.split_end", "the {word} holds less ({memory:g} MB too little) than what splitting would free",
                        path=layers.source, word=word, memory=-end.static_memory)
    return split
