"""Worker processes that end with their parent, however that ends, and leave Ctrl-C to it."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def processes(jobs: int, begin: Callable[..., None] | None = None, *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh interpreters, each of which calls ``begin``; none is left behind, whatever they still compute."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(begin, arguments))
    try:
        yield pool
    finally:
        _stop(pool)


def submit(pool: ProcessPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """``pool.submit``; the first one starts the processes, which is not interrupted half way."""
    with held_signals():
        return pool.submit(function, *arguments)


@contextmanager
def held_signals() -> Iterator[None]:
    """Signals that end this process are heard behind it, and Ctrl-C never by processes that are started inside.

    Holds:   none is lost; elsewhere than in the main thread signals cannot be set and do not arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what a child inherits; threads of others may still take it
    before = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if heard:
            signal.raise_signal(heard[0])


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """What a worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the processes now: what they still compute is not wanted."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for each in workers:
        each.kill()
    for each in workers:
        each.join()
    if manager is not None:
        manager.join()  # else the interpreter may write to its pipe while it closes it
