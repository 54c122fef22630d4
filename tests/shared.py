"""What is dear and the same for every worker of one test run: made by the first that asks, read by the others."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def folder_of(controller: int) -> Path:
    """Where the workers that a process has started keep it; that process takes it away."""
    return Path(tempfile.gettempdir(), f"meshwright-tests-{controller}")


def folder() -> Path:
    """Where this process keeps what its run shares: one folder for all workers of a run."""
    return folder_of(os.getppid() if is_worker() else os.getpid())


def is_worker() -> bool:
    """Whether this is one of several processes that run tests side by side."""
    return "PYTEST_XDIST_WORKER" in os.environ


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """One process at a time."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` gives, values of JSON, once for all workers of a run; outside of workers it is made."""
    if not is_worker():
        return make()
    kept = folder() / f"{name}.json"
    with held(kept.with_suffix(".lock")):
        if not kept.exists():
            kept.write_text(json.dumps(make()))
    return json.loads(kept.read_text())
