"""What is dear and the same for every worker of one test run: made by the first that asks, read by the others."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def folder_of(controller: int) -> Path:
    """Where the workers that a process has started keep it; that process takes it away."""
    return Path(tempfile.gettempdir(), f"meshwright-tests-{controller}")


def once(name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` gives, values of JSON, once for all workers of a run; outside of workers it is made."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return make()
    folder = folder_of(os.getppid())
    folder.mkdir(exist_ok=True)
    kept = folder / f"{name}.json"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(make()))
    return json.loads(kept.read_text())
