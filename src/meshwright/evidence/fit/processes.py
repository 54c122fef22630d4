"""Worker processes that end with their parent, and leave Ctrl-C to it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import ProcessPoolExecutor


def stop(pool: ProcessPoolExecutor) -> None:
    """End the processes now: what they still compute is not wanted."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    if manager is not None:
        manager.join()  # else the interpreter may write to its pipe while it closes it


def ignore_interrupts() -> None:
    """A worker leaves Ctrl-C to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Ctrl-C is ignored inside, where this is the main thread; elsewhere signals cannot be set and do not arrive."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
