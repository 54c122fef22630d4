"""Text that remembers where it was written: what an expansion of bash gives, piece by piece.

Inside the shell reader all text is the UTF-8 bytes of the file read as Latin-1, so that an index is a byte offset; ``shown``
gives the words back as people wrote them.
"""

from __future__ import annotations

import bisect
import itertools
import re
from typing import TYPE_CHECKING

from msgspec import Struct, field

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_TEXT = 1_000_000
"""Bytes that one value may grow to."""
UNKNOWN_MARK = "\x1a"
"""Stands for a part that cannot be known where a text must be searched as a whole."""
MAX_FRAMES = 64


class Frame(Struct, frozen=True):
    """One place in the file that a piece came through (``${TP}``, ``"${ARGS[@]}"``), outermost first."""

    start: int
    end: int
    inner: Frame | None = None


class Piece(Struct, frozen=True):
    """Characters that stand together at byte ``at`` of the file (-1: nowhere), or one part that is not known."""

    text: str
    at: int = -1
    line: int = 0
    frames: Frame | None = None
    unknown: str = ""

    def cut(self, start: int, end: int) -> Piece:
        """Some of the characters."""
        if start <= 0 and end >= len(self.text):
            return self
        start = max(start, 0)
        if self.at < 0:
            return Piece(self.text[start:end], -1, self.line, self.frames, self.unknown)
        return Piece(self.text[start:end], self.at + start, self.line + self.text.count("\n", 0, start), self.frames, self.unknown)


class Text(Struct, frozen=True):
    """Pieces in order. Adding, cutting and splitting keep the origins."""

    pieces: tuple[Piece, ...] = ()

    @property
    def plain(self) -> str:
        """All characters; an unknown part is ``UNKNOWN_MARK``."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def known(self) -> bool:
        """Whether every part is known."""
        return not any(piece.unknown for piece in self.pieces)

    @property
    def unknowns(self) -> tuple[str, ...]:
        """Names of what is not known."""
        return tuple(dict.fromkeys(piece.unknown for piece in self.pieces if piece.unknown))

    @property
    def line(self) -> int:
        """Where it is written; 0 where that is nowhere."""
        return next((piece.line for piece in self.pieces if piece.line), 0)

    def __add__(self, other: Text) -> Text:
        return Text(self.pieces + other.pieces) if other.pieces else self

    def cut(self, start: int, end: int) -> Text:
        """Characters ``start`` to ``end`` of ``plain``."""
        result, offset = [], 0
        for piece in self.pieces:
            after = offset + len(piece.text)
            if after > start and offset < end:
                result.append(piece.cut(start - offset, end - offset))
            offset = after
            if offset >= end:
                break
        return Text(tuple(result))

    def span(self) -> tuple[int, int] | None:
        """The byte range of the file that holds exactly this text, where there is one."""
        pieces = [piece for piece in self.pieces if piece.text]
        if not pieces or any(piece.at < 0 or piece.unknown for piece in pieces):
            return None
        for before, after in itertools.pairwise(pieces):
            if before.at + len(before.text) != after.at:
                return None
        return pieces[0].at, pieces[-1].at + len(pieces[-1].text)

    def through(self, start: int, end: int) -> Text:
        """The same, having come through one more place of the file."""
        return Text(tuple(Piece(p.text, p.at, p.line, Frame(start, end, p.frames), p.unknown) for p in self.pieces))

    def frames(self) -> list[tuple[int, int]]:
        """Places that every piece came through, outermost first."""
        common: list[tuple[int, int]] | None = None
        for piece in self.pieces:
            ranges: list[tuple[int, int]] = []
            frame = piece.frames
            while frame is not None and len(ranges) < MAX_FRAMES:
                ranges.append((frame.start, frame.end))
                frame = frame.inner
            common = ranges if common is None else [each for each in common if each in ranges]
        return common or []


def literal(text: str, line: int = 0) -> Text:
    """Text that stands nowhere in the file: results of arithmetic, given variables."""
    return Text((Piece(text, -1, line),)) if text else Text((Piece("", -1, line),))


def unknown(name: str, line: int) -> Text:
    """A text that cannot be known, and why."""
    return Text((Piece(UNKNOWN_MARK, -1, line, None, name),))


def joined(texts: Iterable[Text], between: str = " ") -> Text:
    """Texts with a separator between them."""
    pieces: list[Piece] = []
    for index, text in enumerate(texts):
        if index and between:
            pieces.append(Piece(between))
        pieces.extend(text.pieces)
    return Text(tuple(pieces))


def shown(text: str) -> str:
    """Internal text as people wrote it."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def inner(text: str) -> str:
    """People's text as the reader holds it."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


Value = Text | list[Text] | dict[str, Text]


class Source:
    """Program text: the file, or a string that the script hands to ``eval`` or ``bash -c``, with its way back to the file."""

    __slots__ = ("_lines", "_offsets", "nested", "plain", "text")

    def __init__(self, text: Text, *, nested: bool) -> None:
        """``nested``: not the file itself."""
        self.text, self.nested = text, nested
        self.plain = text.plain
        self._offsets: list[int] = []
        offset = 0
        for piece in text.pieces:
            self._offsets.append(offset)
            offset += len(piece.text)
        self._lines = [] if nested else [match.end() for match in re.finditer("\n", self.plain)]

    def line(self, at: int) -> int:
        """The 1-based line of the file."""
        if not self.nested:
            return bisect.bisect_right(self._lines, at) + 1
        index = max(0, bisect.bisect_right(self._offsets, at) - 1)
        return self.text.pieces[index].cut(at - self._offsets[index], at - self._offsets[index] + 1).line if self.text.pieces else 0

    def literal(self, start: int, end: int) -> Text:
        """The characters as they stand."""
        if not self.nested:
            return Text((Piece(self.plain[start:end], start, self.line(start)),))
        first = max(0, bisect.bisect_right(self._offsets, start) - 1)
        last = bisect.bisect_left(self._offsets, end)
        pieces = []
        for offset, piece in zip(self._offsets[first:last], self.text.pieces[first:last], strict=True):
            part = piece.cut(start - offset, end - offset)
            if part.text:
                pieces.append(part)
        return Text(tuple(pieces))

    def through(self, text: Text, start: int, end: int) -> Text:
        """``text`` came from ``start`` to ``end`` of this source."""
        if self.nested:
            place = self.literal(start, end).span()
            return text if place is None else text.through(*place)
        return text.through(start, end)


class Bounds(Struct):
    """What is left of the work that reading one script may cost."""

    path: str
    steps: int = 20_000
    pieces: int = 100_000
    bytes: int = 50_000_000
    parsed: int = 4_000_000

    def step(self) -> None:
        """One statement or loop iteration."""
        self.steps -= 1
        if self.steps < 0:
            raise self.refusal("statements")

    def made(self, text: Text) -> Text:
        """``text``, paid for."""
        size = sum(len(piece.text) for piece in text.pieces)
        self.pieces -= len(text.pieces)
        self.bytes -= size
        if size > MAX_TEXT or self.bytes < 0 or self.pieces < 0:
            raise self.refusal("characters")
        return text

    def parse(self, size: int) -> None:
        """A string of ``size`` bytes is parsed as a program."""
        self.parsed -= size
        if self.parsed < 0:
            raise self.refusal("evaluated strings")

    def refusal(self, what: str) -> InputError:
        """The fault of a script that grows without bound."""
        return fault("shell.bound", "expands to more {what} than a launch script has", path=self.path, what=what)


class State(Struct):
    """Variables and what else a shell knows; copied for subshells and for branches that cannot be decided."""

    bounds: Bounds
    variables: dict[str, Value] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    positional: list[Text] = field(default_factory=list)
    arguments_given: bool = False
    remarks: dict[tuple[object, ...], Message] = field(default_factory=dict)

    def copy(self) -> State:
        """Another shell with the same variables; remarks and bounds stay common."""
        variables: dict[str, Value] = {
            name: value if isinstance(value, Text) else value.copy() for name, value in self.variables.items()
        }
        return State(
            self.bounds, variables, set(self.unset), set(self.exported),
            list(self.positional), self.arguments_given, self.remarks,
        )

    def adopt(self, other: State) -> None:
        """Take the variables of ``other``."""
        self.variables, self.unset, self.exported = other.variables, other.unset, other.exported
        self.positional = other.positional

    def assign(self, name: str, value: Value) -> None:
        """``name=value``."""
        self.variables[name] = value
        self.unset.discard(name)

    def remove(self, name: str) -> None:
        """``unset name``."""
        self.variables.pop(name, None)
        self.unset.add(name)

    def remark(self, id: str, template: str, **values: object) -> None:
        """Say something once."""
        key = (id, *sorted((name, str(value)) for name, value in values.items()))
        if key not in self.remarks and len(self.remarks) < 1000:
            self.remarks[key] = Message(id, template, values, self.bounds.path)


def same(left: Value | None, right: Value | None) -> bool:
    """Whether two values read the same and are wholly known, or are one value: parts of an array that no branch touched."""
    if left is right:
        return True
    if isinstance(left, Text) and isinstance(right, Text):
        return left.plain == right.plain and left.known and right.known
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return False


def merge(state: State, branches: Sequence[State], line: int) -> None:
    """After branches of which it is not known which ran: what is equal in all is kept, anything else is unknown."""
    names: dict[str, None] = {}
    for branch in branches:
        names.update(dict.fromkeys(branch.variables))
    last = branches[-1]
    variables: dict[str, Value] = {}
    unset = set(last.unset)
    for name in names:
        values = [branch.variables.get(name) for branch in branches]
        kept = values[-1]
        if kept is not None and all(value is kept or same(value, kept) for value in values):
            variables[name] = kept
        else:
            variables[name] = unknown(name, line)
            unset.discard(name)
            state.remark(
                "shell.undecided", "{name} depends on the condition in line {line}, which cannot be decided", name=name, line=line
            )
    exported = set().union(*(branch.exported for branch in branches))
    state.variables, state.unset, state.exported, state.positional = variables, unset, exported, last.positional
