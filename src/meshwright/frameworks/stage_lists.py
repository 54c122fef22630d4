"""A split of layers and what they recompute in the settings of frameworks, from the counts alone.

For a pipeline that is known by its layers only; where the model is known, a framework's own ``decide`` says it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import field

from meshwright.frameworks.ascend.recompute_lists import crossing, lists_of_kinds, offsets
from meshwright.frameworks.ascend.stages import Split, flat_or_nested, transposed
from meshwright.frameworks.megatron.pipeline import is_even, layout_string, only_ends_differ
from meshwright.frameworks.mindspeed_llm.layouts import layout_text
from meshwright.frameworks.torchtitan.layout_keys import SCHEDULES
from meshwright.frameworks.torchtitan.stages import split_keys
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from meshwright.domain.layout import Schedule

KINDS = {"selective": "select", "communication": "comm", "both": "both", "full": "full"}
"""Treatment -> the word for it that MindSpore's lists go by."""
OF_LIST = {
    "recompute": {"full"}, "select_recompute": {"select", "both"}, "select_comm_recompute": {"comm", "both"},
}
"""What makes a list necessary."""
EXCLUDING = ("selective", "communication")
"""What no list can say of one chunk: layers with the first alone beside layers with the second alone."""
MINDFORMERS_SCHEDULERS = {
    "1f1b": "1f1b", "interleaved": "1f1b", "gpipe": "gpipe", "interleaved-less-memory": "1f1b", "seq1f1b": "seqpipe",
}
"""Schedule -> ``pipeline_scheduler`` of MindSpore's graph mode; seq1F1B over several chunks is ``seqvpp``."""
LESS_MEMORY = "interleaving that holds less needs ENABLE_LESS_MEM_VPP=1 in the environment (mindspore-ai/toolkits)"
OTHER_STAGES = "the lists cannot say the answer: these are the stages of 'as lists can say it'"
PLAIN_SCHEDULES = frozenset({"1f1b", "interleaved"})
"""Schedules that need no word but the number of chunks."""


class Stages(Value, frozen=True, kw_only=True):
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


class Words(Value, frozen=True, kw_only=True):
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
    said = [say(lists) if say in _BY_LISTS else say(stages) for say in speakers]
    if for_lists is not None:
        said = [replace(words, notes=(*words.notes, OTHER_STAGES)) if say in _BY_LISTS else words
                for say, words in zip(speakers, said, strict=True)]
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


def _mindspore_lacks(stages: Stages, schedules: Iterable[str]) -> tuple[str, ...]:
    odd = sorted(set(stages.used) - set(KINDS))
    crossed = crossing(_mindspore_kinds(stages), stages.layers)
    text = (
        "layers with selective recomputation alone beside layers with communication alone in one chunk (the first on stage {}): "
        "both lists begin at the same layer"
    )
    lists = [] if crossed is None else [text.format(crossed[1])]
    return (*(f"recomputing {name}" for name in odd), *_lacking(stages, schedules), *lists)


def _lacking(stages: Stages, schedules: Iterable[str]) -> tuple[str, ...]:
    """The schedule, where it is none of a framework's."""
    return () if stages.schedule in schedules else (f"the schedule {stages.schedule}",)


def _listed(lists: Mapping[str, Split | None], chunks: int) -> dict[str, object]:
    """Lists as they stand in a file: False where nothing is recomputed so."""
    return {key: False if counts is None else flat_or_nested(counts, chunks) for key, counts in lists.items()}


def _mindformers(stages: Stages) -> Words:
    settings: dict[str, object] = {}
    if stages.chunks > 1:
        settings |= {"pp_interleave_num": stages.chunks, "pipeline_interleave": True}
    if stages.schedule in MINDFORMERS_SCHEDULERS and stages.schedule != "1f1b":
        scheduler = MINDFORMERS_SCHEDULERS[stages.schedule]
        settings["pipeline_scheduler"] = "seqvpp" if scheduler == "seqpipe" and stages.chunks > 1 else scheduler
    settings |= {"seq_split_num": stages.sequence_splits} if stages.sequence_splits > 1 else {}
    settings["offset"] = flat_or_nested(offsets(stages.layers), stages.chunks)
    apart = [key for key in settings if key.startswith("pipeline_")]
    return Words(
        framework="MindFormers graph mode",
        settings=settings | _listed(_mindspore_lists(stages, behind_full=False), stages.chunks),
        lacks=_mindspore_lacks(stages, MINDFORMERS_SCHEDULERS),
        notes=(*((f"of parallel.pipeline_config: {', '.join(apart)}",) if apart else ()),
               *((LESS_MEMORY,) if stages.schedule == "interleaved-less-memory" else ())),
    )


def _mindspeed_core_ms(stages: Stages) -> Words:
    virtual = {"virtual_pipeline_model_parallel_size": stages.chunks} if stages.chunks > 1 else {}
    layers = flat_or_nested(stages.layers, stages.chunks)
    lists = _listed(_mindspore_lists(stages, behind_full=True), stages.chunks)
    notes = ("select_recompute and select_comm_recompute count behind the fully recomputed layers",)
    return Words(
        framework="MindSpeed-Core-MS r0.1.0", settings={**virtual, "num_layer_list": layers, **lists},
        lacks=_mindspore_lacks(stages, PLAIN_SCHEDULES),
        notes=notes if {"selective", "communication", "both"} & set(stages.used) else (),
    )


def _mindspeed_core_ms_br(stages: Stages) -> Words:
    lists = {"num_layer_list": stages.layers, **_mindspore_lists(stages, behind_full=True)}
    return Words(
        framework="MindSpeed-Core-MS br_master",
        settings={key: False if counts is None else [list(row) for row in transposed(counts)] for key, counts in lists.items()},
        lacks=_mindspore_lacks(stages, PLAIN_SCHEDULES), notes=("lists are [stage][chunk]",),
    )


def _mindspeed_llm(stages: Stages) -> Words:
    settings: dict[str, object] = {}
    folded = stages.schedule == "dualpipev" and is_even(stages.layers)
    if folded:
        settings["--schedules-method"] = "dualpipev"
    elif stages.chunks > 1:
        settings["--pipeline-model-parallel-layout"] = layout_text(stages.layers, 0)
    elif not is_even(stages.layers):
        settings["--num-layer-list"] = ",".join(map(str, stages.layers[0]))
    more, lacks = _first_layers(stages)
    lacks = lacks if folded else (*lacks, *_lacking(stages, PLAIN_SCHEDULES))
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
    lacks = (*lacks, *_lacking(stages, PLAIN_SCHEDULES))
    return Words(framework="Megatron-LM", settings=settings | more, lacks=lacks, notes=notes)


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
    }
    if set(used) == {"full"} and used["full"] == stages.layers:
        settings["activation_checkpoint"] = "full"
    elif used:
        lacks.append("recomputing some layers and not others: it treats all alike")
    return Words(framework="torchtitan", settings=settings, lacks=tuple(lacks))


_BY_LISTS: tuple[Callable[[Stages], Words], ...] = (_mindformers, _mindspeed_core_ms, _mindspeed_core_ms_br)
_FRAMEWORKS: tuple[Callable[[Stages], Words], ...] = (*_BY_LISTS, _mindspeed_llm, _megatron, _torchtitan)
