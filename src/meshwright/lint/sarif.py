"""Findings as SARIF 2.1.0: what forges and editors read.

Names of files stand as percent-encoded URIs, messages without anything that nobody sees: a hostile name stays a name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from meshwright.lint.framework import checks
from meshwright.lint.rule import rules
from meshwright.text import visible
from meshwright.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.lint.found import Found

_LEVELS = {"error": "error", "warning": "warning", "advice": "note"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(found: Sequence[Found]) -> dict[str, Any]:
    """The document of ``--sarif``: the rules that have found something, and what they found."""
    named = list(dict.fromkeys(each.id for each in found))
    driver = {
        "name": "meshwright",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(id, next(each for each in found if each.id == id)) for id in named],
    }
    results = [_result(each, named.index(each.id)) for each in found]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(id: str, each: Found) -> dict[str, Any]:
    """A rule as SARIF describes it."""
    rule, check = rules().get(id), checks().get(id)
    why = rule.why if rule is not None else check.words if check is not None else id
    words: dict[str, Any] = {
        "id": id,
        "shortDescription": {"text": visible(why)},
        "help": {"text": f"{visible(why)} Source: {visible(each.source) or 'none'}"},
        "defaultConfiguration": {"level": _LEVELS[each.severity]},
    }
    return words


def _result(each: Found, index: int) -> dict[str, Any]:
    """A finding as SARIF has it."""
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(os.fsencode(each.file.replace(os.sep, "/")))},
            "region": {"startLine": 1 if each.cell else max(1, each.line), "startColumn": 1 if each.cell else max(1, each.column)},
        }
    }
    if each.cell:
        location["logicalLocations"] = [{"name": f"cell {each.cell}", "fullyQualifiedName": f"cell {each.cell}, line {each.line}"}]
    return {
        "ruleId": each.id,
        "ruleIndex": index,
        "level": _LEVELS[each.severity],
        "message": {"text": each.message.words},
        "locations": [location],
    }
