"""What OmegaConf makes of files: values that name other values (``${policy.precision}``), and keys that it does not take twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN
from meshwright.errors import InputError
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.documents.source import Setting, Source

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
MOST = 32
"""References in one value, and values behind one another."""
MOST_TEXT = 10_000
"""Characters of a value with what its references come to: more of them are no setting."""


_TWICE = "OmegaConf refuses the file: found duplicate key {key} (lines {first} and {line})"


def refuse_twice(source: Source, name: str) -> None:
    """Refuse files of a framework in which a key stands twice in one place.

    Errors:  ``InputError`` with each such key.
    Source:  omegaconf/_utils.py ``get_yaml_loader``, whose ``construct_mapping`` raises; PyYAML itself takes the last one.
    """
    if twice := [each for each in source.remarks if each.id == "yaml.twice"]:
        raise InputError(replace(each, id=f"{name}.twice", template=_TWICE) for each in twice)


class Lost(Value, frozen=True):
    """A reference that leads nowhere."""

    name: str


def refers(value: object) -> bool:
    """Whether a value is a text with references."""
    return isinstance(value, str) and "${" in value


class References:
    """What values of some settings come to; unknown in a circle, behind too many others, and where a text grows without end.

    ``elsewhere``: what the words between the braces come to where they name no setting; ``named``: those words, and the key that
    they stand in -> the key that they mean; ``said``: a text without references -> its value. Each is worked out once: two
    references on each of thirty levels are a billion ways.
    """

    def __init__(
        self, settings: Mapping[str, Setting], elsewhere: Callable[[str], object], *,
        named: Callable[[str, str], str] = lambda words, key: words, said: Callable[[str], object] = str,
    ) -> None:
        """Nothing is worked out before it is asked for."""
        self._settings, self._elsewhere, self._named, self._said = settings, elsewhere, named, said
        self._known: dict[str, object] = {}

    def value(self, setting: Setting, left: int = MOST) -> object:
        """What a setting comes to: ``UNKNOWN`` or ``Lost`` where one of its references is that.

        ``left``: how many values may still stand behind it.
        """
        if not isinstance(setting.value, str) or not refers(setting.value):
            return setting.value
        if setting.key not in self._known:
            self._known[setting.key] = UNKNOWN  # what leads back here goes in a circle
            self._known[setting.key] = self._replaced(setting.value, setting.key, left - 1)
        return self._known[setting.key]

    def _replaced(self, text: str, key: str, left: int) -> object:
        """A text with its references replaced, the innermost first."""
        for _ in range(MOST):
            found = _INNERMOST.search(text[:MOST_TEXT])
            if len(text) > MOST_TEXT or (found is None and refers(text)):
                return UNKNOWN
            if found is None:
                return self._said(text)
            inner = self._one(found[1].strip(), key, left)
            if inner is UNKNOWN or isinstance(inner, Lost) or found[0] == text:
                return inner
            text = text[: found.start()] + str(inner) + text[found.end() :]
        return UNKNOWN

    def _one(self, words: str, key: str, left: int) -> object:
        """What stands between the braces of a reference comes to."""
        there = self._settings.get(self._named(words, key))
        if there is None:
            return self._elsewhere(words)
        return self.value(there, left) if left else UNKNOWN
