"""One variable of a launch's environment, set in its script: where it stands, or on a line of its own beside the others.

Each candidate is read again, and the first after which the launch has the same words and the same environment but for this
variable is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meshwright.documents.shell import parse_shell
from meshwright.errors import InputError, fault

if TYPE_CHECKING:
    from meshwright.documents.shell import ShellDocument, Word

_EXPORT = re.compile(r"^[ \t]*export[ \t]+[A-Za-z_]\w*=")
_HEADER = re.compile(r"^(?:[ \t]*(?:#.*)?$|[ \t]*set[ \t]+[-+])")
_State = tuple[tuple[tuple[str, bool], ...], Mapping[str, tuple[str, bool] | None]]


def set_variable(text: str, name: str, value: str, *, path: str = "") -> str:
    """The script with one exported variable of this value; every other byte is kept.

    Errors: ``InputError`` where the script launches nothing, or the variable cannot be set so that only it changes.
    """
    if "\r\n" in text:
        return set_variable(text.replace("\r\n", "\n"), name, value, path=path).replace("\n", "\r\n")
    before = parse_shell(text, path=path)
    words, environment = _state(before)
    wanted = (words, {**environment, name: (value, True)})
    for candidate in _candidates(text, before, name, value):
        try:
            if _state(parse_shell(candidate, path=path)) == wanted:
                return candidate
        except InputError:
            continue
    raise fault("shell.variable", "{name} cannot be set to {value} in the script without changing more: set it by hand",
                path=path, name=name, value=value)


def _state(document: ShellDocument) -> _State:
    """What the launch gets: its words, and its environment."""
    command = document.launch.command

    def plain(word: Word) -> tuple[str, bool]:
        return word.text, word.known

    environment = {name: None if word is None else plain(word) for name, word in command.environment.items()}
    return tuple(map(plain, command.words)), environment


def _candidates(text: str, document: ShellDocument, name: str, value: str) -> Iterator[str]:
    """The text with the variable set in different places, the likeliest first."""
    lines = text.splitlines(keepends=True)
    there = document.launch.command.environment.get(name)
    if there is not None and there.known:
        for index in dict.fromkeys((there.line - 1, *range(len(lines)))):
            if 0 <= index < len(lines) and there.text and there.text in lines[index] and name in lines[index]:
                yield _with(lines, index, lines[index].replace(there.text, value))
        for index, line in enumerate(lines):
            found = re.search(rf"\b{name}=(\"[^\"]*\"|'[^']*'|[^\s;\"']*)", line)
            if found:
                yield _with(lines, index, line[: found.start(1)] + value + line[found.end(1) :])
    added = f"export {name}={value}\n"
    exports = [index for index, line in enumerate(lines) if _EXPORT.match(line) and not line.rstrip().endswith("\\")]
    for index in reversed(exports):
        yield _below(lines, index, _indent(lines[index]) + added)
    launch = document.launch.command.line - 1
    if 0 <= launch < len(lines):
        yield _below(lines, launch - 1, _indent(lines[launch]) + added)
    first = next((index for index, line in enumerate(lines) if not _HEADER.match(line)), len(lines))
    yield _below(lines, first - 1, added)


def _with(lines: list[str], index: int, line: str) -> str:
    """The text with one line exchanged."""
    return "".join((*lines[:index], line, *lines[index + 1 :]))


def _below(lines: list[str], index: int, line: str) -> str:
    """The text with a line behind another (-1: in front of all)."""
    head = "".join(lines[: index + 1])
    return head + ("" if not head or head.endswith("\n") else "\n") + line + "".join(lines[index + 1 :])


def _indent(line: str) -> str:
    """Blanks in front of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]
