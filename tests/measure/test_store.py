"""The store: a claim is one process's, an outcome is kept before anybody is told, and what is no store is refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.errors import InputError, NoAnswerError
from meshwright.measure import store as room
from meshwright.measure import storefile
from meshwright.measure.outcome import Outcome
from meshwright.measure.store import Store
from meshwright.measure.trial import identifier, safe_name

OK = Outcome(status="ok", step_s=1.5, interval_s=(1.4, 1.6), tokens_per_s_per_device=100.0, memory_peak_bytes=2.0**30, device_s=8.0)
RETRY = frozenset({"nccl", "cancelled"})


def claim(store: Store, label: str = "tp1", executor: str = "local"):
    return store.claim("case", label, executor=executor, folder=safe_name(label), retry=RETRY, most=3)


def gone() -> str:
    """An owner whose process has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    known = json.loads(_owner())
    process.wait()
    return json.dumps(known | {"pid": process.pid, "start": 1})


def _owner() -> str:
    with Store(":memory:") as store:
        return store.owner


def test_an_outcome_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        first = claim(store)
        store.finish(store.started(first.attempt, "7"), OK, sign="run.finished")
        assert claim(store).kind == "done"
    with Store(tmp_path / "s.db") as store:
        (found,) = store.attempts("case")
        assert (found.outcome, found.handle, found.sign, found.state) == (OK, "7", "run.finished", "done")
        assert store.attempts("another case") == []


def test_what_may_help_is_tried_again_so_often_and_no_more(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        kinds = []
        for status in ("cancelled", "nccl", "cancelled", "cancelled", "nccl", "nccl", "nccl"):
            found = claim(store)
            kinds.append((found.kind, found.attempt.attempt))
            if found.kind == "new":
                store.finish(found.attempt, Outcome(status=status))
        assert kinds == [*(("new", number) for number in range(1, 7)), ("done", 6)], "what somebody has cancelled does not count"
        other = claim(store, "tp2")
        store.finish(other.attempt, Outcome(status="oom"))
        assert claim(store, "tp2").kind == "done"


def test_a_trial_is_one_process_s_until_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with Store(path) as mine, Store(path) as other:
        first = claim(mine)
        other.owner = json.dumps(json.loads(mine.owner) | {"pid": 1, "start": room.started_at(1)})
        assert claim(other).kind == "taken" and claim(other).attempt.mark == first.attempt.mark
        mine_again = claim(mine)
        assert mine_again.kind == "adopted", "this process goes on with its own"
        with sqlite3.connect(path) as db:
            db.execute("UPDATE attempts SET owner=?", (gone(),))
        found = claim(other)
        assert (found.kind, found.attempt.mark) == ("adopted", first.attempt.mark)
        assert claim(mine).kind == "taken", "and it is the other's now"


def test_another_executor_does_not_start_what_one_may_still_run(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        claim(store, executor="slurm")
        with sqlite3.connect(path) as db:
            db.execute("UPDATE attempts SET owner=?", (gone(),))
        with pytest.raises(NoAnswerError, match="'tp1' was started by slurm and may still run there: go on with --executor slurm"):
            claim(store)
        assert claim(store, executor="slurm").kind == "adopted"


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        store.finish(claim(store).attempt, OK)
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(InputError, match=r"what was kept is safe; make room and go on with --resume"):
            for number in range(500):
                claim(store, f"tp{number + 2}")
        store._db.execute("PRAGMA max_page_count=1000000")
        assert store.attempts()[0].outcome == OK
        assert claim(store, "tp9999").kind == "new", "and goes on when there is room"


def test_a_store_that_another_is_just_making_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, tries = storefile._make, []

    def busy(db: sqlite3.Connection) -> None:
        tries.append(1)
        if len(tries) < 3:
            db.execute("BEGIN")
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        whole(db)

    monkeypatch.setattr(storefile, "_make", busy)
    with Store(tmp_path / "s.db") as store:
        assert claim(store).kind == "new" and len(tries) == 3
    monkeypatch.setattr(storefile, "WAIT_S", 0.0)
    tries.clear()
    with pytest.raises(InputError, match="another sweep keeps it locked: try again"):
        Store(tmp_path / "s.db")


def test_an_older_store_is_opened_and_a_later_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        store.finish(claim(store).attempt, OK)
    with monkeypatch.context() as later:
        later.setattr(storefile, "VERSION", 2)
        later.setattr(storefile, "UPGRADES", {1: ("ALTER TABLE attempts ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",)})
        with Store(path) as store:
            assert store.attempts()[0].outcome == OK
            assert store._db.execute("SELECT colour FROM attempts").fetchone() == ("red",)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is of version 2, and this release knows 1 and older ones"):
        Store(path)
    assert path.read_bytes() == before == Path(f"{path}.kept").read_bytes()


@pytest.mark.parametrize("damage", [slice(0, 60), slice(100, 400), slice(4096, 4300)])
def test_a_damaged_store_is_refused_and_a_copy_kept(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        for number in range(40):
            store.finish(claim(store, f"tp{number}").attempt, OK)
    content = bytearray(path.read_bytes())
    content[damage] = b"\xa7" * (damage.stop - damage.start)
    path.write_bytes(content)
    with pytest.raises(InputError, match="no store of trials, or a damaged one"):
        Store(path)
    assert Path(f"{path}.kept").read_bytes() == bytes(content)


@pytest.mark.parametrize("change", [
    "UPDATE attempts SET step_s='abc'", "UPDATE attempts SET step_s=-1", "UPDATE attempts SET step_s=9e999",
    "UPDATE attempts SET tokens_per_s_per_device='q'", "UPDATE attempts SET device_s='x'", "UPDATE attempts SET rank='first'",
    "UPDATE attempts SET status='weird'", "UPDATE attempts SET evidence=x'ff00'", "UPDATE attempts SET status=NULL",
    "UPDATE attempts SET folder='../../elsewhere'", "UPDATE attempts SET low_s=NULL", "ALTER TABLE attempts DROP COLUMN sign",
    "DROP TABLE attempts", "PRAGMA user_version=0",
])
def test_a_store_whose_rows_no_program_has_written_is_refused_and_a_copy_kept(tmp_path: Path, change: str) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        store.finish(claim(store).attempt, OK)
        claim(store, "tp2")
    with sqlite3.connect(path) as db:
        db.execute(change)
    with pytest.raises(InputError, match="no store of trials, or a damaged one"):
        Store(path)
    assert Path(f"{path}.kept").is_file()


def test_no_two_attempts_share_a_folder(tmp_path: Path) -> None:
    """Another case has the same labels, and what a removed store has left is no output of the next one's trials."""
    folders = []
    for name in ("s.db", "s.sqlite"):
        with Store(tmp_path / name) as store:
            for subject in ("case", "longer sequences"):
                first = store.claim(subject, "tp1", executor="local", folder="tp1", retry=RETRY, most=3).attempt
                folders += [first.folder, store.again(store.finish(first, Outcome(status="nccl"))).folder]
    assert len(set(folders)) == len(folders) == 8
    assert all(each.startswith("tp1-") for each in folders)


def test_a_hundred_thousand_trials_are_listed_and_gone_on_with_by_an_index(tmp_path: Path) -> None:
    """Times are measured by docs/sweep.md; here: no step of going on looks at every row."""
    with Store(tmp_path / "s.db") as store:
        plans = [str(row) for question in (
            "SELECT * FROM attempts WHERE id='x' ORDER BY attempt DESC LIMIT 1",
            "SELECT * FROM attempts WHERE subject='x' ORDER BY started, id, attempt",
        ) for row in store._db.execute(f"EXPLAIN QUERY PLAN {question}")]
    assert not [plan for plan in plans if "SCAN" in plan], plans


@pytest.mark.parametrize("label", ["$(rm -rf ~)", "; echo hi", "a/../../etc/passwd", "x" * 500, "\n--job-name=y", "", "名前",
                                   "--help", "."])
def test_a_hostile_name_is_a_harmless_word(label: str) -> None:
    name = safe_name(label)
    assert name and len(name) <= 48 and all(each.isascii() and (each.isalnum() or each in "._-") for each in name)
    assert name[0] not in "-."


def test_names_that_differ_stay_apart() -> None:
    assert len({safe_name(text) for text in ("a;b", "a:b", "a b", "a-b ;", "a" * 60, "a" * 61)}) == 6
    assert identifier("a", "b") == identifier("a", "b") != identifier("b", "a")
