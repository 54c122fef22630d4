"""Splits and recompute counts in the frameworks' settings, read back by the frameworks' own rules."""

from __future__ import annotations

import importlib.util
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.ascend.recompute_lists import crossing, kinds_of_lists
from meshwright.frameworks.ascend.stages import lists_of, transposed
from meshwright.frameworks.megatron.stages import unrolled
from meshwright.frameworks.mindspeed_llm.layouts import parse_layout_text
from meshwright.frameworks.stage_lists import KINDS, Stages, in_words
from meshwright.frameworks.torchtitan.stages import layers_of

NAMES = ("selective", "communication", "both", "full")
T1 = ((5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 6, 6),)


@st.composite
def pipelines(draw, names=NAMES):
    """Layers by chunk and stage with counts of some treatments, never more than a chunk has."""
    stages, chunks = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    recompute = {name: [[0] * stages for _ in range(chunks)] for name in names}
    layers = [[draw(st.integers(1, 6)) for _ in range(stages)] for _ in range(chunks)]
    for chunk in range(chunks):
        for stage in range(stages):
            left = layers[chunk][stage]
            for name in names:
                recompute[name][chunk][stage] = draw(st.integers(0, left))
                left -= recompute[name][chunk][stage]
    return Stages(layers=frozen(layers), recompute={name: frozen(grid) for name, grid in recompute.items()},
                  schedule="interleaved" if chunks > 1 else "1f1b")


def frozen(grid):
    return tuple(map(tuple, grid))


def said(stages, framework):
    (words,) = [words for words in in_words(stages) if words.framework == framework]
    return words


def read_lists(settings, like):
    """The three lists of a file as grids; False is nothing."""
    zeros = tuple((0,) * len(row) for row in like)
    return {name: lists_of(settings[name]) or zeros for name in ("recompute", "select_recompute", "select_comm_recompute")}


@given(pipelines())
def test_mindspore_lists_give_the_same_counts_when_they_are_read(stages):
    kinds = {KINDS[name]: grid for name, grid in stages.recompute.items()}
    formers, core = said(stages, "MindFormers graph mode"), said(stages, "MindSpeed-Core-MS r0.1.0")
    if crossing(kinds, stages.layers):
        assert "both lists begin at the same layer" in formers.lacks[0]
        assert "select_recompute" not in formers.settings
        return
    assert not formers.lacks
    assert kinds_of_lists(read_lists(formers.settings, stages.layers), stages.layers, behind_full=False) == kinds
    assert kinds_of_lists(read_lists(core.settings, stages.layers), stages.layers, behind_full=True) == kinds


@given(pipelines(names=("selective", "full")))
def test_layers_are_the_average_plus_the_offset(stages):
    offset = lists_of(said(stages, "MindFormers graph mode").settings["offset"])
    average = sum(map(sum, stages.layers)) // (stages.chunks * len(stages.layers[0]))
    assert tuple(tuple(average + each for each in row) for row in offset) == stages.layers


@given(pipelines(names=("both", "full")))
def test_core_ms_has_both_orientations(stages):
    assert lists_of(said(stages, "MindSpeed-Core-MS r0.1.0").settings["num_layer_list"]) == stages.layers
    if stages.chunks > 1:
        listed = lists_of(said(stages, "MindSpeed-Core-MS br_master").settings["num_layer_list"])
        assert transposed(listed) == stages.layers


@given(pipelines(names=()))
def test_megatron_places_the_same_layers(stages):
    settings = said(stages, "Megatron-LM").settings
    chunks, width = stages.chunks, len(stages.layers[0])
    if "--pipeline-model-parallel-layout" in settings:
        counts = [cell.count("t") for cell in unrolled(settings["--pipeline-model-parallel-layout"])]
    else:
        total = sum(map(sum, stages.layers))
        first = settings.get("--decoder-first-pipeline-num-layers", total // width)
        last = settings.get("--decoder-last-pipeline-num-layers", total // width)
        middle = (total - first - last) // (width - 2) if width > 2 else 0
        counts = [count // chunks for count in (first, *[middle] * (width - 2), last)] * chunks
    assert counts == [count for row in stages.layers for count in row]


@given(pipelines(names=("full",)))
def test_megatron_is_offered_recomputation_only_where_one_number_says_it(stages):
    words = said(stages, "Megatron-LM")
    counts = stages.recompute["full"]
    if "--recompute-num-layers" not in words.settings:
        assert bool(words.lacks) == any(map(any, counts))
        return
    number = words.settings["--recompute-num-layers"]
    if words.settings["--recompute-method"] == "uniform":
        assert counts == stages.layers
    else:
        assert counts == tuple(tuple(min(number, layers) for layers in row) for row in stages.layers)


@given(pipelines(names=()))
def test_mindspeed_llm_and_torchtitan_place_the_same_layers(stages):
    order = [count for row in stages.layers for count in row]
    flags = said(stages, "MindSpeed-LLM").settings
    if "--pipeline-model-parallel-layout" in flags:
        assert parse_layout_text(flags["--pipeline-model-parallel-layout"], len(stages.layers[0])) == stages.layers
    elif flags:
        assert [int(count) for count in flags["--num-layer-list"].split(",")] == order
    parts = said(stages, "torchtitan").settings.get("parallelism.module_fqns_per_model_part")
    if parts:
        assert [len(layers_of(part)) for part in parts] == order


def test_what_a_framework_cannot_say_is_said():
    stages = Stages(layers=T1, recompute={"selective": (tuple([1] + [0] * 15),)}, schedule="zb1p")
    assert said(stages, "Megatron-LM").lacks == (
        "recomputing selective by stage: it has counts of whole layers only", "the schedule zb1p",
    )
    assert not said(stages, "Megatron-LM").settings
    assert said(stages, "MindFormers graph mode").lacks == ("the schedule zb1p",)
    assert said(stages, "torchtitan").lacks == ("recomputing some layers and not others: it treats all alike",)
    assert said(Stages(layers=T1, recompute={"custom": T1}), "MindFormers graph mode").lacks == ("recomputing custom",)


def test_lists_may_get_other_stages_than_flags():
    crossing = Stages(layers=((4, 4),), recompute={"selective": ((1, 0),), "communication": ((1, 0),)})
    both = Stages(layers=((4, 4),), recompute={"both": ((1, 0),)})
    words = {each.framework: each for each in in_words(crossing, both)}
    assert words["MindFormers graph mode"].settings["select_recompute"] == [1, 0]
    assert any("'as lists can say it'" in note for note in words["MindFormers graph mode"].notes)
    assert not any("'as lists can say it'" in note for each in in_words(both) for note in each.notes)
    assert words["Megatron-LM"].lacks


def test_sequence_splits_are_mindspores_alone():
    stages = Stages(layers=((2, 2),), schedule="seq1f1b", sequence_splits=2)
    assert said(stages, "MindFormers graph mode").settings["seq_split_num"] == 2
    assert said(stages, "Megatron-LM").lacks == ("the schedule seq1f1b",)


@pytest.mark.parametrize(
    ("schedule", "chunks", "scheduler"),
    [("1f1b", 1, None), ("gpipe", 1, "gpipe"), ("interleaved", 2, "1f1b"), ("interleaved-less-memory", 2, "1f1b"),
     ("seq1f1b", 1, "seqpipe"), ("seq1f1b", 2, "seqvpp")],
)
def test_the_order_that_an_answer_was_priced_with_is_asked_for(schedule, chunks, scheduler):
    stages = Stages(layers=((2, 2),) * chunks, schedule=schedule, sequence_splits=2 if schedule == "seq1f1b" else 1)
    words = said(stages, "MindFormers graph mode")
    assert words.settings.get("pipeline_scheduler") == scheduler
    assert words.settings.get("pipeline_interleave", False) is (chunks > 1)
    assert any("ENABLE_LESS_MEM_VPP=1" in note for note in words.notes) == (schedule == "interleaved-less-memory")


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved-less-memory", "seq1f1b", "zb1p", "zbv"])
def test_frameworks_without_a_schedule_are_offered_nothing(schedule):
    stages = Stages(layers=((2, 2), (2, 2)), schedule=schedule)
    names = {each.framework: each for each in in_words(stages)}
    for name in ("MindSpeed-Core-MS r0.1.0", "MindSpeed-Core-MS br_master", "MindSpeed-LLM", "Megatron-LM"):
        assert names[name].lacks == (f"the schedule {schedule}",)
        assert not names[name].settings


def test_folded_stages_are_mindspeed_s_where_they_are_alike():
    alike, uneven = (Stages(layers=layers, schedule="dualpipev") for layers in (((2, 2), (2, 2)), ((2, 3), (3, 2))))
    assert said(alike, "MindSpeed-LLM").settings == {"--schedules-method": "dualpipev"}
    assert said(uneven, "MindSpeed-LLM").lacks == ("the schedule dualpipev",)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed")
def test_megatron_itself_reads_the_layout_string():
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    for split in (T1, ((0, 2, 3), (2, 2, 1)), ((1, 2), (3, 1))):
        text = said(Stages(layers=split, schedule="1f1b"), "Megatron-LM").settings["--pipeline-model-parallel-layout"]
        found = PipelineParallelLayerLayout.from_str(shlex.split(shlex.quote(text))[0], len(split[0]))
        for stage in range(len(split[0])):
            for chunk in range(len(split)):
                assert found.layout[stage][chunk].count(LayerType.decoder) == split[chunk][stage]
