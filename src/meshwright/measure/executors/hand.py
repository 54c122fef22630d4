"""Gives a trial to ranks that wait for one, or runs its command: ``python hand.py COMMAND...``. The standard library alone.

The ranks' folder stands in MESHWRIGHT_RANKS (``engine/company.py``). A trial that fails on ranks which have run another before it
is run again by its own command, in new processes: nothing that one layout has left behind counts against the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

RANKS, SPOILT, EVERY_S = "MESHWRIGHT_RANKS", "spoilt", 0.02
LEFT = ("output.log", "record", "meeting")
"""What a failed attempt has left in the folder of its trial."""


def main(command: list[str]) -> int:
    """Run the trial of this folder -> its exit status; does not return where it is run by its own command."""
    here, place = Path.cwd(), os.environ.get(RANKS, "")
    number = _ordered(Path(place), here) if place else 0
    if number:
        signal.signal(signal.SIGTERM, lambda *_: _leave(Path(place)))
        if _done(Path(place), here):
            return 0
        (Path(place) / SPOILT).touch()
        if number == 1:
            return 1
        for name in LEFT:
            _aside(here / name)
        for each in here.glob("failure-*"):
            each.unlink()
    os.environ.pop(RANKS, None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}")
    return 127


def _leave(place: Path) -> None:
    """It is to end: so must the ranks, which nobody can call off."""
    (place / SPOILT).touch()
    os._exit(143)


def _ordered(place: Path, here: Path) -> int:
    """Put the trial before the ranks -> which of theirs it is, from 1; 0 where there are none."""
    if _gone(place):
        return 0
    number = 1 + sum(each.suffix != ".new" for each in (place / "orders").iterdir())
    new = place / "orders" / f"{number}.new"
    new.write_text(str(here), encoding="utf-8")
    new.rename(new.with_suffix(""))
    return number


def _done(place: Path, here: Path) -> bool:
    """Wait until every rank is -> whether all of them ended well."""
    ranks = None
    while True:
        gone = _gone(place)
        if ranks is None:
            with suppress(OSError, ValueError):
                ranks = int((place / "ranks").read_text())
        if next(here.glob("failure-[0-9]*"), None) is not None:
            return False
        if ranks is not None and all((here / f"result-{rank}").exists() for rank in range(ranks)):
            return True
        if gone:
            return False
        time.sleep(EVERY_S)


def _gone(place: Path) -> bool:
    return (place / "ended.json").exists() or (place / SPOILT).exists() or not (place / "orders").is_dir()


def _aside(path: Path) -> None:
    """Where nobody reads it; a file that is open is emptied."""
    if path.is_dir():
        path.rename(path.with_name(f"reused-{path.name}"))
    elif path.exists():
        shutil.copyfile(path, path.with_name(f"reused-{path.name}"))
        os.truncate(path, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
