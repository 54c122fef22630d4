"""Layers of every stage as Megatron-LM's flags place them: layout strings, counts of the ends, and plain division."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.errors import fault
from meshwright.readers.limits import MAX_LAYERS

if TYPE_CHECKING:
    from meshwright.estimate.split import Split
    from meshwright.frameworks.compose import Values

_LETTERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
_REPEATS = (re.compile(r"([EtmL|])\*([0-9]{1,4})"), re.compile(r"\(([^()]*)\)(?:\*([0-9]{1,4}))?"))
"""Of a letter and of a group: letters first, so that a group is not written out before what stands in it."""
_COUNTS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
_VIRTUAL = ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout")


class Stages(Struct, frozen=True, kw_only=True):
    """How the layers lie: virtual stages of a rank, and the layers of each chunk and stage (None: all alike)."""

    virtual: int
    split: Split | None


def unrolled(text: str) -> list[str]:
    """The stages of a layout string, each as its letters: ``Et*2|(t|)*2tL`` has Ett, t, t, tL.

    ``x*n`` repeats a letter, ``(...)*n`` a group, commas only please the eye, ``|`` ends a stage.
    Errors: ``InputError`` for anything else, and for more letters than a model has.
    """
    plain = text.replace(",", "")
    while repeats := next((each for each in _REPEATS if each.search(plain)), None):
        grown = sum(len(found[1]) * int(found[2] or 1) for found in repeats.finditer(plain))
        if max(grown, len(plain)) > 8 * MAX_LAYERS:
            raise fault("megatron.layout-long", "the layout string has more letters than any model has layers", text=text[:80])
        plain = repeats.sub(lambda found: found[1] * int(found[2] or 1), plain)
    if odd := set(plain) - {*_LETTERS, "|"}:
        raise fault(
            "megatron.layout-letters", "{text!r} is no layout of stages: {odd} is none of E, t, m, L, |, x*n and (...)*n",
            text=text[:80], odd=", ".join(sorted(odd)),
        )
    return plain.split("|")


def stages_of(values: Values, pp: int, layers: int | None) -> Stages | None:
    """Virtual stages and split from all flags that say something of them; None (with a message) where they do not fit."""
    if max(pp, layers or 1, values.degree(_VIRTUAL[1])) > MAX_LAYERS:
        values.refuse(
            "megatron.giant", "more stages or layers than any model has: {pp} stages, {layers} layers", pp=pp, layers=layers
        )
        return None
    told = [flag for flag in _VIRTUAL if values.has(flag)]
    if len(told) > 1:
        values.refuse(
            "megatron.virtual-twice", "No more than one of the following arguments can be set at the same time: {flags}",
            flags=", ".join(told),
        )
        return None
    if values.has("--pipeline-model-parallel-layout"):
        return _by_string(values, pp, layers)
    virtual = _virtual(values, pp, layers)
    if virtual is None or pp == 1:
        return None if virtual is None else Stages(virtual=virtual, split=None)
    if any(values.has(flag) for flag in (*_COUNTS, *_ACCOUNTS)):
        return _by_counts(values, pp, virtual, layers)
    if not _divides(values, layers, pp) or (layers is not None and not _chunked(values, [layers // pp], virtual)):
        return None
    return Stages(virtual=virtual, split=None)


_ACCOUNTS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")


def _by_string(values: Values, pp: int, layers: int | None) -> Stages | None:
    """The split of a layout string, stage after stage, chunk after chunk."""
    from meshwright.errors import InputError

    text = values.text("--pipeline-model-parallel-layout")
    try:
        cells = unrolled(text)
    except InputError as error:
        values.messages += error.messages
        return None
    if len(cells) % pp:
        values.refuse(
            "megatron.layout-length", "The length of pipeline_model_parallel_layout must be divisible by "
            "pipeline_model_parallel_size (num_stages={num_stages}, args.pipeline_model_parallel_size={pp})",
            num_stages=len(cells), pp=pp,
        )
        return None
    counts = [cell.count("t") for cell in cells]
    if layers is not None and sum(counts) != layers:
        values.refuse(
            "megatron.layout-layers", "Number of decoder layers {placed} must match num_layers {layers}",
            placed=sum(counts), layers=layers,
        )
        return None
    split = tuple(tuple(counts[start : start + pp]) for start in range(0, len(counts), pp))
    return Stages(virtual=len(split), split=split if len(set(counts)) > 1 else None)


def _virtual(values: Values, pp: int, layers: int | None) -> int | None:
    """Chunks of a rank, from their number or from their size."""
    if values.has("--num-virtual-stages-per-pipeline-rank"):
        return values.degree("--num-virtual-stages-per-pipeline-rank")
    if not values.has("--num-layers-per-virtual-pipeline-stage"):
        return 1
    size = values.degree("--num-layers-per-virtual-pipeline-stage")
    if any(values.has(flag) for flag in _COUNTS):
        values.refuse(
            "megatron.virtual-uneven", "please use --num-virtual-stages-per-pipeline-rank to specify virtual pipeline parallel "
            "degree when enable uneven pipeline parallelism",
        )
        return None
    if layers is None:
        values.refuse("megatron.layers", "--num-layers is not said, so the virtual stages are not known")
        return None
    layers += sum(values.bool(flag) for flag in _ACCOUNTS)
    if layers % pp:
        values.refuse(
            "megatron.virtual-layers", "number of layers of the model must be divisible pipeline model parallel size: "
                                       "{layers}, {pp}",
            layers=layers, pp=pp,
        )
        return None
    if layers // pp % size:
        values.refuse(
            "megatron.virtual-size", "number of layers per pipeline stage must be divisible number of layers per virtual "
            "pipeline stage: {stage}, {size}", stage=layers // pp, size=size,
        )
        return None
    return layers // pp // size


def _divides(values: Values, layers: int | None, places: int) -> bool:
    """Whether plain division places the layers."""
    if layers is None or layers % places == 0:
        return True
    values.refuse(
        "megatron.division", "Number of layers should be divisible by the pipeline-model-parallel size: {layers} layers on "
                             "{places} stages; give --pipeline-model-parallel-layout, or --decoder-first-pipeline-num-layers and "
                             "--decoder-last-pipeline-num-layers", layers=layers, places=places,
    )
    return False


def _chunked(values: Values, by_stage: list[int], virtual: int) -> bool:
    """Whether the layers of each stage fill its virtual stages; Megatron-LM asks when it builds the model."""
    odd = sorted({count for count in by_stage if count % virtual})
    if odd:
        values.refuse(
            "megatron.virtual-counts", "num_layers_per_pipeline_rank {count} should be divisible by vp_size {virtual}",
            count=odd[0], virtual=virtual,
        )
    return not odd


def _by_counts(values: Values, pp: int, virtual: int, layers: int | None) -> Stages | None:
    """The split of counts for the ends, or with embedding and loss counted as layers."""
    if layers is None:
        values.refuse("megatron.layers", "--num-layers is not said, so the layers of each stage are not known")
        return None
    ends = [values.int(flag) for flag in _COUNTS]
    accounted = [int(values.bool(flag)) for flag in _ACCOUNTS]
    if any(count is not None for count in ends):
        if any(accounted):
            values.refuse(
                "megatron.account-uneven", "account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split are not "
                "supported with num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage",
            )
            return None
        by_stage = _ends(values, pp, layers, ends[0], ends[1])
    else:
        by_stage = [(layers + sum(accounted)) // pp] * pp if _divides(values, layers + sum(accounted), pp) else None
    if by_stage is None:
        return None
    if not _chunked(values, by_stage, virtual):
        return None
    chunks = [[count // virtual for count in by_stage] for _ in range(virtual)]
    chunks[0][0] -= accounted[0]
    chunks[-1][-1] -= accounted[1]
    split = tuple(tuple(chunk) for chunk in chunks)
    return Stages(virtual=virtual, split=split if len({count for chunk in split for count in chunk}) > 1 else None)


def _ends(values: Values, pp: int, layers: int, first: int | None, last: int | None) -> list[int] | None:
    """Layers of each stage: the ends as told, the others share what is left."""
    told = [count for count in (first, last) if count is not None]
    middle, rest = pp - len(told), layers - sum(told)
    if rest < 0 or (middle == 0 and rest) or (middle and rest % middle):
        values.refuse(
            "megatron.middle", "number of layers at middle stage: {rest} must be divisible by the middle pipeline model parallel "
            "size {middle}", rest=rest, middle=middle,
        )
        return None
    even = rest // middle if middle else 0
    return [*([] if first is None else [first]), *[even] * middle, *([] if last is None else [last])]
