"""Files looked at, one after the other: what each rule finds, and what the files would be once mended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshwright.errors import InputError, Message
from meshwright.lint.files import files_of, look_of
from meshwright.lint.found import Found
from meshwright.lint.rule import rules
from meshwright.lint.suppressed import names, unsuppressed
from meshwright.readers.safe import read_text

if TYPE_CHECKING:
    from meshwright.frameworks.variables import Purpose
    from meshwright.lint.found import Edit

_ROUNDS = 10
"""A mended file is looked at again, for what stood within what was mended; no file takes as many."""
ORDER = ("error", "warning", "advice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A file whose findings were mended where that is safe."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """What was found, file by file, and what mending would change."""

    findings: tuple[Found, ...]
    mended: tuple[Mended, ...] = ()
    files: int = 0
    lines: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing of it is an error."""
        return all(each.severity != "error" for each in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which findings are asked for."""

    purpose: Purpose | None = None
    select: Collection[str] = ()
    """Rules or groups of rules; none: all."""

    def takes(self, each: Found) -> bool:
        """Whether a finding is among them."""
        rule = rules().get(each.id)
        if self.select:
            return any(names(each.id, word) for word in self.select)
        if rule is None:
            return True
        return rule.default if self.purpose is None else rule.purpose in (self.purpose, "both")


def lint(
    paths: Sequence[str],
    wanted: Wanted,
    *,
    mend: Literal["", "show", "write"] = "",
    progress: Callable[[float, float], None] | None = None,
) -> Linted:
    """Look at files and folders. ``mend``: also say what they would be;
    where it is to be written, without the findings that it mends.

    Errors:  ``InputError`` where a path is not there; what is wrong within a file is a finding of it.
    """
    found: list[Found] = []
    mended: list[Mended] = []
    every = list(files_of(list(paths)))
    lines = 0
    for number, (path, tests) in enumerate(every):
        if progress is not None:
            progress(number, len(every))
        try:
            text = read_text(path)
        except InputError as error:
            found += filter(wanted.takes, _unread(path, error))
            continue
        lines += text.count("\n")
        here = findings_of(text, path, wanted)
        if tests:
            found += (each for each in here if each.id.startswith("read."))
            continue
        if mend and any(each.edits for each in here):
            after = mended_text(text, path, wanted)
            if after != text:
                mended.append(Mended(path=path, before=text, after=after))
                here = findings_of(after, path, wanted) if mend == "write" else here
        found += here
    return Linted(findings=tuple(found), mended=tuple(mended), files=len(every), lines=lines)


def findings_of(text: str, path: str, wanted: Wanted) -> list[Found]:
    """The findings of one file that are asked for, in the order of their places."""
    look = look_of(Path(path))
    assert look is not None, "only files that are looked at come here"
    try:
        found = list(unsuppressed(look(text, path), text))
    except InputError as error:
        found = list(_unread(path, error))
    return sorted(filter(wanted.takes, found), key=lambda each: (each.cell, each.line, each.column, each.id))


def mended_text(text: str, path: str, wanted: Wanted) -> str:
    """A file after all safe edits, and after those that they laid open; everything else is as it was."""
    for _ in range(_ROUNDS):
        edits = [edit for each in findings_of(text, path, wanted) for edit in each.edits]
        after = edited(text, edits)
        if after == text:
            break
        text = after
    return text


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with bytes exchanged; of edits that overlap the first counts."""
    data = text.encode("utf-8", "surrogatepass")
    parts: list[bytes] = []
    end = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start >= end:
            parts += [data[end : edit.start], edit.text.encode("utf-8", "surrogatepass")]
            end = edit.end
    return b"".join((*parts, data[end:])).decode("utf-8", "surrogatepass")


def _unread(path: str, error: InputError) -> Iterator[Found]:
    """One finding for a file that is not in its own language, or cannot be read."""
    rule = rules()["read.file"]
    message = error.messages[0]
    line = message.values.get("line")
    yield Found(
        id=rule.id,
        severity=rule.severity,
        message=Message(rule.id, rule.says, {"code": message.words}),
        file=path,
        line=line if isinstance(line, int) and line > 0 else 1,
        source=rule.source,
    )
