"""Layers and stages of a hybrid as its pattern gives them: the inverse of ``hybrid.pattern``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.megatron.hybrid import KNOWN, LETTERS, PATTERNS, PIPES, layers_of, main_pattern
from meshwright.frameworks.megatron.stages import Stages, stages_of
from meshwright.readers.limits import MAX_LAYERS

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.estimate.split import Split
    from meshwright.frameworks.compose import Values

_PLACING = ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout",
            "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
"""Flags beside which no pattern is read from core 0.17 on."""
_ENDS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")


def pattern_of(values: Values) -> str | None:
    """The pattern of the files; None where they are of no hybrid."""
    return next((values.text(flag) for flag in PATTERNS if values.has(flag)), None)


def hybrid_stages(values: Values, pp: int, text: str, model: Model | None) -> Stages | None:
    """Virtual stages and split of a pattern; None, with a message, where it places nothing."""
    minor, main = parse_version(values.release).minor, text.partition("/")[0]
    if not _readable(values, text, minor):
        return None
    count = len(main_pattern(text))
    if minor >= PIPES:
        if told := [flag for flag in _PLACING if values.has(flag)]:
            values.refuse("megatron.hybrid-placing", "{flag} should not be used with --hybrid-layer-pattern: | in the pattern "
                          "defines the stages", flag=told[0])
            return None
        if "|" in main:
            return _by_pipes(values, pp, text, model)
    if pp == 1:
        return Stages(virtual=1, split=None)
    stages = stages_of(values, pp, count)
    return None if stages is None else _in_layers(values, stages, stages.split or ((count // pp,) * pp,), text, model)


def _readable(values: Values, text: str, minor: int) -> bool:
    """Whether the release reads the pattern."""
    main = text.partition("/")[0]
    piped = "|/" if minor >= PIPES else ""
    odd = sorted(set(text) - KNOWN - set(piped)) if minor >= PIPES else sorted(set(text) - LETTERS)
    if odd:
        values.refuse("megatron.hybrid-letters", "In hybrid override pattern, '{odd}' is not one of {known}", odd=odd[0],
                      known=", ".join(sorted(KNOWN if minor >= PIPES else LETTERS)))
    elif minor < PIPES and values.int("--num-layers") not in {None, len(text)}:
        values.refuse("megatron.hybrid-length", "The hybrid override pattern is the wrong length: got {got}, expected {expected}",
                      got=len(text), expected=values.int("--num-layers"))
    elif not main_pattern(text) or len(main) > 2 * MAX_LAYERS:
        values.refuse("megatron.hybrid-empty", "a pattern of {count} layers is none", count=len(main_pattern(text)))
    else:
        return True
    return False


def _by_pipes(values: Values, pp: int, text: str, model: Model | None) -> Stages | None:
    """The split of a pattern with ``|``: stage after stage, chunk after chunk."""
    counts = [len(cell) for cell in text.partition("/")[0].split("|")]
    if any(values.has(flag) for flag in _ENDS):
        values.refuse("megatron.hybrid-ends", "If --hybrid-layer-pattern contains pipe separators, {flag} should not be specified "
                      "as the pipeline layout is explicitly defined.", flag=next(flag for flag in _ENDS if values.has(flag)))
        return None
    if len(counts) % pp:
        values.refuse("megatron.hybrid-segments", "The number of hybrid pipeline segments described by --hybrid-layer-pattern must "
                      "be evenly divisible by --pipeline-model-parallel-size. Got {segments} segments and {pp} pipeline parallel "
                      "size.", segments=len(counts), pp=pp)
        return None
    split = tuple(tuple(counts[start : start + pp]) for start in range(0, len(counts), pp))
    return _in_layers(values, Stages(virtual=len(split), split=split), split, text, model)


def _in_layers(values: Values, stages: Stages, blocks: Split, text: str, model: Model | None) -> Stages | None:
    """A split of blocks as one of the model's layers."""
    flat = layers_of([count for chunk in blocks for count in chunk], model, text)
    if flat is None:
        values.refuse("megatron.hybrid-cut", "a stage of the pattern ends inside a layer of {model}, between its mixer and its "
                      "feed-forward block", model=model.name if model else "")
        return None
    width = len(blocks[0])
    split = tuple(tuple(flat[start : start + width]) for start in range(0, len(flat), width))
    return structs.replace(stages, split=split if len(set(flat)) > 1 else None)
