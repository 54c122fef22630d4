"""Conditions of bash: ``[ ... ]``, ``test``, ``[[ ... ]]``. True, False, or None where it cannot be decided."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.documents.shell_expand import pattern, scalar
from meshwright.frameworks.documents.shell_parameters import glob_match
from meshwright.frameworks.documents.shell_words import NAME, test_words

if TYPE_CHECKING:
    from meshwright.frameworks.documents.shell_values import Source, State, Text

Verdict = bool | None
_UNARY = frozenset(f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNOSR")
_NUMERIC = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
MAX_DEPTH = 25


def both(left: Verdict, right: Verdict) -> Verdict:
    """``&&`` of three values."""
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: Verdict, right: Verdict) -> Verdict:
    """``||`` of three values."""
    return negated(both(negated(left), negated(right)))


def negated(value: Verdict) -> Verdict:
    """``!`` of three values."""
    return None if value is None else not value


def _never_set(state: State, text: Text) -> bool:
    """Whether the text is nothing but variables that the script has not set: empty, as ``${X:-default}`` takes them."""
    names = [piece.unknown for piece in text.pieces if piece.text]
    return bool(names) and all(name and NAME.fullmatch(name) and name not in state.variables for name in names)


def _integer(text: str) -> int | None:
    plain = text.strip()
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    try:
        return sign * int(digits) if digits.isdigit() and len(digits) < 20 else None
    except ValueError:
        return None


def _unary(state: State, operator: str, operand: Text) -> Verdict:
    if operator in ("-n", "-z"):
        if operand.known:
            return bool(operand.plain) == (operator == "-n")
        if _never_set(state, operand):
            return operator == "-z"
        return operator == "-n" if any(piece.text for piece in operand.pieces if not piece.unknown) else None
    if operator == "-v" and operand.known:
        return operand.plain in state.variables
    return None


def _compared(left: Text, operator: str, right: Text) -> Verdict:
    if not left.known or not right.known:
        return None
    if operator in _NUMERIC:
        a, b = _integer(left.plain), _integer(right.plain)
        if a is None or b is None:
            return False
        return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[operator]
    if operator in ("=", "=="):
        return left.plain == right.plain
    if operator == "!=":
        return left.plain != right.plain
    if operator in ("<", ">"):
        return (left.plain < right.plain) == (operator == "<") and left.plain != right.plain
    return None


def test_command(state: State, words: list[Text]) -> Verdict:
    """``[`` and ``test`` with their expanded words, without the brackets."""
    position = 0
    plain = [word.plain if word.known else "" for word in words]

    def disjunction(depth: int) -> Verdict:
        nonlocal position
        value = conjunction(depth)
        while position < len(words) and plain[position] == "-o":
            position += 1
            value = either(value, conjunction(depth))
        return value

    def conjunction(depth: int) -> Verdict:
        nonlocal position
        value = primary(depth)
        while position < len(words) and plain[position] == "-a":
            position += 1
            value = both(value, primary(depth))
        return value

    def primary(depth: int) -> Verdict:
        nonlocal position
        left = len(words) - position
        if left <= 0:
            return False
        if depth > MAX_DEPTH:
            raise state.bounds.refusal("nested conditions")
        here = plain[position]
        binary = left >= 3 and plain[position + 1] in ("=", "==", "!=", "<", ">", *_NUMERIC, "-nt", "-ot", "-ef")
        if here == "!" and left > 1 and not binary:
            position += 1
            return negated(primary(depth + 1))
        if here == "(" and left > 2 and not binary:
            position += 1
            value = disjunction(depth + 1)
            position += 1
            return value
        if binary:
            position += 3
            return _compared(words[position - 3], plain[position - 2], words[position - 1])
        if here in _UNARY and left >= 2:
            position += 2
            return _unary(state, here, words[position - 1])
        position += 1
        return _unary(state, "-n", words[position - 1])

    verdict = disjunction(0)
    # A variable that is empty without quotes leaves "[ = x ]", which bash calls an error: false.
    return verdict if position >= len(words) else False


def double_bracket(source: Source, state: State, start: int, end: int) -> Verdict:
    """``[[ ... ]]`` whose inside stands at ``start`` to ``end``."""
    tokens = test_words(source.plain, start, end)
    plain = [source.plain[a:b] for a, b in tokens]
    position = 0

    def disjunction(depth: int) -> Verdict:
        nonlocal position
        value = conjunction(depth)
        while position < len(tokens) and plain[position] == "||":
            position += 1
            value = either(value, conjunction(depth))
        return value

    def conjunction(depth: int) -> Verdict:
        nonlocal position
        value = primary(depth)
        while position < len(tokens) and plain[position] == "&&":
            position += 1
            value = both(value, primary(depth))
        return value

    def primary(depth: int) -> Verdict:
        nonlocal position
        if position >= len(tokens):
            return None
        if depth > MAX_DEPTH:
            raise state.bounds.refusal("nested conditions")
        here = plain[position]
        if here == "!":
            position += 1
            return negated(primary(depth + 1))
        if here == "(":
            position += 1
            value = disjunction(depth + 1)
            position += 1
            return value
        if here in _UNARY and position + 1 < len(tokens):
            position += 2
            return _unary(state, here, scalar(source, state, *tokens[position - 1]))
        left = scalar(source, state, *tokens[position])
        operator = plain[position + 1] if position + 1 < len(tokens) else ""
        if operator in ("&&", "||", ")", "") or position + 2 >= len(tokens):
            position += 1
            return _unary(state, "-n", left)
        right = tokens[position + 2]
        position += 3
        if operator in ("=", "==", "!="):
            glob, known = pattern(source, state, *right)
            if not known or not left.known:
                return None
            return glob_match(glob, left.plain) if operator != "!=" else negated(glob_match(glob, left.plain))
        if operator == "=~":
            return _regex(left, scalar(source, state, *right))
        return _compared(left, operator, scalar(source, state, *right))

    verdict = disjunction(0)
    return verdict if position >= len(tokens) else None


def _regex(left: Text, right: Text) -> Verdict:
    """Only plain expressions: anything that could take long to match stays undecided."""
    if not left.known or not right.known or len(left.plain) > 200:
        return None
    simple = re.fullmatch(r"\^?(?:[\w ,/=:-]|\[[\w-]+\]|\\\.)*(?:\[[\w-]+\]|\.)?[+*]?\$?", right.plain, re.ASCII)
    if not simple or "[:" in right.plain:
        return None
    try:
        return re.search(right.plain, left.plain) is not None
    except re.error:
        return None
