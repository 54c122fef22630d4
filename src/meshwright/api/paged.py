"""The page of an answer: ``--html FILE`` of every verb that has one, and the page in a notebook."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from meshwright.api.request import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def paged(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, whose answer knows what was asked, and is written as a page where the request says so.

    What would be in the page's way is a fault of the request (``request.read``), known before anything is computed.
    """

    @wraps(verb)
    def answered(*args: P.args, **kwargs: P.kwargs) -> R:
        request, answer = args[0] if args else kwargs.get("request"), verb(*args, **kwargs)
        if not (isinstance(request, Request) and isinstance(answer, Answer)):
            return answer
        answer = replace(answer, asked=request)
        if path := getattr(request, "html", None):
            from meshwright.api.renderers import render
            from meshwright.outputs import Output, write

            write([Output(path=str(path), text=render("answer.html", answer))], force=bool(getattr(request, "force", False)))
            answer = replace(answer, page=str(path))
        return cast("R", answer)

    return answered
