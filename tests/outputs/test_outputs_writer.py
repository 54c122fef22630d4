"""What is written where, what is refused, and what of the user's stays."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.failing_disk import failing, leftovers, picture
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.outputs import SEAL, Output, in_folder, obstacles, recover, recover_named, sealed, write, writing
from meshwright.outputs.disk import is_torn

BOM = b"\xef\xbb\xbf"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@dataclass(frozen=True)
class File:
    path: str
    text: str
    executable: bool = False


TWO = [File("a.txt", "a\n"), File("sub/run.sh", "#!\n", True)]


def refused(*outputs: Output, **how) -> str:
    with pytest.raises(InputError) as error:
        write(outputs, **how)
    return str(error.value)


def edit(path: Path, text: str = "new\n", read: str = "old\n") -> Output:
    return Output(path=str(path), text=text, read=read)


def test_a_new_folder_and_the_same_once_more(tmp_path):
    target = tmp_path / "new" / "out"
    assert write(in_folder(str(target), TWO)) == [str(target / "a.txt"), str(target / "sub/run.sh")]
    assert (target / "sub/run.sh").stat().st_mode & 0o111 and not (target / "a.txt").stat().st_mode & 0o111
    before = (target / "a.txt").stat().st_mtime_ns
    write(in_folder(str(target), TWO))
    assert (target / "a.txt").stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "new", "out", "run.sh", "sub"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    mask = os.umask(0o027)
    try:
        write(in_folder(str(tmp_path / "out"), TWO))
        write([Output(path=str(tmp_path / "one"), text="1")])
    finally:
        os.umask(mask)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert modes == {"out": "0o750", "sub": "0o750", "a.txt": "0o640", "run.sh": "0o750", "one": "0o640"}


def test_other_content_is_refused_unless_forced_and_all_is_said(tmp_path):
    write(in_folder(str(tmp_path), TWO))
    for file in TWO:
        (tmp_path / file.path).write_text("mine\n")
    said = refused(*in_folder(str(tmp_path), [*TWO, File("new.txt", "new\n")]))
    assert said.count("exists with other content; --force overwrites it") == 2
    assert not (tmp_path / "new.txt").exists()
    write(in_folder(str(tmp_path), TWO), force=True)
    assert (tmp_path / "a.txt").read_text() == "a\n"


def test_a_directory_in_the_way_changes_nothing(tmp_path):
    (tmp_path / "sub" / "run.sh" / "x").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("mine\n")
    before = picture(tmp_path)
    assert "run.sh: is a directory, a file is wanted" in refused(*in_folder(str(tmp_path), TWO), force=True)
    assert picture(tmp_path) == before and leftovers(tmp_path) == []


def test_a_sealed_file_is_replaced_until_somebody_changes_it(tmp_path):
    path = tmp_path / "machine.yaml"
    write([Output(path=str(path), text=sealed(f"# {SEAL}\na: 1\n"))])
    assert obstacles([str(path)], fresh=True) == []
    write([Output(path=str(path), text=sealed(f"# {SEAL}\na: 2\n"))])
    assert "a: 2" in path.read_text()
    path.write_text(path.read_text().replace("a: 2", "a: 3"))
    assert [message.id for message in obstacles([str(path)], fresh=True)] == ["file.there"]
    assert obstacles([str(path)], fresh=True, force=True) == []
    assert "exists with other content" in refused(Output(path=str(path), text="a: 4\n"))


def test_one_place_for_two_outputs(tmp_path):
    place, link = tmp_path / "a.svg", tmp_path / "b.svg"
    assert "a.svg: is written twice" in refused(Output(path=str(place), text="1"), Output(path=f"{tmp_path}/./a.svg", text="2"))
    link.symlink_to("a.svg")
    assert "b.svg: is written twice" in refused(Output(path=str(place), text="1"), Output(path=str(link), text="2"))
    assert not place.exists()
    place.write_text("old\n")
    (tmp_path / "c.svg").hardlink_to(place)
    assert "is written twice" in refused(edit(place, "1"), edit(tmp_path / "c.svg", "2"))
    assert [each.id for each in obstacles([str(place), str(place)])] == ["file.twice"]
    said = refused(Output(path=str(tmp_path / "o"), text="1"), *in_folder(str(tmp_path / "o"), TWO))
    assert "the folder of the other" in said and not (tmp_path / "o").exists()


def test_an_output_that_is_an_input(tmp_path):
    (tmp_path / "runs.csv").write_text("old\n")
    path, other = str(tmp_path / "runs.csv"), str(tmp_path / ".." / tmp_path.name / "runs.csv")
    assert "is the file that is read" in refused(Output(path=path, text="1"), inputs=[other], force=True)
    assert [each.id for each in obstacles([path], inputs=[other])] == ["file.read"]
    write([Output(path=path, text="old\n")], inputs=[path])  # nothing to do is no fault


def test_what_is_no_place_for_a_file(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    words = {"pipe": "not a regular file", ".": "is a directory", "loop": "symbolic links", "n" * 300: "name too long",
             "no/where": "its directory does not exist", "file/x": "Not a directory"}
    for name, word in words.items():
        path = str(tmp_path / name)
        assert word in refused(Output(path=path, text=""), force=True) and len(str(*obstacles([path]))) < 500
        assert word in str(obstacles([path])[0])
    words |= {"file": "is a file, a directory is wanted"}
    for name, word in ((name, words[name]) for name in ("loop", "n" * 300, "file", "file/x")):
        assert word in str(obstacles(folder=str(tmp_path / name))[0])
        assert word in refused(*in_folder(str(tmp_path / name), TWO))
    for path in ("/dev/null", "/dev/full", "a\0b", "\ud800"):
        assert len(obstacles([path])) == 1 and refused(Output(path=path, text=""), force=True)
    assert "UTF-8" in refused(Output(path=str(tmp_path / "x"), text="\ud800"))
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert "its directory cannot be written to" in refused(Output(path=str(tmp_path / "x"), text=""))
    assert [str(each) for each in obstacles(folder=str(tmp_path))] == [f"{tmp_path}: its directory cannot be written to"]
    assert leftovers(tmp_path) == []


def test_where_this_command_prints_to(tmp_path, monkeypatch):
    path = tmp_path / "answer.json"
    path.write_text("")
    monkeypatch.setattr(os, "fstat", lambda handle: path.stat())
    assert "prints to" in refused(Output(path=str(path), text="{}"), force=True)


def test_owner_mode_mark_and_links_stay(tmp_path):
    real, link, twin = tmp_path / "real.sh", tmp_path / "link.sh", tmp_path / "twin.sh"
    real.write_bytes(BOM + b"old\n")
    real.chmod(0o751)
    link.symlink_to("real.sh")
    write([edit(link)])
    assert link.is_symlink() and real.read_bytes() == BOM + b"new\n" and real.stat().st_mode & 0o7777 == 0o751
    twin.hardlink_to(real)
    write([edit(link, "third, and much longer\n", "new\n")])
    assert twin.samefile(real) and twin.read_bytes() == BOM + b"third, and much longer\n"
    copy = tmp_path / "copy.sh"
    write([Output(path=str(copy), text="copy\n", like=str(link))])
    assert copy.read_bytes() == BOM + b"copy\n" and copy.stat().st_mode & 0o7777 == 0o751


@ROOT
@pytest.mark.parametrize("twins", [False, True])
def test_root_changes_no_owner(tmp_path, twins):
    path = tmp_path / "train.sh"
    path.write_text("old\n")
    if twins:
        (tmp_path / "twin.sh").hardlink_to(path)
    os.chown(path, 1234, 2345)
    path.chmod(0o4750)
    write([edit(path)])
    write([Output(path=str(tmp_path / "copy.sh"), text="", like=str(path))])
    for each in (path, tmp_path / "copy.sh"):
        assert (each.stat().st_uid, each.stat().st_gid) == (1234, 2345)
    assert path.read_text() == "new\n" and path.stat().st_mode & 0o777 == 0o750


@ROOT
def test_somebody_elses_file_is_written_in_place_or_not_at_all():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        for file, mode in (("ours.sh", 0o666), ("theirs.sh", 0o644)):
            (folder / file).write_text("old\n")
            (folder / file).chmod(mode)
            os.chown(folder / file, 1234, 1234)
        os.seteuid(65534)
        try:
            write([edit(folder / "ours.sh")])
            assert "belongs to somebody else" in refused(edit(folder / "theirs.sh"))
            assert "belongs to somebody else" in refused(Output(path=str(folder / "theirs.sh"), text="x"), force=True)
        finally:
            os.seteuid(0)
        assert {file.name: (file.read_text(), file.stat().st_uid) for file in folder.iterdir()} == {
            "ours.sh": ("new\n", 1234), "theirs.sh": ("old\n", 1234)}


@pytest.mark.parametrize("what", ["changed", "gone", "read-only"])
def test_a_script_that_is_not_what_was_read_stops_all(tmp_path, what):
    one, two = tmp_path / "one.sh", tmp_path / "two.sh"
    for path in (one, two):
        path.write_text("old\n")
    if what == "changed":
        two.write_text("mine\n")
    elif what == "gone":
        two.unlink()
    else:
        two.chmod(0o444)
    before = picture(tmp_path)
    words = {"changed": "has changed since it was read", "gone": "there no more", "read-only": "is read-only"}
    assert words[what] in refused(edit(one), edit(two), force=True)
    assert picture(tmp_path) == before


def test_what_changes_while_it_is_prepared_is_not_overwritten(tmp_path):
    one, two = tmp_path / "one.sh", tmp_path / "two.sh"
    for path in (one, two):
        path.write_text("old\n")
    with pytest.raises(InputError, match=r"two\.sh: has changed meanwhile"), writing([edit(one), edit(two)]):
        two.write_text("mine, just now\n")
    assert (one.read_text(), two.read_text()) == ("old\n", "mine, just now\n")
    with pytest.raises(InputError, match="has changed meanwhile"), writing(in_folder(str(tmp_path / "o"), TWO)):
        (tmp_path / "o").mkdir()
        (tmp_path / "o" / "a.txt").write_text("mine\n")
    assert (tmp_path / "o" / "a.txt").read_text() == "mine\n" and leftovers(tmp_path) == []


def test_a_body_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text("old\n")
    with pytest.raises(OSError, match="No space"), writing([edit(path)]) as paths:  # as print does on /dev/full
        assert paths == [str(path)] and path.read_text() == "old\n"
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old\n" and leftovers(tmp_path) == []


def test_a_second_writer_waits_or_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.outputs.locks.WAIT_S", 0.05)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert "another process is writing there" in refused(Output(path=str(tmp_path / "x"), text=""))
    finally:
        os.close(handle)
    write([Output(path=str(tmp_path / "x"), text="")])


def test_where_folders_have_no_locks_a_file_has(tmp_path, monkeypatch):
    real, kinds = fcntl.flock, []

    def nfs(handle, how):
        folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        kinds.append(folder)
        if folder:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", nfs)
    monkeypatch.setattr("meshwright.outputs.locks.WAIT_S", 0.05)
    with writing([Output(path=str(tmp_path / "x"), text="1")]):
        assert "another process is writing there" in refused(Output(path=str(tmp_path / "y"), text="2"))
    assert set(kinds) == {True, False} and (tmp_path / "x").read_text() == "1"


def test_racing_writers_leave_the_files_of_one(tmp_path):
    names = [f"{number}.txt" for number in range(6)]
    for name in names[::2]:
        (tmp_path / name).write_text("nobody")
    failures = []

    def save(who):
        try:
            for turn in range(4):
                write(in_folder(str(tmp_path), [File(name, f"{who} {turn}") for name in names]), force=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and leftovers(tmp_path) == []
    assert len({(tmp_path / name).read_text() for name in names}) == 1


def half_done(root: Path) -> tuple[Path, Path]:
    """Two files of which one has its new text when the writer dies."""
    one, two = root / "one.sh", root / "two.sh"
    for path in (one, two):
        path.write_text("old\n")
    for step in range(1, 99):
        with failing(step):
            write([edit(one), edit(two)])
        if one.read_text() != two.read_text():
            return one, two
    raise AssertionError("no step is between the two")


def test_who_names_the_folder_next_finds_the_old_files(tmp_path, monkeypatch):
    one, two = half_done(tmp_path)
    monkeypatch.chdir("/")
    said = recover_named(["estimate", f"--request={tmp_path}/sub/plan.yaml", "llama3-8b"])
    assert [str(message) for message in said] == [f"{tmp_path}: a write that was interrupted has been undone"]
    assert one.read_text() == two.read_text() == "old\n" and leftovers(tmp_path) == []
    assert recover_named([str(tmp_path)]) == []


def test_what_was_changed_since_stays_and_the_former_file_too(tmp_path):
    one, _ = half_done(tmp_path)
    assert one.read_text() == "new\n"
    one.write_text("new\nand my line\n")
    said = [str(message) for message in recover([str(tmp_path)])]
    assert f"{one}: has been changed since" in said[1] and "one.sh.before-meshwright" in said[1]
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert files == {"one.sh": "new\nand my line\n", "one.sh.before-meshwright": "old\n", "two.sh": "old\n"}


def test_a_writer_says_what_it_finds_changed(tmp_path):
    one, two = half_done(tmp_path)
    one.write_text("mine\n")
    assert "has been changed since" in refused(edit(two))
    write([edit(two)])
    assert two.read_text() == "new\n"


def test_a_folder_that_was_moved_finds_its_old_files(tmp_path):
    (tmp_path / "before").mkdir()
    half_done(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    recover([str(tmp_path / "after")])
    assert {path.read_text() for path in (tmp_path / "after").iterdir()} == {"old\n"}


@ROOT
def test_what_somebody_else_has_left_half_done_is_said(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        half_done(folder)
        folder.chmod(0o755)
        os.seteuid(65534)
        try:
            said = recover_named([str(folder)])
        finally:
            os.seteuid(0)
        assert [message.id for message in said] == ["file.others"] and "user 0" in str(said[0])
        assert [message.id for message in recover_named([str(folder)])] == ["file.undone"]


def test_a_journal_of_somebody_else_is_not_obeyed(tmp_path, monkeypatch):
    one, two = half_done(tmp_path)
    stage = next(tmp_path.glob(".meshwright-*"))
    (stage / "journal").write_text("{}")
    with pytest.raises(InputError, match="is no journal that this release understands"):
        recover([str(tmp_path)])
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    stage.rename(tmp_path / f".meshwright-{owner + 1}")
    assert recover([str(tmp_path)]) == [] and one.read_text() != two.read_text()


@given(st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_what_an_interrupted_overwrite_can_leave(old, new, there, back):
    longest = max(len(old), len(new))
    half = bytearray(old.ljust(len(new), b"\0"))
    half[: min(there, len(new))] = new[:there]
    half[: min(back, len(old))] = old[:back]
    assert is_torn(bytes(half), old, new)
    assert not is_torn(bytes(longest + 1), old, new)
    if longest and (other := next(byte for byte in range(256) if byte not in (0, *old[:1], *new[:1]))):
        assert not is_torn(bytes([other]) + bytes(half)[1:], old, new)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n" * 1000])
def test_a_text_too_long_to_be_held_comes_from_a_file(tmp_path, text):
    target = tmp_path / "rows.csv"
    with tempfile.TemporaryFile() as spool:
        spool.write(text.encode())
        output = Output(path=str(target), spool=spool)
        write([output])
        assert target.read_text() == text
        before = target.stat().st_mtime_ns
        write([output])  # the same once more
        assert target.stat().st_mtime_ns == before
        target.write_text("mine")
        assert "exists with other content" in refused(output)
        write([output], force=True)
    assert target.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
