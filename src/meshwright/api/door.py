"""Who may pass the door of a verb: a value of its request, and nothing else."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from meshwright.errors import fault
from meshwright.text import kind

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def refuse(verb: str, request: object, beside: str = "") -> NoReturn:
    """Refuse what is no request of a verb; ``beside``: what it takes as well.

    Errors:  ``InputError``, always.
    """
    name = f"{verb.rstrip('_').capitalize()}Request"
    said = kind(request)
    given = f"a {type(request).__name__}" if said == "another kind of value" else said
    raise fault("request.kind", "{verb} takes a {name}{beside}, as in {verb}({name}(...)), not {given}", verb=verb, name=name,
                beside=beside and f" or {beside}", given=given)


def door(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, which refuses what is no request of its own in one line: no attribute of another value is looked for."""
    wanted = f"{verb.__name__.rstrip('_').capitalize()}Request"

    @wraps(verb)
    def answered(*args: P.args, **kwargs: P.kwargs) -> R:
        if args or "request" in kwargs:
            request = args[0] if args else kwargs["request"]
            if not isinstance(request, getattr(sys.modules[verb.__module__], wanted)):
                refuse(verb.__name__, request)
        return verb(*args, **kwargs)

    return answered
