"""References of OmegaConf and NeMo-RL's own arithmetic in them: ``${policy.precision}``, ``${.top_p}``, ``${mul:a, ${b}}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.errors import InputError
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.documents.source import Setting

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda one, two: one + two, "mul": lambda one, two: one * two, "div": lambda one, two: one / two, "max": max,
}
"""Source: NeMo-RL nemo_rl/utils/config.py ``register_omegaconf_resolvers``."""
MOST = 32
"""References in one value, and values behind one another."""


def resolved(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings with what their references come to; unknown where one leads out of them, or in a circle."""
    return {
        key: replace(setting, value=_value(setting.value, key, settings, MOST)) if _refers(setting.value) else setting
        for key, setting in settings.items()
    }


def _refers(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def _value(value: object, key: str, settings: Mapping[str, Setting], left: int) -> object:
    """A value without references."""
    if not isinstance(value, str) or "${" not in value:
        return value
    text = value
    for _ in range(left):
        found = _INNERMOST.search(text)
        if found is None:
            return UNKNOWN if "${" in text else _scalar(text)
        inner = _reference(found[1].strip(), key, settings, left - 1)
        if inner is UNKNOWN or (found[0] == text):
            return inner
        text = text[: found.start()] + str(inner) + text[found.end() :]
    return UNKNOWN


def _reference(words: str, key: str, settings: Mapping[str, Setting], left: int) -> object:
    """What stands between the braces of a reference comes to."""
    name, colon, arguments = words.partition(":")
    if colon:
        return _computed(name, arguments)
    dots = len(name) - len(name.lstrip("."))
    above = key.split(".")[: -dots] if dots else []
    there = settings.get(".".join([*above, name.lstrip(".")]))
    return UNKNOWN if there is None or left < 1 else _value(there.value, there.key, settings, left)


def _computed(name: str, arguments: str) -> object:
    """The result of one of NeMo-RL's resolvers; unknown for any other."""
    numbers = [_scalar(each) for each in arguments.split(",")]
    operation = _ARITHMETIC.get(name)
    if operation is None or len(numbers) != 2 or not all(isinstance(each, (int, float)) for each in numbers):
        return UNKNOWN
    one, two = numbers
    assert isinstance(one, (int, float)) and isinstance(two, (int, float)), "just asked"
    if (name == "div" and two == 0) or max(abs(one), abs(two)) > 1e15:
        return UNKNOWN
    return operation(one, two)


def _scalar(text: str) -> object:
    """A text as YAML reads it; as it is where that is no YAML."""
    try:
        return parse_yaml(text)
    except InputError:
        return text
