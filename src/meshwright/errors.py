"""What can go wrong, and how it is said: an identifier and a template for every message.

Tree of exceptions::

    MeshwrightError
      + InputError        the user's input is wrong: one line per fault, exit status 2
      + NoAnswerError     the question was understood and the answer is no: exit status 1

Infeasibility inside a search is not an exception but a value (``meshwright.domain.verdict``). A template names its
values in braces, so that it can be translated and tested without running the code that raises it.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Message:
    """One fault or remark: a stable identifier, a template, the values that fill it, and where it was found."""

    id: str
    template: str
    values: Mapping[str, object]
    path: str = ""

    @property
    def words(self) -> str:
        """The message without its path; what nobody sees in a value stands as an escape, so that it is one line."""
        return visible(self.template.format(**self.values))

    def __str__(self) -> str:
        """The message as a person reads it, with the path in front where there is one."""
        return f"{visible(self.path)}: {self.words}" if self.path else self.words


class MeshwrightError(Exception):
    """Base of everything that Meshwright raises on purpose; carries one message or several."""

    def __init__(self, messages: Message | Iterable[Message]) -> None:
        """Keep the messages in the order in which they were found."""
        self.messages: tuple[Message, ...] = (messages,) if isinstance(messages, Message) else tuple(messages)
        super().__init__("; ".join(str(message) for message in self.messages))


class InputError(MeshwrightError):
    """The input is wrong; every fault of it is in ``messages``."""


class NoAnswerError(MeshwrightError):
    """The input is right and the answer is no."""


def fault(id: str, template: str, *, path: str = "", **values: object) -> InputError:
    """An ``InputError`` with one message."""
    return InputError(Message(id, template, values, path))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``; did you mean X?``, or the empty string where nothing is near."""
    candidates = {candidate.lower(): candidate for candidate in sorted(known)}
    near = difflib.get_close_matches(name.lower(), list(candidates), n=3, cutoff=0.6)
    return f"; did you mean {', '.join(candidates[word] for word in near)}?" if near else ""
