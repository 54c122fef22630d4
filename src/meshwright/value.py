"""Values that a caller may hold: frozen, and to the functions of ``dataclasses`` a dataclass."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import NODEFAULT, Struct


class _Fields:
    """The fields of a class as ``dataclasses`` know them, put together when somebody first asks for those of the class."""

    def __init__(self) -> None:
        self._known: dict[type[Struct], dict[str, dataclasses.Field[Any]]] = {}

    def __get__(self, _: Struct | None, owner: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
        if owner not in self._known:
            self._known[owner] = _twin(owner).__dataclass_fields__
        return self._known[owner]


def _twin(owner: type[Struct]) -> Any:
    """A dataclass of the same fields, without a function of its own."""
    words = {name: kind for each in reversed(owner.__mro__) for name, kind in vars(each).get("__annotations__", {}).items()}
    missing = [NODEFAULT] * (len(owner.__struct_fields__) - len(owner.__struct_defaults__))
    defaults = zip(owner.__struct_fields__, [*missing, *owner.__struct_defaults__], strict=True)
    fields = [(name, words[name], _field(default)) for name, default in defaults]
    told = {"__doc__": "What ``dataclasses`` would write here by itself takes four times as long as all the rest."}
    return dataclasses.make_dataclass(
        owner.__name__, fields, namespace=told, init=False, repr=False, eq=False, match_args=False, kw_only=True
    )


def _field(default: Any) -> Any:
    """A field with the default of a Struct's."""
    if default is NODEFAULT:
        return dataclasses.field()
    factory = getattr(default, "factory", None)
    return dataclasses.field(default_factory=factory) if factory is not None else dataclasses.field(default=default)


class Value(Struct, frozen=True):
    """A class costs a fifth of a dataclass, which writes and compiles its functions at import, an object an eighth.

    ``dataclasses.replace``, ``fields``, ``asdict`` and ``is_dataclass`` take it for one.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    else:
        __dataclass_fields__ = _Fields()
