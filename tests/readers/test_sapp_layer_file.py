"""SAPP's layer files: its conventions, and what is refused in one clear line.

Figures of the layer sets: mindspore-ai/toolkits e0486ee, tests/st/test_pipeline_balance (test.json, sim.json, seqpp/seq.json).
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.perf.schedules import ORDERS
from meshwright.readers.sapp import (
    SequenceShape,
    backward_times,
    cumulative,
    problem,
    read_layer_file,
    read_manual_file,
    read_sequence_shape,
    separated,
)
from meshwright.readers.sapp.layer_file import layer_file_from
from meshwright.search.balance.memory import stage_memory

LS1: dict[str, Any] = {
    "name": "ls1",
    "layers_description": [
        {"name": "embedding", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11000},
        {"name": "layer", "type": "BODY", "time": 180, "nb_layer": 96, "memory_parameter": 1583, "memory_activation": 826,
         "memory_recompute": 32, "backward_coef": 0, "recompute_coef": 0.5},
        {"name": "output", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 2473},
    ],
}
SEQUENCE: dict[str, Any] = {
    "name": "seq",
    "stage_const_mem": 3422,
    "layers_description": [
        {"name": "HEAD", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 5288},
        {"name": "BODY", "type": "BODY", "time": 180, "nb_layer": 16, "memory_parameter": 368, "memory_activation": 4229,
         "memory_select_rec": 4098},
        {"name": "TAIL", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 10030},
    ],
}
LLAMA = SequenceShape(batch_size=8, sequence_tokens=8192, hidden=4096, heads=32, vocabulary=32000, tensor_parallel=4)


def changed(place: int | None = None, drop: str | None = None, **values: object) -> dict[str, Any]:
    """LS1 with other values at its top or in one of its entries."""
    document = copy.deepcopy(LS1)
    target = document if place is None else document["layers_description"][place]
    target.update(values)
    if drop:
        del target[drop]
    return document


def faults(document: object) -> list[str]:
    """Every line that a document is refused with."""
    with pytest.raises(InputError) as caught:
        layer_file_from(document, where="f.json")
    lines = [str(message) for message in caught.value.messages]
    assert all(line.startswith("f.json") and "\n" not in line and len(line) < 600 for line in lines)
    return lines


def test_times_and_memories_are_sapps() -> None:
    found = layer_file_from(LS1, where="f.json")
    assert found.treatments == ("none", "full")
    (body,) = found.bodies
    assert (body.layers, body.forward_time, body.backward_times) == (96, 180, (360, 540))
    assert (body.static_memory, body.activation_memory) == (1583, (826, 32))
    assert (found.first.forward_time, found.first.backward_time, found.first.static_memory) == (30, 60, 11000)
    assert (found.last.forward_time, found.last.backward_time, found.last.static_memory) == (90, 180, 2473)
    assert found.remarks == ()


def test_a_kind_is_considered_if_its_memory_is_above_zero() -> None:
    document = changed(1, memory_select_rec=614, memory_select_comm=0, memory_both_comm_select=None, drop="recompute_coef")
    body = layer_file_from(document, where="f").bodies[0]
    assert layer_file_from(document, where="f").treatments == ("none", "selective", "full")
    assert body.backward_times == pytest.approx((360, 1.04 * 360, 540))
    assert backward_times(180, ("none", "selective", "communication", "both", "full")) == pytest.approx(
        (360, 374.4, 405, 419.4, 540)
    )


def test_measured_times_replace_coefficients_and_zero_does_not() -> None:
    body = layer_file_from(changed(1, forward_time=170, backward_time=333, recompute_time=0), where="f").bodies[0]
    assert (body.forward_time, body.backward_times) == (170, (333, 540))
    spaced = layer_file_from(changed(1, **{"recompute_time ": 480}), where="f")
    plain = layer_file_from(changed(1, recompute_time=480), where="f")
    assert spaced.bodies == plain.bodies
    assert plain.bodies[0].backward_times == (360, 480)
    assert [message.id for message in plain.remarks] == ["sapp.spaced_key"]
    assert not spaced.remarks


def test_bodies_keep_their_order_and_lack_what_they_have_no_memory_for() -> None:
    document = copy.deepcopy(LS1)
    moe = {"name": "moe", "type": "BODY", "time": 260, "nb_layer": 4, "memory_parameter": 9000, "memory_activation": 900,
           "memory_select_rec": 500}
    document["layers_description"].append(moe)
    found = layer_file_from(document, where="f")
    assert [body.name for body in found.bodies] == ["layer", "moe"]
    assert found.treatments == ("none", "selective", "full")
    assert found.bodies[0].backward_times == (360, math.inf, 540)
    assert found.bodies[1].backward_times == pytest.approx((520, 540.8, math.inf))
    assert found.layers == 100


def test_two_counts_of_layers_are_remarked() -> None:
    found = layer_file_from(changed(auto_partition_layer={"layer": 48}), where="f")
    assert found.layers == 96
    assert "SAPP reads nb_layer" in str(found.remarks[0])


def test_constant_on_every_stage_or_once() -> None:
    layers = layer_file_from(changed(stage_const_mem=100), where="f")
    assert problem(layers, stages=4, microbatches=8, memory_mb=1e5).constant_memory == (100,) * 4
    once = replace(layers, constant_in_ends=True)
    assert problem(once, stages=4, microbatches=8, memory_mb=1e5).constant_memory == (0, 100, 100, 0)
    assert problem(once, stages=1, microbatches=8, memory_mb=1e5).constant_memory == (-100,)
    negative = layer_file_from(changed(stage_const_mem=-1896), where="f")
    assert [message.id for message in negative.remarks] == ["sapp.negative_constant"]


def test_schedules_are_simulated_ones() -> None:
    layers = layer_file_from(LS1, where="f")
    names = [
        problem(layers, stages=4, microbatches=8, memory_mb=1e5, **choice).schedule  # type: ignore[arg-type]
        for choice in ({}, {"chunks": 2}, {"chunks": 2, "less_memory": True}, {"schedule": "zb1p"})
    ]
    names.append(problem(layers, stages=4, microbatches=8, memory_mb=1e5, sequence_splits=2, sequence=SMALL).schedule)
    assert names == ["1f1b", "interleaved", "interleaved-less-memory", "zb1p", "seq1f1b"]
    assert set(names) <= set(ORDERS)


SMALL = SequenceShape(batch_size=1, sequence_tokens=1024, hidden=1024, heads=8, vocabulary=1000)


def test_bounds_by_stage() -> None:
    layers = layer_file_from(LS1, where="f")
    assert problem(layers, stages=2, microbatches=2, memory_mb=[1e5, 2e5]).memory_bounds == (1e5, 2e5)
    with pytest.raises(InputError, match="3 memory bounds for 2 stages"):
        problem(layers, stages=2, microbatches=2, memory_mb=[1, 2, 3])


def test_sequence_splits_reproduce_sapps_peaks() -> None:
    """T7: one of the placements behind the golden peaks (which leave out the file's constant) gives them to the MB."""
    layers = replace(layer_file_from(SEQUENCE, where="f"), constant_memory_mb=0.0)
    found = problem(layers, stages=8, microbatches=32, memory_mb=40000, sequence_splits=2, sequence=LLAMA)
    assert (found.microbatches, found.sequence_splits) == (64, 2)
    (body,) = found.bodies
    assert (body.forward_time, body.backward_times) == (90, (180, pytest.approx(187.2)))
    assert (body.static_memory, body.activation_memory) == (368 + 4 * 128, (2242.5, 2177))
    assert (found.first.static_memory, found.last.static_memory) == (4904, 8030)
    import numpy as np

    counts = np.zeros((1, 2, 1, 8), dtype=np.int64)
    counts[0, 0, 0] = (1, 2, 2, 2, 2, 3, 2, 2)
    golden = [25966.5, 37640, 33155, 28670, 24185, 29550, 15215, 18760]
    assert stage_memory(found, counts) == pytest.approx(golden, abs=1)


def test_sequence_splits_have_no_full_recompute_and_need_sizes() -> None:
    layers = layer_file_from(changed(1, memory_activation=5000), where="f")
    found = problem(layers, stages=8, microbatches=4, memory_mb=1e5, sequence_splits=4, sequence=SMALL)
    assert found.treatments == ("none",)
    assert found.bodies[0].activation_memory == ((5000 - 4) / 4 + 4,)
    with pytest.raises(InputError, match="need its length"):
        problem(layers, stages=8, microbatches=4, memory_mb=1e5, sequence_splits=4)
    with pytest.raises(InputError, match="keeps less than"):
        problem(layers, stages=8, microbatches=4, memory_mb=1e5, sequence_splits=4, sequence=replace(LLAMA, batch_size=800))
    with pytest.raises(InputError, match="cannot be split"):
        problem(layers, stages=8, microbatches=4, memory_mb=1e5, sequence_splits=2048, sequence=SMALL)


def test_sequence_shape_comes_from_a_training_configuration(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    document = {
        "model": {"model_config": {"seq_length": 8192, "hidden_size": 4096, "num_heads": 32, "vocab_size": 32000}},
        "parallel_config": {"model_parallel": 4},
        "runner_config": {"batch_size": 8},
    }
    path.write_text(yaml.safe_dump(document))
    assert read_sequence_shape(path) == LLAMA
    del document["runner_config"]["batch_size"]
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match="batch_size"):
        read_sequence_shape(path)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "keys with values were expected"),
        ({}, "layers_description: is missing"),
        (changed(layers_description=[]), "not a list of layers"),
        (changed(layers_description=[1]), "keys with values are expected"),
        (changed(layers_description=LS1["layers_description"] * 40), "100 is the limit"),
        (changed(layers_description=LS1["layers_description"][:2]), "no entry of type TAIL"),
        (changed(layers_description=LS1["layers_description"][::2]), "no entry of type BODY"),
        (changed(layers_description=[*LS1["layers_description"], LS1["layers_description"][1]]), "two entries are called 'layer'"),
        (changed(layers=3), "layers: is no known key"),
        (changed(1, time=-1), "must be greater than 0"),
        (changed(1, time=0), "must be greater than 0"),
        (changed(0, time=-0.5), "must be 0 or more"),
        (changed(1, time=math.inf), "is not finite"),
        (changed(1, time=math.nan), "is not finite"),
        (changed(1, time="180"), "remove the quotes"),
        (changed(1, time=True), "is not a number"),
        (changed(1, time=10**400), "larger than any amount"),
        (changed(1, drop="time"), "time: is missing"),
        (changed(1, nb_layer=0), "not within 1.."),
        (changed(1, nb_layer=-3), "not within 1.."),
        (changed(1, nb_layer=2.5), "not a whole number"),
        (changed(1, nb_layer=10**6), "not within 1.."),
        (changed(1, drop="nb_layer"), "is missing"),
        (changed(1, drop="memory_activation"), "what a layer keeps without recomputation"),
        (changed(1, memory_activation=-826), "must be 0 or more"),
        (changed(1, drop="memory_parameter"), "memory_parameter: is missing"),
        (changed(0, drop="memory_parameter"), "memory_parameter: is missing"),
        (changed(1, memory_parameter=-1), "must be 0 or more"),
        (changed(1, recompute_coef=-0.5), "must be 0 or more"),
        (changed(1, memory_recomputed=3), "did you mean memory_recompute"),
        (changed(0, head_time=3), "SAPP reads time"),
        (changed(1, type="MIDDLE"), "none of HEAD, BODY, TAIL"),
        (changed(1, name=""), "is no name"),
        (changed(stage_const_mem="x"), "is not a number"),
    ],
)
def test_faults_in_one_line_each(document: object, words: str) -> None:
    assert any(words in line for line in faults(document)), faults(document)


def test_every_fault_at_once() -> None:
    document = changed(1, time=-1, nb_layer=0, memory_parameter="x")
    document["layers_description"][0]["time"] = -2
    assert len(faults(document)) == 4


def test_files_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, words in (
        ("", "empty"),
        ("{", "truncated"),
        ("[" * 5000, "deep"),
        ('{"name": NaN}', "NaN"),
        ('{"a":1,"a":2}', "twice"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_layer_file(path)
    path.write_text(json.dumps(LS1))
    assert read_layer_file(path).layers == 96


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2), st.sampled_from(["time", "nb_layer", "memory_parameter", "memory_activation", "type", "name", "x"]), LEAVES
)
def test_any_value_anywhere_is_read_or_refused(place: int, key: str, value: object) -> None:
    document = changed(place, **{key: value})
    try:
        found = layer_file_from(document, where="f")
    except InputError:
        return
    assert all(body.forward_time > 0 and math.isfinite(body.static_memory) for body in found.bodies)


@given(*[st.integers(0, 6)] * 4)
def test_cumulative_lists_and_back(none: int, selective: int, both: int, full: int) -> None:
    counts = {"none": none, "selective": selective, "both": both, "full": full}
    lists = cumulative(counts)
    back = separated(
        sum(counts.values()), full=lists["recompute"], select=lists["select_recompute"], comm=lists["select_comm_recompute"]
    )
    assert back == (none, selective, 0, both, full)


def test_lists_cannot_keep_selective_and_communication_apart() -> None:
    lists = cumulative({"selective": 2, "communication": 1})
    assert separated(5, full=0, select=lists["select_recompute"], comm=lists["select_comm_recompute"]) == (3, 1, 0, 1, 0)


def manual(tmp_path: Path, **block: object) -> Path:
    path = tmp_path / "manual.yaml"
    path.write_text(yaml.safe_dump({"mine": block}))
    return path


def test_manual_strategies(tmp_path: Path) -> None:
    path = manual(tmp_path, offset=[[0, 1], [-1, 0]], recompute=[[1, 0], [0, 0]], select_recompute=[[1, 2], [0, 0]],
                  select_comm_recompute=False, interleave_num=2, show=True, file_name="a.svg")
    (found,) = read_manual_file(path, layers=8, stages=2)
    assert found.chunks == 2
    assert found.treated[0] == ((1, 1), (1, 2))
    assert found.treated[1] == ((0, 2), (0, 0))
    assert found.treated[4] == ((1, 0), (0, 0))
    document = copy.deepcopy(LS1)
    document["layers_description"][1].update(nb_layer=3, memory_select_rec=500)
    dense, moe = document["layers_description"][1], {**document["layers_description"][1], "name": "moe", "nb_layer": 5}
    document["layers_description"][1:2] = [dense, moe]
    layers = layer_file_from(document, where="f")
    counts = found.counts(layers.bodies, layers.treatments)
    assert counts.shape == (2, 3, 2, 2)
    assert counts.sum(axis=(0, 1)).tolist() == [[2, 3], [1, 2]]
    assert counts.sum(axis=(1, 2, 3)).tolist() == [3, 5]
    assert counts[0].sum(axis=0).tolist() == [[2, 1], [0, 0]]
    with pytest.raises(InputError, match="the layer file has no memory"):
        plain = layer_file_from(changed(1, nb_layer=8), where="f")
        found.counts(plain.bodies, plain.treatments)
    with pytest.raises(InputError, match="places 8 layers, the model has 96"):
        found.counts(layer_file_from(LS1, where="f").bodies, ("none", "full"))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"offset": [0, 1]}, "places 9 layers"),
        ({"offset": [0]}, "1 entries for 2 stages"),
        ({"offset": [[0, 0], [0, 0]]}, "2 lists for 1 chunks"),
        ({"offset": [0, -5]}, "with -1 layers"),
        ({"offset": [5, -4]}, "with 9 layers of 8"),
        ({"offset": 0, "recompute": [5, 0]}, "recomputes 5 layers on stage 0"),
        ({"offset": 0, "recompute": [-1, 0]}, "negative"),
        ({"offset": 0, "recomput": [1, 0]}, "did you mean recompute"),
        ({"offset": 0.5}, "not a list"),
        ({"offset": [0.5, 0]}, "0.5 is not a whole number"),
        ({"offset": 0, "interleave_num": 0}, "not within"),
    ],
)
def test_manual_faults(tmp_path: Path, block: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_manual_file(manual(tmp_path, **block), layers=8, stages=2)


def test_manual_without_strategies(tmp_path: Path) -> None:
    path = tmp_path / "manual.yaml"
    for text, words in (("{}", "no strategy"), ("a: 1", "keys with values are expected"), ("", "keys with values were expected")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_manual_file(path, layers=8, stages=2)
