"""Integer arithmetic of bash (``$((...))``, ``let``, ``((...))``): 64 bits, names without dollars, assignments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+#\w+|\d+)|([A-Za-z_]\w*)|(<<=|>>=|\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>!~&|^?:=(),]))",
    re.ASCII,
)
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)
MAX_DEPTH = 15


class UnknownNumberError(Exception):
    """The expression holds something that is not a known number; ``args[0]`` names it."""


def wrapped(value: int) -> int:
    """``value`` as a signed integer of 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise UnknownNumberError("a division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)),
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b), "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<<": lambda a, b: a << (b % 64), ">>": lambda a, b: a >> (b % 64),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": _quotient, "%": lambda a, b: a - _quotient(a, b) * b,
}


class _Reader:
    """Recursive descent over the tokens; ``get`` and ``put`` are the shell's variables."""

    def __init__(self, text: str, get: Callable[[str], int], put: Callable[[str, int], None]) -> None:
        self.tokens: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match or len(self.tokens) > 2000:
                raise UnknownNumberError(text[position : position + 40].strip())
            number, name, operator = match.groups()
            self.tokens.append(("number", number) if number else ("name", name) if name else ("operator", operator))
            position = match.end()
        self.at, self.depth, self.get, self.put = 0, 0, get, put

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) and self.tokens[self.at][0] == "operator" else ""

    def accept(self, *operators: str) -> str:
        found = self.peek()
        if found and found in operators:
            self.at += 1
            return found
        return ""

    def comma(self) -> int:
        value = self.assignment()
        while self.accept(","):
            value = self.assignment()
        return value

    def assignment(self) -> int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnknownNumberError("an expression nested too deeply")
        try:
            if self.at + 1 < len(self.tokens) and self.tokens[self.at][0] == "name":
                name, (kind, operator) = self.tokens[self.at][1], self.tokens[self.at + 1]
                if kind == "operator" and operator.endswith("=") and operator not in ("==", "<=", ">=", "!="):
                    self.at += 2
                    value = self.assignment()
                    if operator != "=":
                        value = wrapped(_OPERATIONS[operator[:-1]](self.get(name), value))
                    self.put(name, value)
                    return value
            value = self.binary(0)
            if self.accept("?"):
                # Both sides are read, so that tokens are consumed; neither side of real scripts assigns.
                yes = self.assignment()
                if not self.accept(":"):
                    raise UnknownNumberError("?")
                no = self.assignment()
                value = yes if value else no
            return value
        finally:
            self.depth -= 1

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.power()
        value = self.binary(level + 1)
        while operator := self.accept(*_LEVELS[level]):
            value = wrapped(_OPERATIONS[operator](value, self.binary(level + 1)))
        return value

    def power(self) -> int:
        base = self.unary()
        if self.accept("**"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise UnknownNumberError("an expression nested too deeply")
            exponent = self.power()
            self.depth -= 1
            if exponent < 0:
                raise UnknownNumberError("a negative exponent")
            return wrapped(pow(base, exponent, 2**64))
        return base

    def unary(self) -> int:
        signs = []
        while operator := self.accept("-", "+", "!", "~", "++", "--"):
            signs.append(operator)
        value = self.primary(signs.pop() if signs and signs[-1] in ("++", "--") else "")
        for sign in reversed(signs):
            value = wrapped({"-": -value, "+": value, "!": int(not value), "~": ~value}.get(sign, value))
        return value

    def primary(self, prefix: str) -> int:
        if self.accept("("):
            value = self.comma()
            if not self.accept(")"):
                raise UnknownNumberError("(")
            return value
        if self.at >= len(self.tokens) or self.tokens[self.at][0] == "operator":
            raise UnknownNumberError("an expression cut short")
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return wrapped(number(text))
        value = self.get(text)
        if prefix:
            value = wrapped(value + (1 if prefix == "++" else -1))
            self.put(text, value)
        elif step := self.accept("++", "--"):
            self.put(text, wrapped(value + (1 if step == "++" else -1)))
        return value


def number(text: str) -> int:
    """A constant of bash: decimal, ``0x``, octal with a leading zero, or ``base#digits``."""
    try:
        if len(text) > 25:
            text = "a long number"
        if "#" in text:
            base, digits = text.split("#")
            return int(digits, int(base))
        if text[:2] in ("0x", "0X"):
            return int(text, 16)
        return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)
    except ValueError:
        raise UnknownNumberError(text) from None


def evaluate(text: str, get: Callable[[str], int], put: Callable[[str, int], None]) -> int:
    """The value of an expression; an empty one is 0.

    Raises ``UnknownNumberError`` where it cannot be known.
    """
    if len(text) > 20_000:
        raise UnknownNumberError("a very long expression")
    reader = _Reader(text, get, put)
    if not reader.tokens:
        return 0
    value = reader.comma()
    if reader.at < len(reader.tokens):
        raise UnknownNumberError(text[:40])
    return value
