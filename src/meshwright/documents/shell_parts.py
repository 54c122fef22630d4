"""What words are made of while they are expanded, and the functions by which the rooms of expansion call each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from meshwright.documents.shell_values import Text


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a word: ``fields`` are several for ``$@``; quoted ones are not split,
    ``always`` ones make a word even when empty, ``bare`` ones are plain characters outside quotes."""

    fields: tuple[Text, ...]
    quoted: bool
    always: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """The word of ``${name:-word}``, whose own quotes still count."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expander:
    """The expansion of a stretch of a source, called with ``(source, state, start, end, ...)`` (``shell_expand``)."""

    parts: Callable[..., Iterable[Part]]
    scalar: Callable[..., Text]
    pattern: Callable[..., tuple[str, bool]]
    arithmetic: Callable[..., Text]
