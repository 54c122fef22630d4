"""Where the words of bash begin and end, by bash's own rules of quoting; nothing is expanded here.

All functions take the program text and an index, and never fail: what is not closed ends with the text.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

MAX_DEPTH = 40
BLANK = " \t"
_REDIRECTION = re.compile(r"(?:\d{0,4}|\{\w+\}|&)(?:<<<|<<-|<<|<>|>>|>\||>&|<&|<|>)", re.ASCII)
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w./: -]{0,80}>", re.ASCII)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?=)", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Token(Struct, frozen=True):
    """A word, a placeholder ``<like this>``, or a redirection with its target."""

    kind: Literal["word", "placeholder", "redirection"]
    start: int
    end: int
    operator: str = ""
    target: int = 0


def after_single(s: str, i: int) -> int:
    """Behind a ``'...'`` that begins at ``i``."""
    end = s.find("'", i + 1)
    return len(s) if end < 0 else end + 1


def after_ansi(s: str, i: int) -> int:
    """Behind a ``$'...'`` whose quote stands at ``i``."""
    i += 1
    while i < len(s) and s[i] != "'":
        i += 2 if s[i] == "\\" else 1
    return min(i + 1, len(s))


def after_backquote(s: str, i: int) -> int:
    """Behind a command substitution in backquotes."""
    i += 1
    while i < len(s) and s[i] != "`":
        i += 2 if s[i] == "\\" else 1
    return min(i + 1, len(s))


def after_double(s: str, i: int, depth: int = 0) -> int:
    """Behind a ``"..."`` that begins at ``i``."""
    i += 1
    while i < len(s):
        c = s[i]
        if c == '"':
            return i + 1
        if c == "\\":
            i += 2
        elif c == "$":
            i = after_dollar(s, i, depth + 1)
        elif c == "`":
            i = after_backquote(s, i)
        else:
            i += 1
    return len(s)


def after_bracket(s: str, i: int, close: str, depth: int = 0) -> int:
    """Behind the ``close`` that matches the bracket at ``i``."""
    opening = s[i]
    if depth > MAX_DEPTH:
        return len(s)
    level, i = 1, i + 1
    while i < len(s):
        c = s[i]
        if c == "\\":
            i += 2
        elif c == "'":
            i = after_single(s, i)
        elif c == '"':
            i = after_double(s, i, depth + 1)
        elif c == "`":
            i = after_backquote(s, i)
        elif c == "$" and s[i + 1 : i + 2] in ("{", "(", "'"):
            i = after_dollar(s, i, depth + 1)
        elif c == close:
            level, i = level - 1, i + 1
            if not level:
                return i
        elif c == "#" and close == ")" and s[i - 1] in " \t\n;(":
            newline = s.find("\n", i)
            i = len(s) if newline < 0 else newline
        else:
            level += (c == opening) and opening == "("
            i += 1
    return len(s)


def after_dollar(s: str, i: int, depth: int = 0) -> int:
    """Behind the expansion that begins with the ``$`` at ``i``; ``i + 1`` where it is only a dollar."""
    if depth > MAX_DEPTH:
        return len(s)
    c = s[i + 1 : i + 2]
    if c == "(":
        return after_bracket(s, i + 1, ")", depth + 1)
    if c == "{":
        return after_bracket(s, i + 1, "}", depth + 1)
    if c == "[":
        return after_bracket(s, i + 1, "]", depth + 1)
    if c == "'":
        return after_ansi(s, i + 1)
    if c and c in "@*#?$!-0123456789":
        return i + 2
    name = NAME.match(s, i + 1)
    return name.end() if name else i + 1


def after_word(s: str, i: int, end: int, stop: str = " \t\n;&|<>()") -> int:
    """Behind the word that begins at ``i``."""
    while i < end:
        c = s[i]
        if c == "\\":
            i += 2
        elif c == "'":
            i = after_single(s, i)
        elif c == '"':
            i = after_double(s, i)
        elif c == "`":
            i = after_backquote(s, i)
        elif c == "$":
            i = after_dollar(s, i)
        elif c in stop:
            break
        else:
            i += 1
    return min(i, end)


def after_space(s: str, i: int, end: int, blank: str = BLANK) -> int:
    """Behind blanks and continued line ends."""
    while i < end:
        if s[i] in blank:
            i += 1
        elif s.startswith("\\\n", i):
            i += 2
        else:
            break
    return i


def _after_command_word(s: str, i: int, end: int) -> int:
    """Behind a word of a command; the value of an assignment may be an array."""
    assigned = ASSIGNMENT.match(s, i, end)
    if assigned and s.startswith("(", assigned.end()):
        return min(end, after_bracket(s, assigned.end(), ")"))
    return after_word(s, i, end)


def command_tokens(s: str, start: int, end: int) -> tuple[list[Token], int]:
    """Words and redirections of the simple command at ``start``, and where it ends."""
    tokens: list[Token] = []
    i = start
    while True:
        i = after_space(s, i, end)
        if i >= end or s[i] in "\n;" or (s[i] == "#"):
            return tokens, i
        placeholder = _PLACEHOLDER.match(s, i, end)
        if placeholder:
            tokens.append(Token("placeholder", i, placeholder.end()))
            i = placeholder.end()
            continue
        redirection = _REDIRECTION.match(s, i, end)
        operator = redirection.group().lstrip("0123456789") if redirection else ""
        if redirection and not (operator in ("<", ">") and s.startswith("(", redirection.end())):  # <(...) is a word
            target = after_space(s, redirection.end(), end)
            after = after_word(s, target, end)
            tokens.append(Token("redirection", i, after, operator, target))
            i = max(after, redirection.end())
            continue
        if s[i] in "<>" and s.startswith("(", i + 1):
            after = min(end, after_bracket(s, i + 1, ")"))
        elif s[i] in "&|()":
            return tokens, i
        else:
            after = _after_command_word(s, i, end)
        tokens.append(Token("word", i, after))
        i = after


def list_words(s: str, start: int, end: int) -> list[tuple[int, int]]:
    """Words of an array between its brackets or of a ``for`` list: line ends and comments separate too."""
    words: list[tuple[int, int]] = []
    i = start
    while True:
        i = after_space(s, i, end, " \t\n")
        if i >= end:
            return words
        if s[i] == "#":
            newline = s.find("\n", i, end)
            i = end if newline < 0 else newline
            continue
        after = max(i + 1, after_word(s, i, end, " \t\n"))
        words.append((i, after))
        i = after


def test_words(s: str, start: int, end: int) -> list[tuple[int, int]]:
    """Words and operators between ``[[`` and ``]]``."""
    words: list[tuple[int, int]] = []
    i = start
    while True:
        i = after_space(s, i, end, " \t\n")
        if i >= end:
            return words
        if s[i : i + 2] in ("&&", "||"):
            after = i + 2
        else:  # a regular expression may hold a bar
            bar = "" if words and s[slice(*words[-1])] == "=~" else "|"
            after = max(i + 1, i if s[i] in "()<>" else after_word(s, i, end, " \t\n()&<>" + bar))
        words.append((i, after))
        i = after
