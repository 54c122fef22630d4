"""Samples on disk: torn, foreign and hostile files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.domain.sample import Sample
from meshwright.engine.profile.machine import Machine, this_machine
from meshwright.engine.profile.store import append, open_store, read_store
from meshwright.errors import InputError

MACHINE = Machine(
    name="Some CPU", kind="cpu", cores=2, memory_bytes=2**34, host_memory_bytes=2**34, ranks=2, ranks_per_node=2, num_units=1,
    threads=1, torch="2.13.0", host="here", date="2026-11-21",
)


def sample(size: int, seconds: float = 1.0) -> Sample:
    around = {"best_s": 0.8, "low_s": 0.9, "seconds": 1.0, "high_s": 1.1, "worst_s": 1.2}
    times = {name: each * seconds for name, each in around.items()}
    return Sample(
        bench="memory", arguments={"bytes": size}, busy_ranks=2, blocks=6, calls=3, values={"bytes": size}, load=0.5, **times
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    assert open_store(path, MACHINE) == ()
    for size in (1, 2, 3):
        append(path, sample(size))
    return path


def test_what_is_written_is_read(store: Path) -> None:
    assert read_store(store) == (MACHINE, (sample(1), sample(2), sample(3)))
    assert open_store(store, MACHINE) == (sample(1), sample(2), sample(3))


@examples(20)
@given(cut=st.integers(1, 60))
def test_a_torn_last_line_costs_one_sample_and_the_next_is_whole(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("torn") / "samples.jsonl"
    open_store(path, MACHINE)
    for size in (1, 2):
        append(path, sample(size))
    path.write_bytes(path.read_bytes()[:-cut])
    assert open_store(path, MACHINE) == (sample(1),)
    append(path, sample(4))
    assert read_store(path)[1] == (sample(1), sample(4))


def test_a_file_torn_in_its_first_line_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"format": "meshwr')
    assert open_store(path, MACHINE) == ()
    append(path, sample(1))
    assert read_store(path) == (MACHINE, (sample(1),))


def test_of_two_samples_of_one_thing_the_last_counts(store: Path) -> None:
    append(store, sample(2, 5.0))
    assert [each.seconds for each in read_store(store)[1]] == [1.0, 5.0, 1.0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"torch": "2.14.0"}, "torch 2.13.0 and not 2.14.0"),
        ({"name": "Other CPU"}, "name Some CPU and not Other CPU"),
        ({"threads": 2}, "threads 1 and not 2"),
        ({"memory_bytes": 2**35}, "memory_bytes"),
        ({"ranks": 2, "ranks_per_node": 1}, "nodes 1 and not 2"),
    ],
)
def test_samples_of_another_machine_are_refused_and_stay(store: Path, changed: dict[str, object], words: str) -> None:
    before = store.read_bytes()
    with pytest.raises(InputError, match="holds samples of another machine") as caught:
        open_store(store, replace(MACHINE, **changed))
    assert words in str(caught.value)
    assert store.read_bytes() == before


def test_what_may_differ_does(store: Path) -> None:
    near = replace(MACHINE, host="there", date="2027-01-01", ranks=4, ranks_per_node=4, memory_bytes=2**34 - 2**20)
    assert len(open_store(store, near)) == 3


GOOD = asdict(sample(7))


CHANGES: list[dict[str, object]] = [
    {"seconds": None}, {"seconds": "1"}, {"seconds": float("nan")}, {"high_s": float("inf")}, {"low_s": -1.0}, {"low_s": 5.0},
    {"blocks": 0}, {"blocks": 1.5}, {"bench": "step"}, {"arguments": {"bytes": [1]}}, {"arguments": 3},
    {"values": {"x": float("nan")}}, {"surprise": 1}, {"busy_ranks": True}, {"worst_s": None}, {"seconds": 10**400},
    {"arguments": {}}, {"arguments": {"bytes": 0}}, {"arguments": {"bytes": 1, "kind": "\x1b[2J"}}, {"bench": "product"},
]
LINES = ["not json", "[]", '"x"', "[" * 100_000, *(json.dumps({**GOOD, **change}) for change in CHANGES)]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_that_is_no_sample_is_named(store: Path, line: str) -> None:
    with store.open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match="line 5"):
        read_store(store)


FORMAT = '"format": "meshwright samples 1"'


@pytest.mark.parametrize("head", ["{}", f"{{{FORMAT}}}", f'{{{FORMAT}, "machine": {{"name": 3}}}}', "name,seconds", "\x00\x01"])
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, head: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(head + "\n")
    with pytest.raises(InputError):
        open_store(path, MACHINE)
    assert path.read_text() == head + "\n"


@pytest.mark.parametrize("content", ["{}", '{"model": "mine"}', "name,seconds", "\x00\x01"])
def test_a_line_without_an_end_that_is_not_ours_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InputError, match="holds no samples"):
        open_store(path, MACHINE)
    assert path.read_text() == content


def test_a_machine_says_what_it_is() -> None:
    machine = this_machine("cpu", ranks=3, ranks_per_node=3, threads=1)
    assert machine.kind == "cpu"
    assert machine.ranks == 3
    assert machine.name
    assert machine.cores >= 1
    assert 2**28 < machine.memory_bytes == machine.host_memory_bytes
    assert machine.differences(machine) == []
