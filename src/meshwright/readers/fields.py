"""Reading one key of a foreign configuration at a time, with every fault remembered instead of raised.

A faulty value reads as a harmless placeholder, so that the rest of the file is checked too; whoever builds a value from
the fields looks at ``faults`` before trusting it.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.errors import Message
from meshwright.readers.limits import MAX_LAYERS, MAX_NUMBER, MAX_SIZE
from meshwright.readers.names import name_fault
from meshwright.readers.structure import join
from meshwright.text import shown


class Fields:
    """The keys of a configuration; null counts as absent, as it does in transformers."""

    def __init__(self, data: Mapping[str, object], path: str, faults: list[Message] | None = None) -> None:
        """Keep the data, where it stands, and a list of faults that nested fields share."""
        self.data, self.path = data, path
        self.faults: list[Message] = [] if faults is None else faults

    def has(self, name: str) -> bool:
        """Whether the key is there with a value."""
        return self.data.get(name) is not None

    def fault(self, name: str, id: str, template: str, **values: object) -> None:
        """Remember what is wrong with a key."""
        self._remember(Message(id, template, values, self._at(name)))

    def _remember(self, message: Message) -> None:
        """Remember a fault once, however many layers are read from the same key."""
        if message not in self.faults:
            self.faults.append(message)

    def _at(self, name: str) -> str:
        """``file: key`` for a key of the file, ``file: key.inner`` below."""
        return join(self.path, name) if ": " in self.path else f"{self.path}: {name}"

    def check_name(self, key: str, name: object) -> None:
        """Remember a text that cannot be a name; other values are nobody's name."""
        if isinstance(name, str) and (wrong := name_fault(name, self._at(key))):
            self._remember(wrong)

    def size(self, *names: str, default: int | None = None, minimum: int = 1, maximum: int = MAX_SIZE) -> int:
        """A whole number under the first of the names that is there; missing without a default is a fault."""
        name = next((name for name in names if self.has(name)), None)
        if name is None:
            if default is None:
                self.fault(" or ".join(names), "config.missing", "is missing")
                return minimum
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, int):
            hint = " but text; remove the quotes" if isinstance(value, str) and value.strip().isdigit() else ""
            self.fault(name, "config.integer", "{value} is not a whole number{hint}", value=shown(value), hint=hint)
        elif not minimum <= value <= maximum:
            self.fault(
                name,
                "config.range",
                "{value} is not within {low}..{high}",
                value=shown(value),
                low=minimum,
                high=maximum,
            )
        else:
            return value
        return minimum

    def optional_size(self, *names: str) -> int | None:
        """A whole number above 0, or None where it is absent."""
        return self.size(*names) if any(self.has(name) for name in names) else None

    def same(self, name: str) -> int | None:
        """A whole number above 0 that holds for every layer, written once or layer by layer; None where it is absent."""
        value = self.data.get(name)
        if not isinstance(value, list):
            return self.optional_size(name)
        each = self.numbers(name)
        if len(set(each)) > 1:
            self.fault(name, "config.same", "{value} differs from layer to layer, which is not described", value=shown(value))
        return max(1, each[0]) if each else None

    def number(self, *names: str, default: float, maximum: float = MAX_NUMBER) -> float:
        """A number above 0 under the first of the names that is there."""
        name = next((name for name in names if self.has(name)), None)
        if name is None:
            return default
        value = self.data[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fault(name, "config.number", "{value} is not a number", value=shown(value))
        elif not 0 < value <= maximum:
            self.fault(name, "config.range", "{value} is not within {low}..{high}", value=shown(value), low=0, high=maximum)
        else:
            return float(value)
        return default

    def layers(self, *names: str) -> int:
        """The number of layers."""
        return self.count(*names)

    def count(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number of parts that are described one by one: no more than there may be layers."""
        return self.size(*names, default=default, minimum=minimum, maximum=MAX_LAYERS)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(name, "config.boolean", "{value} is not true or false", value=shown(value))
            return default
        return value

    def words(self, name: str, count: int, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
        """A list of ``count`` words, or None where it is absent or faulty."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self.fault(name, "config.words", "{value} is not a list of words", value=shown(value))
            return None
        odd = sorted(set(value) - set(allowed))
        if odd:
            self.fault(name, "config.word", "{odd} is none of {allowed}", odd=shown(odd[0]), allowed=", ".join(allowed))
            return None
        if len(value) != count:
            self.fault(name, "config.length", "has {length} entries for {count} layers", length=len(value), count=count)
            return None
        return tuple(value)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 on; absent: empty."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in value):
            self.fault(name, "config.numbers", "{value} is not a list of whole numbers", value=shown(value))
            return ()
        return tuple(value)

    def inner(self, name: str) -> Fields:
        """The fields of a nested mapping; absent: none."""
        value = self.data.get(name)
        if value is None:
            value = {}
        elif not isinstance(value, Mapping):
            self.fault(name, "config.mapping", "{value} stands there, keys with values are expected", value=shown(value))
            value = {}
        return Fields(value, self._at(name), self.faults)
