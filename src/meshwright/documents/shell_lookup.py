"""The values of parameters: variables, ``$1``, ``$#``, ``$@``; what was never set is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.shell_values import Text, joined, literal, unknown

if TYPE_CHECKING:
    from meshwright.documents.shell_values import State, Value


def several(state: State, texts: list[Text], which: str, quoted: bool) -> list[Text]:
    """``$@`` and ``$*``: the latter is one word inside quotes."""
    return [state.bounds.made(joined(texts))] if which == "*" and quoted else texts


def found(state: State, name: str) -> Value | None:
    """The value of a parameter; None where it is not set or not known to be."""
    if name.isdigit():
        index = int(name[:6])
        if index == 0:
            return literal(state.bounds.path) if state.bounds.path else None
        return state.positional[index - 1] if index <= len(state.positional) else None
    if name == "#":
        return literal(str(len(state.positional))) if state.arguments_given else None
    if name in ("@", "*"):
        return joined(state.positional) if state.positional else None
    return state.variables.get(name)


def parameter_text(state: State, name: str, line: int) -> Text:
    """``$name``: the first element of an array, nothing where it was unset on purpose, unknown where it was never set."""
    value = found(state, name)
    if isinstance(value, list):
        return value[0] if value else Text()
    if isinstance(value, dict):
        return value.get("0", Text())
    if value is None:
        empty = name in state.unset or (name.isdigit() and state.arguments_given)
        return Text() if empty else unknown(name, line)
    return value
