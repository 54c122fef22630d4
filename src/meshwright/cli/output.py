"""What verbs print: a report or a JSON document on standard output, progress on a terminal's standard error."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from meshwright.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from meshwright.report.blocks import Told

WAIT_S, EVERY_S = 0.5, 0.1


def print_json(document: object) -> None:
    """One JSON document, out before anything else is done."""
    print(json.dumps(document, indent=2, allow_nan=False).replace("\x7f", r"\u007f"), flush=True)  # json escapes all but DEL


def print_lines(lines: Iterable[str]) -> None:
    """Lines of text, as paths; what nobody sees in them stands as an escape."""
    for line in lines:
        print(visible(line))


def warn(text: str) -> None:
    """One line on standard error; where that cannot be written, nothing."""
    with suppress(OSError, ValueError):
        print(visible(text), file=sys.stderr)


def print_report(parts: Iterable[Told]) -> None:
    """The parts of a report, in order, out before anything else is done."""
    from meshwright.report.console import show

    show(parts)
    sys.stdout.flush()


@contextmanager
def progress(noun: str) -> Iterator[Callable[[float, float], None] | None]:
    """A callback ``(done, total)`` that shows a line on a terminal after a moment; None where nobody watches."""
    with stages() as tick:
        yield None if tick is None else partial(tick, noun)


@contextmanager
def stages() -> Iterator[Callable[[str, float, float], None] | None]:
    """A callback ``(noun, done, total)`` for work of several stages; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    begun = last = time.monotonic()
    shown = False

    def tick(noun: str, done: float, total: float) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - begun >= WAIT_S and now - last >= EVERY_S:
            last, shown = now, True
            ratio = 100 * done / total if total else 0
            _beside(f"\r\033[K{done:,.0f} of {total:,.0f} {noun} ({ratio:.0f} %)")

    try:
        yield tick
    finally:
        if shown:
            _beside("\r\033[K")


def _beside(text: str) -> None:
    """Text on the terminal's standard error; a terminal that is gone changes nothing."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
