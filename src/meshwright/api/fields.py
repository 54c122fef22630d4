"""Options as a table: one row serves the command line, the request file and the help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from meshwright.api.numbers import text
from meshwright.errors import InputError, Message, did_you_mean
from meshwright.value import Value

Values = Mapping[str, Any]
"""Name of a field -> parsed value; what was not given is absent, flags and lists are always there."""


class Field(Value, frozen=True, kw_only=True):
    """One option, key of a request file, or positional argument."""

    name: str
    help: str
    parse: Callable[[str], Any] = text
    metavar: str = "TEXT"
    panel: str = "Case"
    kind: str = "option"
    """``option``, ``flag`` (no value), ``many`` (repeatable), ``argument`` or ``arguments`` (positional, one or several)."""
    in_file: bool = True
    """Whether a request file may hold it."""

    @property
    def option(self) -> str:
        """``--global-batch`` for ``global_batch``, ``--from`` for ``from_``; the bare word for an argument."""
        return self.metavar if self.kind.startswith("argument") else f"--{self.name.rstrip('_').replace('_', '-')}"


class Faults:
    """Collects the messages of several steps; ``check`` raises them all together. ``with faults:`` catches into it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failed: set[str] = set()
        """Names of fields that were given but are wrong: they are not missing."""
        self.places: dict[str, str] = {}
        """Field -> where its value was said: ``--sequence``, ``plan.yaml: sequence``."""

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, InputError):
            self.note(error.messages)
            return True
        return False

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Catches what is wrong with the value of a field; messages that name no file say where the value stands."""
        try:
            yield
        except InputError as error:
            self.failed.add(name)
            place = self.places.get(name, "")
            self.note(replace(each, path=place or each.path) if each.path in _NOWHERE else each for each in error.messages)

    def note(self, messages: Iterable[Message]) -> None:
        """Note messages, those that stand there already once."""
        known = set(map(id, self.messages))
        self.messages += [each for each in messages if id(each) not in known]

    def add(self, id: str, template: str, *, path: str = "", **values: object) -> None:
        """Note one fault."""
        self.messages.append(Message(id, template, values, path))

    def check(self) -> None:
        """Raise what was collected, if anything."""
        if self.messages:
            raise InputError(self.messages)


_NOWHERE = ("", "layout")
"""Paths of messages that name no place of the user's: ``layout`` is what labels and legality say."""


def one_of(*names: str) -> Callable[[str], str]:
    """A parser that takes one of some words."""

    def parse(word: str) -> str:
        if word.lower() in names:
            return word.lower()
        values = {"word": word, "names": names, "hint": did_you_mean(word, names)}
        raise InputError(Message("option.choice", "{word!r} is none of {names}{hint}", values))

    return parse
