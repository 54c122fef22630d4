"""What rows mean where they say it in their own way: ``data/conventions.yaml``, and the few lines that read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.catalog.device_sheet import device_names
from meshwright.evidence.rows.said import Said
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import make_converter, structure
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(__file__).parents[1] / "data" / "conventions.yaml"
DEVICE, WORDS, FRAMEWORK = "device", "words", "framework"
"""Conditions on the catalogue's name of a row's device, on both columns of free words, and on what tells rules apart first."""
TAKEN = "{1}"
WHOLE = ("shards", "lora_rank", "offloaded_layers", "slice_tokens")
"""Fields of ``Said`` that are whole numbers, taken from words."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Conditions on a row, all of which must hold, and the fields that follow; the head of the file explains them."""

    when: Mapping[str, re.Pattern[str]]
    then: Mapping[str, Any]
    source: str
    unless: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    above: Mapping[str, int] = field(default_factory=dict)
    so: Mapping[str, bool] = field(default_factory=dict)

    def found(self, words: Mapping[str, str], decided: Mapping[str, Any]) -> str | None:
        """What an expression takes from a row in its brackets, else blank; None where a condition does not hold."""
        taken = ""
        for column, expression in self.when.items():
            match = expression.search(words[column])
            if match is None:
                return None
            taken = match[1] if match.lastindex else taken
        for column, expression in self.unless.items():
            if expression.search(words[column]):
                return None
        exceeds = all(int(words[column] or 0) > least for column, least in self.above.items())
        return taken if exceeds and all(decided.get(key, False) == value for key, value in self.so.items()) else None


class Conventions(Value, frozen=True, kw_only=True):
    """The file."""

    precisions: Mapping[str, str]
    recompute_words: Mapping[str, str]
    rules: tuple[Rule, ...]
    assumptions: tuple[str, ...]
    """What is assumed where rows are silent, in words."""


@cache
def conventions() -> Conventions:
    """All conventions; what a rule sets are fields of ``Said``."""
    converter = make_converter()
    converter.register_structure_hook_func(lambda kind: kind == re.Pattern[str], lambda text, _: re.compile(text, re.IGNORECASE))
    found = structure(converter, load_shipped(FILE), Conventions, where=FILE.name)
    rules = []
    for number, rule in enumerate(found.rules):
        given = {name: value for name, value in rule.then.items() if TAKEN not in str(value)}
        typed = structure(converter, given, Said, where=f"{FILE.name}: rules[{number}].then")
        rules.append(replace(rule, then={**rule.then, **{name: getattr(typed, name) for name in given}}))
    return replace(found, rules=tuple(rules))


def precision_name(spelling: str) -> str:
    """The recipe that a source means."""
    return conventions().precisions.get(spelling, spelling)


def said(word: Callable[[str], str]) -> Said:
    """What the conventions make of a row, whose words by column are given: of the rules that hold, the first decides a field."""
    return _said(word(FRAMEWORK), _cells(word))


@lru_cache(maxsize=1024)
def _said(framework: str, cells: tuple[str, ...]) -> Said:
    return Said(**_decided(framework, cells)[0])


def rules_of(word: Callable[[str], str]) -> Mapping[str, Rule]:
    """The rule behind each field that a convention decides: its ``source`` says where that is written down."""
    return _decided(word(FRAMEWORK), _cells(word))[1]


def _cells(word: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(word(column) for column in _columns())


def _decided(framework: str, cells: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Rule]]:
    """Value and rule of each field that is decided."""
    words = dict(zip(_columns(), cells, strict=True))
    words[DEVICE], words[WORDS] = device_names().find(words["gpu"]) or "", f"{words['extra_settings']}\n{words['notes']}"
    decided: dict[str, Any] = {}
    by: dict[str, Rule] = {}
    for rule in _rules_for(framework):
        if rule.then.keys() <= decided.keys():
            continue
        taken = rule.found(words, decided)
        if taken is None:
            continue
        new = {name: _value(name, value, taken) for name, value in rule.then.items() if name not in decided}
        decided |= new
        by |= dict.fromkeys(new, rule)
        if DEVICE in new:
            words[DEVICE] = device_names().find(new[DEVICE]) or ""
    return decided, by


@cache
def _columns() -> tuple[str, ...]:
    """Columns that conditions look at."""
    named = {column for rule in conventions().rules for column in (*rule.when, *rule.unless, *rule.above)}
    return tuple(sorted((named | {"gpu", "extra_settings", "notes"}) - {DEVICE, WORDS, FRAMEWORK}))


@lru_cache(maxsize=64)
def _rules_for(framework: str) -> tuple[Rule, ...]:
    """Rules that may hold for rows of a framework, without their conditions on it."""
    found = []
    for rule in conventions().rules:
        when, unless = dict(rule.when), dict(rule.unless)
        wanted, refused = when.pop(FRAMEWORK, None), unless.pop(FRAMEWORK, None)
        if (wanted is None or wanted.search(framework)) and not (refused and refused.search(framework)):
            found.append(replace(rule, when=when, unless=unless))
    return tuple(found)


def _value(name: str, value: Any, taken: str) -> Any:
    """A value with what was taken put in: whole numbers where the field wants them."""
    if not isinstance(value, str) or TAKEN not in value:
        return value
    text = value.replace(TAKEN, taken)
    if name == "idle_layers":
        return tuple(int(word) for word in text.split(","))
    if name == "offloaded_modules":
        return tuple(text.split(","))
    return int(text) if name in WHOLE else text
