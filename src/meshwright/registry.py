"""Named things in one place each: a duplicate name is our mistake, an unknown one is answered with a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from meshwright.errors import fault, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from name to thing that refuses duplicates and explains misses.

    >>> colours = Registry[int]("colour")
    >>> _ = colours.add("red", 1)
    >>> colours["red"]
    1
    """

    def __init__(self, noun: str) -> None:
        """An empty registry of things called ``noun`` in messages."""
        self.noun = noun
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Register an item under a new name and return it."""
        assert name not in self._items, f"{self.noun} {name!r} is registered twice"
        self._items[name] = item
        return item

    def adder(self, name: str) -> Callable[[T], T]:
        """A decorator that registers what it decorates."""
        return lambda item: self.add(name, item)

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            hint = nearest(name, sorted(self._items))
            raise fault("registry.unknown", "unknown {noun} {name!r}{hint}", noun=self.noun, name=name, hint=hint)
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))

    def __len__(self) -> int:
        return len(self._items)
