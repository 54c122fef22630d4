"""How scripts are called: arguments and environment, which stand in front of a script on its own first line."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from meshwright.documents.quoting import command, export
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.frameworks import File

_SHELL = {"No closing quotation": "a quote is not closed", "No escaped character": "nothing follows the last backslash"}
"""What the shell's parser says -> what it means."""
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|[1-9]):?[-=]\"?(\d{1,9})\"?\}")
"""A variable of the environment, or an argument, and the number that a script takes where nobody says it."""


def positional(words: str) -> str:
    """``set --`` for the arguments of a script, on the script's own first line so that lines keep their numbers.

    Words of the form ``NAME=VALUE`` in front of them are its environment, as on a command line.
    """
    try:
        called = shlex.split(words)
        head = list(takewhile(lambda word: re.match(r"[A-Za-z_]\w*=", word), called))
        exports = "".join(f"{export(name, value)}; " for name, _, value in (word.partition("=") for word in head))
        rest = called[len(head) :]
        return exports + (f"set -- {command(*rest)}; " if rest or not head else "")
    except ValueError as error:
        raise fault("import.arguments", "{words!r} are no words of a shell: {reason}", path="--arguments",
                    words=words, reason=_SHELL.get(str(error), "they cannot be taken apart")) from None


def called_otherwise(files: Sequence[File]) -> list[File]:
    """The files as they run where whoever calls them doubles each number that scripts have a default of (``${NNODES:-1}``)."""
    from meshwright.documents.opening import is_script

    def called(file: File) -> File:
        said = {name: str(2 * int(number) or 1) for name, number in _DEFAULT.findall(file.text)} if is_script(file.path) else {}
        arguments = [said.pop(str(place), "") for place in range(1, 10)]
        head = "".join(f"{export(name, value)}; " for name, value in sorted(said.items()))
        return replace(file, text=head + (f"set -- {command(*arguments)}; " if any(arguments) else "") + file.text)

    return list(map(called, files))
