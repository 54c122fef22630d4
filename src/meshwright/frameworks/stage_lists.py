"""A split of layers and what they recompute in the settings of frameworks, from the counts alone.

For a pipeline that is known by its layers only; where the model is known, a framework's own ``decide`` says it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.recompute_lists import crossing, lists_of_kinds, offsets
from meshwright.frameworks.ascend.stages import Split, flat_or_nested, transposed
from meshwright.frameworks.megatron.pipeline import is_even, layout_string, only_ends_differ
from meshwright.frameworks.mindspeed_llm.layouts import layout_text
from meshwright.frameworks.torchtitan.layout_keys import SCHEDULES
from meshwright.frameworks.torchtitan.stages import split_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.layout import Schedule

KINDS = {"selective": "select", "communication": "comm", "both": "both", "full": "full"}
"""Treatment -> the word for it that MindSpore's lists go by."""
OF_LIST = {
    "recompute": {"full"}, "select_recompute": {"select", "both"}, "select_comm_recompute": {"comm", "both"},
}  # fmt: skip
"""What makes a list necessary."""
EXCLUDING = ("selective", "communication")
"""What no list can say of one chunk: layers with the first alone beside layers with the second alone."""
MINDSPORE_SCHEDULES = frozenset({"1f1b", "interleaved", "gpipe", "interleaved-less-memory", "seq1f1b"})
MEGATRON_SCHEDULES = frozenset({"1f1b", "interleaved"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What is to be said: layers and recomputed layers by chunk and stage, ``[chunk][stage]``."""

    layers: Split
    recompute: Mapping[str, Split] = field(default_factory=dict)
    """Counts by treatment; what is in none keeps everything."""
    schedule: str = "1f1b"
    """A name of ``perf.schedules.ORDERS``."""
    sequence_splits: int = 1

    @property
    def chunks(self) -> int:
        """Chunks of a stage."""
        return len(self.layers)

    @property
    def used(self) -> Mapping[str, Split]:
        """Treatments that occur."""
        return {name: counts for name, counts in self.recompute.items() if any(map(any, counts))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The settings of one framework, and what it cannot say."""

    framework: str
    settings: Mapping[str, object] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    """What has no setting; the framework is then offered nothing."""
    notes: tuple[str, ...] = ()


def in_words(stages: Stages, for_lists: Stages | None = None) -> tuple[Words, ...]:
    """The stages in the settings of every framework that says them by lists, flags or modules.

    A framework that lacks something is offered nothing: half of an answer would run out of memory. ``for_lists`` is what
    MindSpore's lists get where they cannot say the stages themselves.
    """
    lists = for_lists or stages
    speakers = [say for say in _FRAMEWORKS if stages.chunks > 1 or say is not _mindspeed_core_ms_br]
    said = [say(lists if say in _BY_LISTS else stages) for say in speakers]
    return tuple(replace(words, settings={}, notes=()) if words.lacks else words for words in said)


def _mindspore_kinds(stages: Stages) -> dict[str, Split]:
    """Counts under the words of MindSpore's lists."""
    return {KINDS[name]: counts for name, counts in stages.used.items() if name in KINDS}


def _mindspore_lists(stages: Stages, *, behind_full: bool) -> dict[str, Split | None]:
    """The three lists; None where no layer is recomputed so (in full counts as full), no list where none can say it."""
    kinds = _mindspore_kinds(stages)
    if crossing(kinds, stages.layers) is not None:
        return {}
    lists = lists_of_kinds(kinds, stages.layers, behind_full=behind_full)
    return {key: counts if OF_LIST[key] & set(kinds) else None for key, counts in lists.items()}


def _mindspore_lacks(stages: Stages) -> tuple[str, ...]:
    odd = sorted(set(stages.used) - set(KINDS))
    schedule = () if stages.schedule in MINDSPORE_SCHEDULES else (f"the schedule {stages.schedule}",)
    crossed = crossing(_mindspore_kinds(stages), stages.layers)
    text = (
        "layers with selective recomputation alone beside layers with communication alone in one chunk (the first on stage {}): "
        "both lists begin at the same layer"
    )
    return (*(f"recomputing {name}" for name in odd), *schedule, *([] if crossed is None else [text.format(crossed[1])]))


def _listed(lists: Mapping[str, Split | None], chunks: int) -> dict[str, object]:
    """Lists as they stand in a file: False where nothing is recomputed so."""
    return {key: False if counts is None else flat_or_nested(counts, chunks) for key, counts in lists.items()}


def _mindformers(stages: Stages) -> Words:
    virtual: dict[str, object] = {"pp_interleave_num": stages.chunks} if stages.chunks > 1 else {}
    virtual |= {"seq_split_num": stages.sequence_splits} if stages.sequence_splits > 1 else {}
    offset = flat_or_nested(offsets(stages.layers), stages.chunks)
    lists = _listed(_mindspore_lists(stages, behind_full=False), stages.chunks)
    return Words(
        framework="MindFormers graph mode", settings={**virtual, "offset": offset, **lists}, lacks=_mindspore_lacks(stages)
    )


def _mindspeed_core_ms(stages: Stages) -> Words:
    layers = flat_or_nested(stages.layers, stages.chunks)
    lists = _listed(_mindspore_lists(stages, behind_full=True), stages.chunks)
    notes = ("select_recompute and select_comm_recompute count behind the fully recomputed layers",)
    return Words(
        framework="MindSpeed-Core-MS r0.1.0", settings={"num_layer_list": layers, **lists}, lacks=_mindspore_lacks(stages),
        notes=notes if {"selective", "communication", "both"} & set(stages.used) else (),
    )  # fmt: skip


def _mindspeed_core_ms_br(stages: Stages) -> Words:
    lists = {"num_layer_list": stages.layers, **_mindspore_lists(stages, behind_full=True)}
    return Words(
        framework="MindSpeed-Core-MS br_master",
        settings={key: False if counts is None else [list(row) for row in transposed(counts)] for key, counts in lists.items()},
        lacks=_mindspore_lacks(stages), notes=("lists are [stage][chunk]",),
    )  # fmt: skip


def _mindspeed_llm(stages: Stages) -> Words:
    settings: dict[str, object] = {}
    if stages.chunks > 1:
        settings["--pipeline-model-parallel-layout"] = layout_text(stages.layers, 0)
    elif not is_even(stages.layers):
        settings["--num-layer-list"] = ",".join(map(str, stages.layers[0]))
    more, lacks = _first_layers(stages)
    return Words(framework="MindSpeed-LLM", settings=settings | more, lacks=lacks)


def _megatron(stages: Stages) -> Words:
    split, chunks = stages.layers, stages.chunks
    settings: dict[str, object] = {"--pipeline-model-parallel-size": len(split[0])}
    virtual = {"--num-virtual-stages-per-pipeline-rank": chunks} if chunks > 1 else {}
    notes: tuple[str, ...] = ()
    if is_even(split):
        settings |= virtual
    elif only_ends_differ(split) and len(split[0]) > 2:
        settings |= virtual | {
            "--decoder-first-pipeline-num-layers": split[0][0] * chunks,
            "--decoder-last-pipeline-num-layers": split[-1][-1] * chunks,
        }
    else:
        settings["--pipeline-model-parallel-layout"] = layout_string(split)
        notes = ("the layout string is of core 0.13 and later; multi-token prediction is an m before the L",)
    more, lacks = _first_layers(stages)
    schedule = () if stages.schedule in MEGATRON_SCHEDULES else (f"the schedule {stages.schedule}",)
    return Words(framework="Megatron-LM", settings=settings | more, lacks=(*lacks, *schedule), notes=notes)


def _first_layers(stages: Stages) -> tuple[dict[str, object], tuple[str, ...]]:
    """Megatron's recomputation: all layers, or the same number of first layers of every chunk; and what is neither."""
    used = stages.used
    if not used:
        return {}, ()
    if set(used) != {"full"}:
        return {}, (f"recomputing {', '.join(used)} by stage: it has counts of whole layers only",)
    full = used["full"]
    most = max(map(max, full))
    head = {"--recompute-granularity": "full"}
    if full == stages.layers:
        return {**head, "--recompute-method": "uniform", "--recompute-num-layers": 1}, ()
    if full == tuple(tuple(min(most, count) for count in row) for row in stages.layers):
        return {**head, "--recompute-method": "block", "--recompute-num-layers": most}, ()
    least = min(map(min, full))
    return {}, (f"recomputing {least} to {most} layers of a chunk: it has one number for all of them",)


def _torchtitan(stages: Stages) -> Words:
    used, lacks = stages.used, []
    schedule: Schedule = "interleaved" if stages.chunks > 1 else "1f1b"
    if stages.schedule in SCHEDULES:
        schedule = stages.schedule
    else:
        lacks.append(f"the schedule {stages.schedule}")
    settings: dict[str, object] = {
        "parallelism.pipeline_parallel_schedule": SCHEDULES[schedule], **split_keys(stages.layers, schedule, "lm_head"),
    }  # fmt: skip
    if set(used) == {"full"} and used["full"] == stages.layers:
        settings["activation_checkpoint"] = "full"
    elif used:
        lacks.append("recomputing some layers and not others: it treats all alike")
    return Words(framework="torchtitan", settings=settings, lacks=tuple(lacks))


_BY_LISTS: tuple[Callable[[Stages], Words], ...] = (_mindformers, _mindspeed_core_ms, _mindspeed_core_ms_br)
_FRAMEWORKS: tuple[Callable[[Stages], Words], ...] = (*_BY_LISTS, _mindspeed_llm, _megatron, _torchtitan)
