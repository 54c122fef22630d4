"""One page for each answer that has one: what it comes to, its figures, its charts, and the words of its terminal report.

A module a verb, each with ``page_of(answer)``; the door finds it by the answer's name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view
from meshwright.report.pages.common import reproduce

if TYPE_CHECKING:
    from meshwright.report.blocks import View

VERBS = ("atlas", "balance", "check", "diagnose", "estimate", "explain", "fix", "pack", "plan", "sweep", "tune", "validate")
_OF_ANSWER = {"guide": "balance", "memories": "balance"}


def verb_of(answer: Any) -> str | None:
    """The verb whose page an answer has; None where it has none."""
    word = type(answer).__name__.removesuffix("Answer").lower()
    word = _OF_ANSWER.get(word, word)
    return word if word in VERBS else None


def page_of(answer: Any) -> View:
    """The page of an answer, with the command that asked for it at its end.

    Errors:  ``TypeError`` for an answer that has no page.
    """
    verb = verb_of(answer)
    if verb is None:
        raise TypeError(f"{type(answer).__name__} has no page; {', '.join(VERBS)} have")
    page: View = import_module(f"{__name__}.{verb}").page_of(answer)
    return replace(page, sections=(*page.sections, reproduce(answer, page.verb)))


def page_html(answer: Any) -> str:
    """The file of an answer."""
    return html(page_of(answer))


def page_json(answer: Any) -> str:
    """The view of an answer as JSON text."""
    return json.dumps(plain_view(page_of(answer)), allow_nan=False)


def frame(answer: Any) -> str:
    """The page in a frame of a notebook, which keeps its styles to itself; nothing for an answer without one."""
    if verb_of(answer) is None:
        return ""
    looks = "width:100%;height:80vh;min-height:480px;border:1px solid #8884;border-radius:8px"
    return f'<iframe title="Meshwright" sandbox="allow-scripts" style="{looks}" srcdoc="{escape(page_html(answer))}"></iframe>'
