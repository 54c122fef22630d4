"""One file of Python, asked by every rule after one walk."""

from __future__ import annotations

import ast
import gc
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from meshwright.errors import Message
from meshwright.lint.found import Found
from meshwright.lint.python import autograd, formulas, tensors, training, waits
from meshwright.lint.python.calls import calls
from meshwright.lint.python.module import Module
from meshwright.lint.rule import rules
from meshwright.readers.safe import refuse_long_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.lint.python.calls import Hit

RULES: tuple[Callable[[Module], Iterator[Hit]], ...] = (
    calls,
    *waits.RULES,
    *formulas.RULES,
    *tensors.RULES,
    *training.RULES,
    *autograd.RULES,
)
_OLD = re.compile(
    r"^[ \t]*(?:print[ \t]+[^\s(=]|exec[ \t]+[\"']|raise[ \t]+\w+,|except[ \t]+\w+[ \t]*,[ \t]*\w+[ \t]*:)", re.MULTILINE
)
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_LONGEST_CODE = 60


def python_findings(text: str, path: str) -> Iterator[Found]:
    """What every rule finds in a file's text; a file that is no Python is one finding.

    Errors:  ``InputError`` for a number of hundreds of digits.
    """
    refuse_long_numbers(text, path)
    try:
        with warnings.catch_warnings(), _uncollected():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield _unreadable(text, path, error)
        return
    try:
        with _uncollected():
            found = list(findings_of(Module(tree, text, path)))
        yield from found
    except RecursionError as error:  # an expression that nests too deeply to be compared
        yield _unreadable(text, path, error)


def findings_of(module: Module) -> Iterator[Found]:
    """What every rule finds in a parsed file; a place is found once by each."""
    seen: set[tuple[str, int, int]] = set()
    table = rules()
    for ask in RULES:
        for id, node, code, edits in ask(module):
            line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
            if (id, line, column) in seen:
                continue
            seen.add((id, line, column))
            rule = table[id]
            short = code if len(code) <= _LONGEST_CODE else f"{code[:_LONGEST_CODE]}..."
            yield Found(
                id=id,
                severity=rule.severity,
                message=Message(id, rule.says, {"code": short}),
                file=module.path,
                line=line,
                column=_character(module, line, column),
                source=rule.source,
                edits=edits,
            )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for cycles meanwhile: a tree has a million objects and no cycle, and each look walks them all."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _character(module: Module, line: int, column: int) -> int:
    """The column in characters, from 1, of one in bytes, from 0."""
    start = module.lines[line - 1]
    return len(module.data[start : start + column].decode("utf-8", "replace")) + 1


def _unreadable(text: str, path: str, error: BaseException) -> Found:
    """One finding for a file that is no Python of today."""
    line = getattr(error, "lineno", None) or 1
    id = "read.template" if _TEMPLATE.search(text) else "read.python-2" if _OLD.search(text) else "read.python"
    if str(error).startswith("f-string"):
        id = "read.file"  # what newer releases of Python take
    rule = rules()[id]
    reason = " ".join(str(getattr(error, "msg", None) or "nested too deeply").split())
    return Found(
        id=id,
        severity=rule.severity,
        message=Message(id, rule.says, {"code": reason}),
        file=path,
        line=line,
        column=max(1, getattr(error, "offset", None) or 1),
        source=rule.source,
    )
