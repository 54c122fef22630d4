"""Conditions of bash: ``[ ... ]``, ``test``, ``[[ ... ]]``. True, False, or None where it cannot be decided."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.shell_expand import pattern, scalar
from meshwright.documents.shell_parameters import glob_match
from meshwright.documents.shell_words import NAME, test_words

if TYPE_CHECKING:
    from meshwright.documents.shell_values import Source, State, Text

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


class _Condition(Struct):
    """Tests joined by an "or" that binds weaker than the "and": ``-o`` and ``-a`` of ``[``, ``||`` and ``&&`` of ``[[``."""

    plain: Sequence[str]
    weak: str
    strong: str
    primary: Callable[[_Condition, int], Verdict]
    """One test at ``position``, which it moves behind itself; gets the depth of brackets."""
    state: State
    position: int = 0

    def all_of_it(self, depth: int = 0) -> Verdict:
        """The whole of what stands from ``position`` to a closing bracket, or to the end."""
        value = self._joined(depth)
        while self._takes(self.weak):
            value = either(value, self._joined(depth))
        return value

    def _joined(self, depth: int) -> Verdict:
        value = self.one(depth)
        while self._takes(self.strong):
            value = both(value, self.one(depth))
        return value

    def one(self, depth: int) -> Verdict:
        """One test, bounded in depth."""
        if depth > MAX_DEPTH:
            raise self.state.bounds.refusal("nested conditions")
        return self.primary(self, depth)

    def negation(self, depth: int) -> Verdict:
        """``! test``."""
        self.position += 1
        return negated(self.one(depth + 1))

    def bracket(self, depth: int) -> Verdict:
        """``( tests )``."""
        self.position += 1
        value = self.all_of_it(depth + 1)
        self.position += 1
        return value

    @property
    def left(self) -> int:
        """Words that are not read yet."""
        return len(self.plain) - self.position

    def _takes(self, word: str) -> bool:
        """Step over a word, if it stands here."""
        found = self.left > 0 and self.plain[self.position] == word
        self.position += found
        return found


def test_command(state: State, words: list[Text]) -> Verdict:
    """``[`` and ``test`` with their expanded words, without the brackets."""

    def primary(here: _Condition, depth: int) -> Verdict:
        plain, at, left = here.plain, here.position, here.left
        if left <= 0:
            return False
        binary = left >= 3 and plain[at + 1] in ("=", "==", "!=", "<", ">", *_NUMERIC, "-nt", "-ot", "-ef")
        if plain[at] == "!" and left > 1 and not binary:
            return here.negation(depth)
        if plain[at] == "(" and left > 2 and not binary:
            return here.bracket(depth)
        if binary:
            here.position += 3
            return _compared(words[at], plain[at + 1], words[at + 2])
        if plain[at] in _UNARY and left >= 2:
            here.position += 2
            return _unary(state, plain[at], words[at + 1])
        here.position += 1
        return _unary(state, "-n", words[at])

    condition = _Condition([word.plain if word.known else "" for word in words], "-o", "-a", primary, state)
    verdict = condition.all_of_it()
    # A variable that is empty without quotes leaves "[ = x ]", which bash calls an error: false.
    return verdict if condition.left <= 0 else False


def double_bracket(source: Source, state: State, start: int, end: int) -> Verdict:
    """``[[ ... ]]`` whose inside stands at ``start`` to ``end``."""
    tokens = test_words(source.plain, start, end)

    def primary(here: _Condition, depth: int) -> Verdict:
        plain, at, left = here.plain, here.position, here.left
        if left <= 0:
            return None
        if plain[at] == "!":
            return here.negation(depth)
        if plain[at] == "(":
            return here.bracket(depth)
        if plain[at] in _UNARY and left >= 2:
            here.position += 2
            return _unary(state, plain[at], scalar(source, state, *tokens[at + 1]))
        value = scalar(source, state, *tokens[at])
        operator = plain[at + 1] if left >= 2 else ""
        if operator in ("&&", "||", ")", "") or left <= 2:
            here.position += 1
            return _unary(state, "-n", value)
        here.position += 3
        return _matched(source, state, value, operator, tokens[at + 2])

    condition = _Condition([source.plain[a:b] for a, b in tokens], "||", "&&", primary, state)
    verdict = condition.all_of_it()
    return verdict if condition.left <= 0 else None


def _matched(source: Source, state: State, left: Text, operator: str, right: tuple[int, int]) -> Verdict:
    """A comparison of ``[[``: its right side is a pattern for ``==`` and ``!=``, an expression for ``=~``."""
    if operator in ("=", "==", "!="):
        glob, known = pattern(source, state, *right)
        if not known or not left.known:
            return None
        return glob_match(glob, left.plain) if operator != "!=" else negated(glob_match(glob, left.plain))
    if operator == "=~":
        return _regex(left, scalar(source, state, *right))
    return _compared(left, operator, scalar(source, state, *right))


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
