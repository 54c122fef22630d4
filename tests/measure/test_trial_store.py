"""The store survives what ends a run, and refuses what is not its own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from meshwright.errors import InputError
from meshwright.measure.rehearse.store import Store, Trial

if TYPE_CHECKING:
    from pathlib import Path

DONE = Trial(machine="here", subject="decoder", label="tp1 pp1 dp2 mb1 zero0", ranks=2, number=0, steps_s=(0.5, 0.25))
FAILED = replace(DONE, number=1, steps_s=(), cause="rank 1: killed", cause_id="engine.killed")


def text_of(error: pytest.ExceptionInfo[InputError]) -> str:
    return str(error.value)


def test_what_was_added_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.jsonl"
    store = Store(path, "here")
    store.add(DONE)
    store.add(FAILED)
    again = Store(path, "here")
    assert again.trials == [DONE, FAILED]
    assert again.done() == {DONE.key: DONE}, "what failed may be tried again"


def test_a_file_of_one_line_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("mine, in one line")
    with pytest.raises(InputError, match=r"runs\.jsonl:1: is no run of this program"):
        Store(path, "here")
    assert path.read_text() == "mine, in one line"


def test_without_a_file_it_keeps_them_in_memory() -> None:
    store = Store(None, "here")
    store.add(DONE)
    assert store.done() == {DONE.key: DONE}


@pytest.mark.parametrize("torn", [b'{"machine": "he', b"x", b"{}"])
def test_a_line_that_was_never_finished_is_dropped(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    Store(path, "here").add(DONE)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    store = Store(path, "here")
    store.add(FAILED)
    assert path.read_bytes().startswith(whole)
    assert Store(path, "here").trials == [DONE, FAILED]


@pytest.mark.parametrize(
    "line",
    [
        "{}", "[]", "not json", "null", json.dumps(asdict(DONE) | {"more": 1}), json.dumps(asdict(DONE) | {"ranks": "2"}),
        json.dumps(asdict(DONE) | {"steps_s": [-1.0]}), json.dumps(asdict(DONE) | {"steps_s": [float("nan")]}),
        json.dumps(asdict(DONE) | {"steps_s": None}), json.dumps(asdict(DONE) | {"steps_s": [10**400]}), "[" * 100_000,
    ],
)
def test_a_line_of_another_kind_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    Store(path, "here").add(DONE)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError) as caught:
        Store(path, "here")
    assert text_of(caught) == f"{path}:2: is no run of this program: choose another --out, or remove the line"


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("notes\nand more notes")
    with pytest.raises(InputError):
        Store(path, "here")
    assert path.read_text() == "notes\nand more notes"


def test_the_store_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Store(path, "there").add(replace(DONE, machine="there"))
    with pytest.raises(InputError) as caught:
        Store(path, "here")
    assert "holds runs of another machine (there); this one is here" in text_of(caught)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        Store(tmp_path / "file" / "runs.jsonl", "here")
    assert "cannot be used" in text_of(caught)
    (tmp_path / "runs.jsonl").mkdir()
    with pytest.raises(InputError) as caught:
        Store(tmp_path / "runs.jsonl", "here")
    assert "Is a directory" in text_of(caught)
