"""References of OmegaConf and NeMo-RL's own arithmetic in them: ``${policy.precision}``, ``${.top_p}``, ``${mul:a, ${b}}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.errors import InputError
from meshwright.frameworks.omegaconf import References, refers
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.documents.source import Setting

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda one, two: one + two, "mul": lambda one, two: one * two, "div": lambda one, two: one / two, "max": max,
}
"""Source: NeMo-RL nemo_rl/utils/config.py ``register_omegaconf_resolvers``."""


def resolved(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings with what their references come to; unknown where one leads out of them, or in a circle."""
    references = References(settings, _computed, named=_named, said=_scalar)
    return {
        key: replace(setting, value=references.value(setting)) if refers(setting.value) else setting
        for key, setting in settings.items()
    }


def _named(words: str, key: str) -> str:
    """The key that a reference means: dots at its beginning lead up from the key that it stands in."""
    name = words.lstrip(".")
    dots = len(words) - len(name)
    return ".".join([*(key.split(".")[:-dots] if dots else []), name])


def _computed(words: str) -> object:
    """The result of one of NeMo-RL's resolvers; unknown for all else that is no key."""
    name, _, arguments = words.partition(":")
    numbers = [_scalar(each) for each in arguments.split(",")]
    operation = _ARITHMETIC.get(name)
    if operation is None or len(numbers) != 2 or not all(isinstance(each, (int, float)) for each in numbers):
        return UNKNOWN
    one, two = numbers
    assert isinstance(one, (int, float)) and isinstance(two, (int, float)), "just asked"
    if (name == "div" and two == 0) or not max(abs(one), abs(two)) <= 1e15:
        return UNKNOWN
    return operation(one, two)


def _scalar(text: str) -> object:
    """A text as YAML reads it; as it is where that is no YAML."""
    try:
        return parse_yaml(text)
    except InputError:
        return text
