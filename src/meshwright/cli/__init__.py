"""The command line: parse, call, print. Exit status 0: done; 1: the answer is no; 2: the input is wrong.

Whatever happens, standard error gets one clear line per fault and never a traceback (MESHWRIGHT_DEBUG=1 shows it).
Nothing heavy is imported before a verb runs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from meshwright.errors import MeshwrightError, Message, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, NO, BAD_INPUT = 0, 1, 2
INTERNAL, INTERRUPTED, BROKEN_PIPE = 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        status = _guarded(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as in ``meshwright plan ... | head``, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status


def _guarded(arguments: list[str]) -> int:
    """Run, and turn every way to fail into lines and a status."""
    from meshwright.cli.app import run
    from meshwright.outputs import recover_named

    try:
        for message in recover_named(arguments):
            print(f"note: {message}", file=sys.stderr)
        return run(arguments)
    except MeshwrightError as error:
        return complain(error.messages, NO if isinstance(error, NoAnswerError) else BAD_INPUT)
    except KeyboardInterrupt:
        return complain([Message("cli.interrupted", "interrupted", {})], INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        values = {"kind": type(error).__name__, "reason": str(error) or "no reason given"}
        template = "internal error: {kind}: {reason}; please report it (MESHWRIGHT_DEBUG=1 shows where)"
        return complain([Message("cli.internal", template, values)], INTERNAL)


def complain(messages: Sequence[Message], status: int) -> int:
    """One line per message on standard error; the status is handed through."""
    for message in messages:
        print(f"error: {message}", file=sys.stderr)
    return status
