"""The command line: parse, call, print. Exit status 0: done; 1: the answer is no; 2: the input is wrong.

Whatever happens, standard error gets one clear line per fault and never a traceback (MESHWRIGHT_DEBUG=1 shows it).
Nothing heavy is imported before a verb runs, and nothing at all before signals are heard.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # what importing ``typing`` for it would cost is spent before an interrupt is heard
if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.errors import Message

DONE, NO, BAD_INPUT = 0, 1, 2
SELDOM = 1_000_000
"""Objects more than before at which garbage is looked for: modules and most values of a verb live until it ends."""
INTERNAL, INTERRUPTED, BROKEN_PIPE = 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; None: that of this process, which ends behind it."""
    try:
        from meshwright.cli.ending import Signals, complain, leave, open_streams
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return INTERRUPTED
    whole = arguments is None
    with Signals(for_good=whole) as signals:
        try:
            if whole and not open_streams():
                return complain(["standard output is closed"], BAD_INPUT)
            status = _printed(list(sys.argv[1:] if arguments is None else arguments))
        except (KeyboardInterrupt, SystemExit) as ended:
            if isinstance(ended, SystemExit) and not signals.number:  # so rich ends where the reader of standard output has gone
                return BROKEN_PIPE
            status = complain([signals.line], signals.status)
    if whole and signals.number:
        leave(status)  # a solver's thread may not have ended yet
    if whole:
        _keep_all()
    return status


def _keep_all() -> None:
    """Values live until the process ends, which then looks for no garbage among them: that took a seventh of a plan."""
    import gc

    gc.freeze()


def _printed(arguments: list[str]) -> int:
    """Run, and see that everything said on standard output has got there."""
    from meshwright.cli.ending import OUTPUT, complain, let_go

    try:
        status = _guarded(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as in ``meshwright plan ... | head``, has gone
        let_go(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        if error.filename not in (None, OUTPUT):
            raise
        let_go(sys.stdout)
        return complain([f"{OUTPUT} cannot be written: {error.strerror}"], BAD_INPUT)
    return status


def _guarded(arguments: list[str]) -> int:
    """Run, and turn every way to fail but that of standard output into lines and a status."""
    import gc
    import os

    gc.set_threshold(SELDOM)
    if arguments in ([], ["--help"]):
        from meshwright.cli.overview import columns_here, overview

        sys.stdout.write(overview(columns_here()))
        return DONE
    from meshwright.cli.ending import OUTPUT, complain
    from meshwright.errors import MeshwrightError, Message, NoAnswerError, lines

    try:
        from meshwright.cli.app import run
        from meshwright.outputs import recover_named

        for message in recover_named(arguments):
            from meshwright.cli.output import warn

            warn(f"note: {message}")
        return run(arguments)
    except MeshwrightError as error:
        return complain(lines(error.messages), NO if isinstance(error, NoAnswerError) else BAD_INPUT)
    except Exception as error:
        if (isinstance(error, OSError) and error.filename == OUTPUT) or os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        known = _of_the_surroundings(error)
        if known is not None:
            return complain([known], BAD_INPUT)
        values = {"kind": type(error).__name__, "reason": str(error) or "no reason given"}
        template = "internal error: {kind}: {reason}; please report it (MESHWRIGHT_DEBUG=1 shows where)"
        return complain([Message("cli.internal", template, values)], INTERNAL)


def _of_the_surroundings(error: Exception) -> Message | None:
    """What is said where the machine or the size of the input is at fault; None where it can only be the program."""
    from meshwright.errors import Message

    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, OSError):
        return Message("cli.system", "the system says: {reason}", {"reason": reason}, str(error.filename or ""))
    if isinstance(error, RuntimeError) and reason.startswith("Symlink loop"):  # Path.resolve before Python 3.13
        return Message("cli.loop", "a link leads back to itself", {}, reason.partition(" from ")[2].strip("'"))
    if isinstance(error, MemoryError):
        return Message("cli.memory", "more memory is needed than there is{reason}", {"reason": reason and f": {reason}"})
    if isinstance(error, RecursionError):
        return Message("cli.depth", "something in the input is nested too deeply", {})
    if isinstance(error, UnicodeError):
        return Message("cli.letters", "a name or a text holds characters that cannot be written: {reason}", {"reason": reason})
    return None
