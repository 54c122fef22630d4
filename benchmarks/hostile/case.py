"""One hostile case: what lies in its folder, the command line, and how it is run. As text: one line of a shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from enum import StrEnum

MAX_SHELL = 4000
"""Characters of a printed line; the rest of a case is found again by its number."""


class Stream(StrEnum):
    """Where standard output or standard error goes."""

    FILE = ""
    CLOSED = ">&-"
    FULL = ">/dev/full"
    GONE = "| true"
    """A pipe whose reader has gone."""
    TTY = "(terminal)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A drawn case. Paths are relative to its folder, which is also the working directory."""

    verb: str
    kind: str
    """The class of faults that it was drawn from."""
    setup: tuple[str, ...] = ()
    """Lines of bash that fill the folder."""
    arguments: tuple[str, ...]
    environment: dict[str, str | None] = field(default_factory=dict)
    """Variables set, or unset where None."""
    out: Stream = Stream.FILE
    err: Stream = Stream.FILE
    process: bool = False
    """A real process start (``python -m meshwright``), where a forked one would not show it."""
    privileged: bool = False
    """Runs with all of root's powers, where there are any."""
    signal: str = ""
    after_s: float = 0.0
    """A signal at this moment."""
    at_write: bool = False
    """The moment counts from the first change that the command makes in its folder, not from its start."""
    beside: tuple[str, ...] = ()
    """A second command line on the same folder, started this late: ``after_s``."""
    file_limit_kib: int | None = None
    """No file may grow beyond this (``ulimit -f``): a disk that is full in the middle of a file."""
    slow: bool = False
    """May take longer than other cases: a table of more than 5,000 rows."""
    may_change: tuple[str, ...] = ()
    """What was there before and may be changed: files, or folders with all in them."""
    whole: bool = False
    """The folder holds the old files or the new ones when it has ended; the next start may finish it after a kill."""

    @property
    def shell(self) -> str:
        """The case as one line that does it again."""
        words = [f"{name}={quoted(value)}" for name, value in self.environment.items() if value is not None]
        unset = [f"-u {name}" for name, value in self.environment.items() if value is None]
        if unset:
            words = ["env", *unset, *words]
        command = " ".join([*words, "meshwright", *map(quoted, self.arguments)])
        if self.signal:
            moment = f"'first write + {self.after_s:.4f}'" if self.at_write else f"{self.after_s:.2f}"
            command = f"timeout -s {self.signal} {moment} {command}"
        if self.beside:
            command = f"{command} & sleep {self.after_s:.2f}; meshwright {' '.join(map(quoted, self.beside))}; wait"
        command += f" {self.out.value}" if self.out in (Stream.CLOSED, Stream.FULL, Stream.GONE) else ""
        command += f" 2{self.err.value}" if self.err in (Stream.CLOSED, Stream.FULL) else ""
        command = command if self.file_limit_kib is None else f"(ulimit -f {self.file_limit_kib}; {command})"
        if Stream.TTY in (self.out, self.err):
            command = f"script -qc {shlex.quote(command)} /dev/null"
        line = "; ".join([*self.setup, command])
        return line if len(line) <= MAX_SHELL else f"{line[: MAX_SHELL // 2]} ... {line[-MAX_SHELL // 2 :]}"


def quoted(text: str) -> str:
    """A word of bash: plain quotes where the text is printable, ``$'...'`` where it is not."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escape(character) for character in text) + "'"


def _escape(character: str) -> str:
    """One character inside ``$'...'``; what is no valid Unicode goes byte by byte."""
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in encoded(character))


def encoded(text: str) -> bytes:
    """Text as bytes: what stands for a byte that is no UTF-8 becomes that byte, other lone surrogates their own three."""
    return text.encode("utf-8", "surrogatepass" if any(_is_surrogate(one) for one in text) else "surrogateescape")


def _is_surrogate(character: str) -> bool:
    """A lone surrogate that stands for no byte."""
    return "\ud800" <= character <= "\udfff" and not "\udc80" <= character <= "\udcff"


def write(path: str, content: str | bytes) -> str:
    """The line that writes a file with this content."""
    if isinstance(content, str):
        content = encoded(content)
    target = quoted(path if not path.startswith("-") else f"./{path}")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        octal = "".join(f"\\{byte:03o}" for byte in content)
        return f"printf '{octal}' > {target}"
    return f"printf %s {quoted(text)} > {target}"


def with_option(arguments: tuple[str, ...], option: str, value: str | None) -> tuple[str, ...]:
    """The command line with this option set to a value, replaced where it is there; None: a flag."""
    words = list(arguments)
    if option in words:
        place = words.index(option)
        del words[place : place + (1 if value is None else 2)]
    return (*words, option) if value is None else (*words, option, value)
