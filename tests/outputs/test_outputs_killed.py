"""Whatever ends a writer at whatever step: after the next start all files are the old ones, or all are the new ones."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from benchmarks.failing_disk import failing, leftovers, picture

from meshwright.errors import InputError
from meshwright.outputs import Output, in_folder, recover, write

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class File:
    path: str
    text: str
    executable: bool = False


BOM = b"\xef\xbb\xbf"
PLAN = [
    File("plan.yaml", "new plan, longer than the old one\n"), File("train.sh", "#!new\n", True), File("same.txt", "same\n"),
    File("linked.txt", "new linked, longer\n"), File("short.txt", "n\n"), File("elsewhere.txt", "new elsewhere\n"),
    File("probe/deep/run.sh", "#!new probe\n", True), File("there/new.txt", "new\n"), File("there/old.txt", "new old\n"),
]


def old_folder(root: Path) -> None:
    """A folder with every kind of file: ordinary, read-only, of two names (to be longer, and shorter), a link that leads out."""
    out = root / "out"
    (out / "there").mkdir(parents=True)
    (root / "other").mkdir()
    for name, text in {"plan.yaml": "old plan\n", "train.sh": "#!old\n", "same.txt": "same\n", "there/old.txt": "old\n",
                       "mine.txt": "mine\n", "linked.txt": "old linked\n", "short.txt": "old short, long\n"}.items():
        (out / name).write_text(text)
    (out / "train.sh").chmod(0o540)
    for name in ("linked", "short"):
        (root / "other" / f"{name}.txt").hardlink_to(out / f"{name}.txt")
    (root / "other" / "real.txt").write_text("old elsewhere\n")
    (out / "elsewhere.txt").symlink_to("../other/real.txt")


def two_scripts(root: Path) -> None:
    for folder in ("a", "b"):
        (root / folder).mkdir()
        (root / folder / "t.sh").write_bytes(BOM + f"old {folder}\n".encode())
        (root / folder / "t.sh").chmod(0o750)
    (root / "c.sh").hardlink_to(root / "b" / "t.sh")


def one_file(root: Path) -> None:
    (root / "one.json").write_text("old\n")


def folder_of(root: Path, name: str) -> list[Output]:
    return in_folder(str(root / name), PLAN)


def folders_of(outputs: list[Output]) -> list[str]:
    return [output.path.rpartition("/")[0] for output in outputs]


def in_place(root: Path) -> list[Output]:
    return [Output(path=str(root / name / "t.sh"), text=f"new {name}, longer\n", read=f"old {name}\n") for name in ("a", "b")]


SCENES: dict[str, tuple[Callable[[Path], None], Callable[[Path], list[Output]]]] = {
    "a folder that is there": (old_folder, lambda root: folder_of(root, "out")),
    "a new folder": (one_file, lambda root: folder_of(root, "not/there/yet")),
    "scripts in place": (two_scripts, in_place),
    "a file that is there": (one_file, lambda root: [Output(path=str(root / "one.json"), text="new\n")]),
    "a new file": (one_file, lambda root: [Output(path=str(root / "two.json"), text="new\n")]),
    "a file and a new folder": (
        one_file, lambda root: [*folder_of(root, "new"), Output(path=str(root / "one.json"), text="new\n")],
    ),
}


@pytest.fixture(scope="module")
def memory():
    """A folder in memory, where there is one: thousands of small files are made."""
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=SCENES)
def scene(request, memory):
    """How to make the old files anew, what to write, and what the files are before and after."""
    make, outputs = SCENES[request.param]

    def fresh() -> tuple[Path, list[Output]]:
        root = memory / "root"
        if root.exists():
            shutil.rmtree(root)
        root.mkdir()
        make(root)
        return root, outputs(root)

    return fresh


def before_and_after(fresh):
    root, outputs = fresh()
    before = picture(root)
    with failing() as machine:
        write(outputs, force=True)
    assert leftovers(root) == []
    after = picture(root)
    assert before != after
    return before, after, machine


def test_killed_at_every_step(scene):
    before, after, machine = before_and_after(scene)
    seen = set()
    for step in range(1, machine.count + 1):
        root, outputs = scene()
        with failing(step) as hit:
            write(outputs, force=True)
        assert hit.failed
        with failing():
            recover(folders_of(outputs))
        assert picture(root) in (before, after), step
        done = picture(root) == after
        seen.add(done)
        with failing():  # nothing is in the way of the next one, but that a script in place is not what was read
            try:
                write(outputs, force=True)
            except InputError as error:
                assert done and outputs[0].read and "has changed since it was read" in str(error)
        assert picture(root) == after
        assert leftovers(root) == [], step
    assert seen == {True, False}


def test_killed_again_and_again_while_it_is_undone(scene):
    before, after, machine = before_and_after(scene)
    for step in range(1, machine.count + 1):
        root, outputs = scene()
        with failing(step):
            write(outputs, force=True)
        for second in range(1, 100):  # each time it comes further
            with failing(second) as again:
                recover(folders_of(outputs))
            if not again.failed:
                break
        assert picture(root) in (before, after), step


def test_killed_at_every_step_while_it_is_undone(scene):
    before, _, machine = before_and_after(scene)
    calls = [f"{name} {path}" for name, path, *_ in machine.log]
    commit = sum(number for number, call in enumerate(calls, start=1) if call.startswith("unlink") and call.endswith("/journal"))
    for second in range(1, 100 if commit else 0):  # 0: one rename, and no journal
        root, outputs = scene()
        with failing(commit):
            write(outputs, force=True)
        with failing(second) as again:
            recover(folders_of(outputs))
        if not again.failed:
            break
        with failing():
            recover(folders_of(outputs))
        assert picture(root) == before, second


@pytest.mark.parametrize("how", ["full", "broken"])
def test_a_disk_that_is_full_or_broken_changes_nothing(scene, how):
    before, after, machine = before_and_after(scene)
    refused = 0
    for step in range(1, machine.count + 1):
        root, outputs = scene()
        said = ""
        with failing(step, how):
            try:
                write(outputs, force=True)
            except InputError as error:
                said = str(error)
        assert picture(root) == (before if said else after), (step, said)
        refused += bool(said)
        if said:
            assert "cannot be written" in said
            if how == "full":
                assert leftovers(root) == [], step
    assert refused >= 3


def test_a_file_is_not_begun_without_room_for_all_of_it(tmp_path):
    path = tmp_path / "two-names.txt"
    path.write_text("old\n")
    (tmp_path / "twin.txt").hardlink_to(path)
    output = Output(path=str(path), text="new, and much longer\n")
    for step in range(1, 99):
        with failing(step, "full") as disk:
            try:
                write([output], force=True)
                break
            except InputError:
                assert ("write", str(path)) not in [call[:2] for call in disk.log]
    assert step > 3 and path.read_text() == output.text


def test_interrupted_at_every_step(scene):
    before, after, machine = before_and_after(scene)
    for step in range(1, machine.count + 1):
        root, outputs = scene()
        with failing(step, "interrupt"), suppress(KeyboardInterrupt):
            write(outputs, force=True)
        assert picture(root) in (before, after), step


def test_nothing_takes_its_place_before_it_is_on_the_disk(scene):
    _, _, machine = before_and_after(scene)
    synced, journalled = set(), False
    names = [entry[0] for entry in machine.log]
    places = [entry for entry in machine.log if entry[0] == "rename" and not entry[2].endswith("journal")]
    for name, *arguments in machine.log:
        if name == "fsync":
            synced.add(arguments[0])
        if name == "rename":
            assert arguments[0] in synced, arguments
            journalled |= arguments[1].endswith("journal")
            if len(places) > 1:
                assert journalled
    assert names.count("rename") >= 1
