"""Searches are made once: in rooms that look at what is said of an answer, many tests ask the same one.

A search has one answer (tests/search holds it to that), so what is asked again is remembered: of the same case, features, options
and framework. Used by a fixture of the room's ``conftest.py``.

A plan searches more than once: on fewer nodes for its linearity, and ``check`` for a better layout. Tests of something else leave
these out (``alone`` and ``unrivalled`` of ``tests/conftest.py``); what they say is held by those of search, api, check and cli.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import pytest

import meshwright.api
from meshwright.search import finding
from meshwright.search.balance import solve
from meshwright.search.runner import Functions

FIND = finding.find
BALANCE = solve.balance
_FOUND: dict[tuple[object, ...], tuple[object, Any]] = {}
"""Question -> the framework, which so stays the one of its number, and the answer."""


def _find(
    case: Any, features: Any, options: Any, runner: Any, progress: Any = None, *, lean: bool = False, able: bool = False,
    learnt: Any = None,
) -> Any:
    asked = runner if isinstance(runner, Functions) else id(runner)
    question = (repr(case), repr(features), repr(options), asked, lean, able)
    if question not in _FOUND:
        _FOUND[question] = runner, FIND(case, features, options, runner, progress, lean=lean, able=able, learnt=learnt)
    return _FOUND[question][1]


@cache
def _asking(known_modules: int) -> list[ModuleType]:
    """Modules that ask for searches; looked for again where there are more modules than there were."""
    del known_modules
    return [
        module for name, module in list(sys.modules.items())
        if name.startswith("meshwright.") and vars(module).get("find") is FIND
    ]


_BALANCED: dict[str, Any] = {}
"""Question -> the balance of a pipeline, which also has one answer."""


def _balance(problem: Any, **asked: Any) -> Any:
    question = repr((problem, sorted(asked.items())))
    if question not in _BALANCED:
        _BALANCED[question] = BALANCE(problem, **asked)
    return _BALANCED[question]


def remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here to the end of a test, no search is made twice, and no pipeline balanced twice."""
    assert meshwright.api
    monkeypatch.setattr(solve, "balance", _balance)
    for module in _asking(len(sys.modules)):
        monkeypatch.setattr(module, "find", _find)
