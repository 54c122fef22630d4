"""SAPP's dry-run files: rounds, cumulative lists, number tolerance, and what is refused in one clear line."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.readers.sapp import InitFile, read_init_file
from meshwright.readers.sapp.init_file import init_file_from

PP4: dict[str, Any] = {
    "pipeline_config": {"pipeline_num": 4, "num_layer": 80, "offset": [[0, 1, -1, 0], [0, -1, 1, 0]]},
    "time_config": {"head": 90, "body": 90, "tail": 180},
    "recompute_config": {
        "recompute": [[1, 2, 1, 1], [1, 3, 4, 1]],
        "select_recompute": [False, False],
        "select_comm_recompute": [False, False],
    },
    "memory_usage": {
        "head_memory": 66502,
        "tail_memory": 25599,
        "body_memories": {"stage_id": [[1, 2], [1, 2]], "memories": [[52536, 35595], [45439, 35700]]},
    },
}
FLAT: dict[str, Any] = {
    "pipeline_config": {"pipeline_num": 4, "num_layer": 16, "offset": [0, 1, -1, 0]},
    "time_config": {"head": 1, "body": 2.5, "tail": 2},
    "recompute_config": {"recompute": False, "select_recompute": [1, 2, 0, 0], "select_comm_recompute": [0, 1, 1, 0]},
    "memory_usage": {"head_memory": 50, "tail_memory": 30.5, "body_memories": {"stage_id": [2, 1], "memories": [10, 20]}},
}


def changed(path: str, value: object, base: dict[str, Any] = FLAT) -> dict[str, Any]:
    """A document with one value replaced, or removed with ``...``."""
    document = copy.deepcopy(base)
    *outer, last = path.split(".")
    target = document
    for key in outer:
        target = target[key]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return document


def read(document: object) -> InitFile:
    return init_file_from(document, where="f.yaml")


def test_one_round_with_cumulative_lists() -> None:
    found = read(FLAT)
    assert (found.stages, found.layers, found.head_time, found.body_time, found.tail_time) == (4, 16, 1, 2.5, 2)
    assert found.runs.treatments == ("none", "selective", "communication", "both")
    assert [(peak.stage, peak.peak_mb, peak.counts) for peak in found.runs.peaks] == [
        (0, 50, ((3,), (1,), (0,), (0,))),
        (3, 30.5, ((4,), (0,), (0,), (0,))),
        (2, 10, ((2,), (0,), (1,), (0,))),
        (1, 20, ((3,), (1,), (0,), (1,))),
    ]
    assert found.remarks == ()


def test_rounds_are_nested_lists_and_ends_belong_to_the_first() -> None:
    runs = read(PP4).runs
    assert runs.rounds == 2
    assert [(peak.round, peak.stage, peak.layers, peak.counts[1][0]) for peak in runs.peaks] == [
        (0, 0, 20, 1), (0, 3, 20, 1), (0, 1, 21, 2), (0, 2, 19, 1), (1, 1, 19, 3), (1, 2, 21, 4),
    ]
    assert runs.treatments == ("none", "full")


def test_ends_of_later_rounds_may_stand_among_the_middle() -> None:
    usage = {"stage_id": [[1, 2], [0, 1, 2, 3]], "memories": [[1, 2], [3, 4, 5, 6]]}
    runs = read(changed("memory_usage.body_memories", usage, PP4)).runs
    assert [(peak.round, peak.stage) for peak in runs.peaks][-4:] == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_tolerance_of_what_may_be_left_out() -> None:
    lists = read(changed("recompute_config", {"recompute": True, "select_recompute": 0})).runs
    assert lists.treatments == ("none", "full")
    assert all(sum(peak.counts[0]) == 0 for peak in lists.peaks)
    assert {peak.layers for peak in read(changed("pipeline_config.offset", 0)).runs.peaks} == {4}
    assert read(changed("recompute_config.recompute", False, PP4)).runs.treatments == ("none",)
    two = {"pipeline_config": {"pipeline_num": 2, "num_layer": 5, "offset": [0, 1]}, "time_config": FLAT["time_config"],
           "recompute_config": {}, "memory_usage": {"head_memory": 3, "tail_memory": 4}}
    assert [(peak.stage, peak.layers) for peak in read(two).runs.peaks] == [(0, 2), (1, 3)]


def test_what_is_not_read_is_said() -> None:
    profiled = changed("time_config", ...)
    profiled["profiling_config"] = {"micro_batch_num": 8, "folder_path": "/x"}
    found = read(profiled)
    assert found.body_time is None
    assert "profiles (trace_view.json) are not read" in str(found.remarks[0])
    assert "a balance needs it" in str(read(changed("time_config", ...)).remarks[0])
    assert "round 1 places 17 layers, num_layer is 16" in str(read(changed("pipeline_config.offset", [0, 1, 0, 0])).remarks[0])


def test_coefficients() -> None:
    document = {**FLAT, "backward_coef": {"full": 0.4, "comm": 0.2}}
    assert read(document).coefficients == {"full": 0.4, "communication": 0.2}


def test_virtual_stages_have_a_list_for_each_chunk() -> None:
    pipeline = {"pipeline_num": 2, "num_layer": 9, "interleave_num": 2, "micro_batch_num": 4, "offset": [[0, 0], [1, 0]]}
    document = {
        **FLAT,
        "pipeline_config": pipeline,
        "recompute_config": {"recompute": [[1, 2], [0, 0]]},
        "memory_usage": {"head_memory": 3, "tail_memory": 4},
    }
    runs = read(document).runs
    assert (runs.chunks, runs.microbatches, runs.schedule) == (2, 4, "interleaved")
    assert [peak.counts for peak in runs.peaks] == [((1, 3), (1, 0)), ((0, 2), (2, 0))]
    twice = copy.deepcopy(document)
    twice["pipeline_config"].update(offset=[[[0, 0], [1, 0]], [[0, 1], [0, 0]]], less_memory=True)
    twice["recompute_config"] = {"recompute": [[[1, 2], [0, 0]], [[0, 0], [0, 0]]]}
    twice["memory_usage"]["body_memories"] = {"stage_id": [[], [0, 1]], "memories": [[], [5, 6]]}
    runs = read(twice).runs
    assert runs.schedule == "interleaved-less-memory"
    assert [(peak.round, peak.counts) for peak in runs.peaks] == [
        (0, ((1, 3), (1, 0))), (0, ((0, 2), (2, 0))), (1, ((2, 2), (0, 0))), (1, ((3, 2), (0, 0))),
    ]
    del document["pipeline_config"]["micro_batch_num"]
    with pytest.raises(InputError, match="micro_batch_num: is missing"):
        read(document)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([1], "keys with values were expected"),
        ({}, "pipeline_config: is missing"),
        ({**FLAT, "pipelines": 1}, "is no known key; did you mean pipeline_config"),
        (changed("time_config", {"head_time": 1, "body": 1, "tail": 1}), "SAPP reads head and ignores head_time without a word"),
        (changed("time_config.body", 0), "must be greater than 0"),
        (changed("time_config.head", -1), "must be 0 or more"),
        (changed("time_config.tail", math.nan), "is not finite"),
        (changed("time_config.tail", "1e5"), "YAML reads it as text, write 100000.0"),
        (changed("time_config.tail", ...), "tail: is missing"),
        (changed("time_config.body", {"layer": [90]}), "is not a number"),
        (changed("pipeline_config.pipeline_num", 1), "not within 2.."),
        (changed("pipeline_config.pipeline_num", 10**9), "not within 2.."),
        (changed("pipeline_config.num_layer", 0), "not within 1.."),
        (changed("pipeline_config.num_layer", 1e3), "not a whole number"),
        (changed("pipeline_config.num_layer", "96"), "remove the quotes"),
        (changed("pipeline_config.offset", [0, 1]), "has 2 entries for 4 stages"),
        (changed("pipeline_config.offset", "none"), "not a list of 4 whole numbers"),
        (changed("pipeline_config.offset", [0, 1.5, 0, 0]), "1.5 is not a whole number"),
        (changed("pipeline_config.offset", [0, None, 0, 0]), "null is not a whole number"),
        (changed("pipeline_config.offset", [0, True, 0, 0]), "true is not a whole number"),
        (changed("pipeline_config.offset", [0, -9, 0, 9]), "leaves stage 1 of round 1 with -5 layers"),
        (changed("pipeline_config.offset", [0, 10**30, 0, 9]), "is not a whole number"),
        (changed("pipeline_config.offset", [[0] * 4] * 101), "101 lists; 100 is the limit"),
        (changed("pipeline_config.offset", [[[0] * 4], [0] * 4]), "has 1 entries for 4 stages (round 1)"),
        (changed("recompute_config", ...), "recompute_config: is missing"),
        (changed("recompute_config.recompute", [5, 0, 0, 0]), "recomputes 5 layers on stage 0 of round 1, which has 4"),
        (changed("recompute_config.recompute", [-1, 0, 0, 0]), "negative"),
        (changed("recompute_config.recompute", [[0] * 4] * 2), "has 2 lists for 1 rounds"),
        (changed("recompute_config.recompute", [[0] * 4] * 3, PP4), "has 3 lists for 2 rounds"),
        (changed("recompute_config.recompute", [[0] * 4, [0] * 3], PP4), "has 3 entries for 4 stages (round 2)"),
        (changed("recompute_config.selct_recompute", True), "did you mean select_recompute"),
        (changed("memory_usage.head_memory", 0), "must be greater than 0"),
        (changed("memory_usage.head_memory", ...), "head_memory: is missing"),
        (changed("memory_usage.head_memory", [1, 2]), "is not a number"),
        (changed("memory_usage.body_memories", ...), "body_memories: is missing"),
        (changed("memory_usage.body_memories.memories", [1]), "has 1 entries for 2 stages"),
        (changed("memory_usage.body_memories.memories", [1, -1]), "is not above 0"),
        (changed("memory_usage.body_memories.memories", [1, "49732M"]), "is not a number"),
        (changed("memory_usage.body_memories.memories", [1, math.inf]), "is not finite"),
        (changed("memory_usage.body_memories.memories", 3), "is not a list"),
        (changed("memory_usage.body_memories.stage_id", ...), "stage_id: is missing"),
        (changed("memory_usage.body_memories.stage_id", [1, 4]), "4 is no stage of 0..3"),
        (changed("memory_usage.body_memories.stage_id", [1, 1.0]), "1.0 is no stage"),
        (changed("memory_usage.body_memories.stage_id", [1, 1]), "stage 1 stands twice in round 1"),
        (changed("memory_usage.body_memories.stage_id", [1, 3]), "stage 3 stands twice in round 1"),
        (changed("memory_usage.body_memories.stage_id", [1, 2], PP4), "must hold 2 lists, one for each round"),
    ],
)
def test_faults_in_one_line_each(document: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(document)
    lines = [str(message) for message in caught.value.messages]
    assert any(words in line for line in lines), lines
    assert all(line.startswith("f.yaml") and "\n" not in line for line in lines)


def test_bombs(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    bomb = (
        "a: &a ["
        + "x," * 9
        + "]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [" + f"*{chr(97 + i)}," * 9 + "]\n" for i in range(9))
    )
    for text in (bomb, "[" * 5000, "a: 1\na: 2", "a: !!python/object:os.system x"):
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_init_file(path)
        assert len(caught.value.messages) == 1
    path.write_text(yaml.safe_dump(PP4))
    assert read_init_file(path).runs.rounds == 2


PATHS = [
    "pipeline_config", "pipeline_config.offset", "pipeline_config.num_layer", "pipeline_config.interleave_num",
    "pipeline_config.pipeline_num", "pipeline_config.micro_batch_num", "recompute_config", "recompute_config.recompute",
    "memory_usage", "memory_usage.body_memories", "memory_usage.body_memories.stage_id", "memory_usage.body_memories.memories",
    "memory_usage.head_memory", "time_config", "time_config.body", "backward_coef",
]
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-3, 6), st.floats(), st.text(max_size=3))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATHS), VALUES, st.sampled_from([FLAT, PP4]))
def test_any_value_anywhere_is_read_or_refused(path: str, value: object, base: dict[str, Any]) -> None:
    try:
        found = read(changed(path, value, base))
    except InputError as error:
        assert all("\n" not in str(message) for message in error.messages)
        return
    assert all(peak.peak_mb > 0 and min(map(min, peak.counts)) >= 0 for peak in found.runs.peaks)
