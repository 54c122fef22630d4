"""Notebooks: their code cells as one program; places are cells and lines in them."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.lint.python.run import python_findings
from meshwright.lint.scripts import script_findings
from meshwright.readers.safe import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.lint.found import Found

_MAGIC = re.compile(r"^([ \t]*)(?:[%!?].*|\w+[ \t]*=[ \t]*[%!].*|.*\?)$")
_TIMES = ("%%time", "%%timeit", "%%capture", "%%prun")
_SHELL = ("%%bash", "%%sh", "%%script")


def notebook_findings(text: str, path: str) -> Iterator[Found]:
    """What is found in the code cells of a notebook; a cell that is no Python is one finding, the others go on.

    Errors:  ``InputError`` where it is no notebook, or one that is cut off.
    """
    document = parse_json(text, where=path)
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise fault("lint.notebook", "no notebook: it has no list of cells", path=path)
    sources = [_source(each) for each in cells if isinstance(each, dict) and each.get("cell_type") == "code"]
    lines: list[str] = []
    homes: list[tuple[int, int]] = []
    for number, source in enumerate(sources, start=1):
        first = source.lstrip().partition("\n")[0].strip()
        if first.startswith(_SHELL):
            inner = source.replace(first, "#" + first[1:], 1)
            yield from (replace(each, cell=number, edits=()) for each in script_findings(inner, path))
            continue
        if first.startswith("%%") and not first.startswith(_TIMES):
            continue
        plain = [_MAGIC.sub(r"\1pass", line) for line in source.splitlines()]
        if not _parses("\n".join(plain)):
            yield from (replace(each, cell=number, edits=()) for each in python_findings("\n".join(plain), path))
            continue
        lines += plain
        homes += [(number, line) for line in range(1, len(plain) + 1)]
    for each in python_findings("\n".join(lines) + "\n", path):
        cell, line = homes[min(each.line, len(homes)) - 1] if homes else (1, 1)
        yield replace(each, cell=cell, line=line, edits=())


def _source(cell: dict[str, object]) -> str:
    """The text of a cell: one text, or lines."""
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _parses(text: str) -> bool:
    """Whether a cell is Python by itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
