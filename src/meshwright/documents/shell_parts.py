"""What words are made of while they are expanded, and the functions by which the rooms of expansion call each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from meshwright.documents.shell_values import Text


class Part(Struct, frozen=True):
    """A stretch of a word: ``fields`` are several for ``$@``; quoted ones are not split,
    ``always`` ones make a word even when empty, ``bare`` ones are plain characters outside quotes."""

    fields: tuple[Text, ...]
    quoted: bool
    always: bool = False
    bare: bool = False


class Operand(Struct, frozen=True):
    """The word of ``${name:-word}``, whose own quotes still count."""

    parts: tuple[Part, ...]


class Expander(Struct, frozen=True, kw_only=True):
    """The expansion of a stretch of a source, called with ``(source, state, start, end, ...)`` (``shell_expand``)."""

    parts: Callable[..., Iterable[Part]]
    scalar: Callable[..., Text]
    pattern: Callable[..., tuple[str, bool]]
    arithmetic: Callable[..., Text]
