"""Plain data becomes dataclasses, strictly: no coercion, no unknown key, and every fault at once with its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from meshwright.errors import InputError, Message, did_you_mean
from meshwright.readers.names import name_fault
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Hook = Callable[[Any, Any], Any]
    """A value and what it is to be -> that."""

T = TypeVar("T")


class Reject(ValueError):
    """Raised by a hook: what is wrong with one value."""

    def __init__(self, id: str, template: str, **values: object) -> None:
        """Keep the pieces of the message; the walker adds the path."""
        super().__init__(template)
        self.id, self.template, self.values = id, template, values


class Several(ValueError):
    """Faults of several items of one list or mapping, or of several fields of a record."""

    def __init__(self, parts: list[tuple[Any, Exception]]) -> None:
        """Keep key and fault of every item."""
        super().__init__("several faults")
        self.parts = parts


class Converter:
    """Makes values of a kind from plain data, by the last hook that was registered for the kind."""

    def __init__(self) -> None:
        """A converter without hooks."""
        self._factories: list[tuple[Callable[[Any], bool], Callable[[Any], Hook]]] = []
        self._known: dict[Any, Hook] = {}

    def register(self, wanted: Callable[[Any], bool], factory: Callable[[Any], Hook]) -> None:
        """The hook of every kind that is wanted, made when such a kind is first asked for."""
        self._factories.append((wanted, factory))
        self._known.clear()

    def structure(self, data: Any, kind: Any) -> Any:
        """``data`` as ``kind``.

        Errors:  ``Reject``, ``Several`` of them, or what a record says of itself when it is made.
        """
        if kind not in self._known:
            self._known[kind] = self._hook(kind)
        hook: Hook = self._known[kind]
        return hook(data, kind)

    def _hook(self, kind: Any) -> Hook:
        for wanted, factory in reversed(self._factories):
            if wanted(kind):
                found: Hook = factory(kind)
                return found
        raise TypeError(f"no hook structures {kind}")


def make_converter() -> Converter:
    """A converter that refuses coercion, unknown keys, and text in which something hides."""
    converter = Converter()
    for plain, hook in {int: _integer, float: _number, str: _text, bool: _boolean, Any: _anything}.items():
        converter.register(_is(plain), lambda _, hook=hook: hook)  # type: ignore[misc]
    converter.register(_has_origin(Literal), lambda _: _word)
    converter.register(is_dataclass, lambda kind: record_hook(kind, converter))
    converter.register(_has_origin(tuple), lambda kind: _sequence(kind, converter))
    converter.register(_has_origin(dict, Mapping), lambda kind: _mapping(kind, converter))
    converter.register(_has_origin(Union, UnionType), lambda kind: _optional(kind, converter))
    return converter


def structure(converter: Converter, data: object, kind: type[T], *, where: str) -> T:
    """``data`` as ``kind``, or an ``InputError`` with a message for every fault."""
    try:
        found: T = converter.structure(data, kind)
    except Exception as error:
        messages = list(faults(error, where))
        if not messages:
            raise
        raise InputError(messages) from None
    return found


def faults(error: BaseException, path: str) -> Iterator[Message]:
    """Every fault inside an exception of a converter, as messages with paths."""
    if isinstance(error, Several):
        for key, inner in error.parts:
            yield from faults(inner, join(path, key))
    elif isinstance(error, Reject):
        yield Message(error.id, error.template, error.values, path)
    elif isinstance(error, InputError):
        yield from error.messages


def join(path: str, key: object) -> str:
    """A path one step deeper: ``a.b`` for keys, ``a[0]`` for positions."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def _is(plain: Any) -> Callable[[Any], bool]:
    """Whether a type is this one."""
    return lambda kind: bool(kind == plain)


def _has_origin(*origins: Any) -> Callable[[Any], bool]:
    """Whether a type is one of the generic types, subscripted."""
    return lambda kind: get_origin(kind) in origins


def _anything(value: object, _: object) -> object:
    return value


def _integer(value: object, _: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Reject("value.integer", "{value} is not a whole number{hint}", value=shown(value), hint=_number_hint(value))
    return value


def _number(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Reject("value.number", "{value} is not a number{hint}", value=shown(value), hint=_number_hint(value))
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise Reject("value.finite", "{value} is not finite", value=shown(value))
    return number


def _number_hint(value: object) -> str:
    if not isinstance(value, str):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    if "e" in value.lower() and math.isfinite(number):
        return f" but text; YAML reads 1e-5 as text, write {number!r} with a decimal point and a signed exponent"
    return " but text; remove the quotes"


def _text(value: object, _: object) -> str:
    if not isinstance(value, str):
        raise Reject("value.text", "{value} is not text; put it in quotes", value=shown(value))
    return _seen(value)


def _seen(text: str) -> str:
    """A name or a line of text, of which nothing hides."""
    if wrong := name_fault(text, ""):
        raise Reject(wrong.id, wrong.template, **wrong.values)
    return text


def _boolean(value: object, _: object) -> bool:
    if not isinstance(value, bool):
        raise Reject("value.boolean", "{value} is not true or false", value=shown(value))
    return value


def _word(value: object, kind: Any) -> object:
    words = get_args(kind)
    if value not in words:
        known = [str(word) for word in words]
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise Reject("value.word", "{value} is none of {words}{hint}", value=shown(value), words=known, hint=hint)
    return value


class _Record(NamedTuple):
    """A class whose values are read from mappings."""

    kinds: dict[str, Any]
    """Of the fields that are read."""
    required: frozenset[str]
    names: list[str]
    """Of all fields."""


@cache
def _record(kind: Any) -> _Record:
    types, every = get_type_hints(kind), fields(kind)
    return _Record(
        kinds={field.name: types[field.name] for field in every if field.init},
        required=frozenset(each.name for each in every if each.default is MISSING and each.default_factory is MISSING),
        names=[field.name for field in every],
    )


def record_hook(kind: Any, converter: Converter) -> Hook:
    """Structure a dataclass from a mapping; for hooks that check the result further."""
    record = _record(kind)

    def structure_record(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Reject("value.mapping", "{value} stands there, keys with values are expected", value=shown(value))
        found: dict[str, Any] = {}
        failed: list[tuple[Any, Exception]] = []
        for name, own in record.kinds.items():
            try:
                if name in value:
                    found[name] = converter.structure(value[name], own)
                elif name in record.required:
                    raise Reject("key.missing", "is missing")  # noqa: TRY301
            except Exception as error:
                failed.append((name, error))
        for key in sorted((key for key in value if key not in record.kinds), key=str):
            hint = did_you_mean(str(key), record.names)
            failed.append((key, Reject("key.unknown", "is no known key{hint}; known: {known}", hint=hint, known=record.names)))
        if failed:
            raise Several(failed)
        return kind(**found)

    return structure_record


def _optional(kind: Any, converter: Converter) -> Hook:
    """``X | None``."""
    (inner,) = (each for each in get_args(kind) if each is not NoneType)
    return lambda value, _: None if value is None else converter.structure(value, inner)


def _sequence(kind: Any, converter: Converter) -> Hook:
    """``tuple[X, ...]`` from a list only: text would be taken apart letter by letter."""
    item_kind = get_args(kind)[0]

    def structure_sequence(value: Any, _: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise Reject("value.list", "{value} is not a list", value=shown(value))
        return tuple(_items(enumerate(value), item_kind, converter).values())

    return structure_sequence


def _mapping(kind: Any, converter: Converter) -> Hook:
    """``Mapping[str, X]`` from a mapping."""
    item_kind = get_args(kind)[1]

    def structure_mapping(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Reject("value.mapping", "{value} stands there, keys with values are expected", value=shown(value))
        return _items(((str(key), item) for key, item in value.items()), item_kind, converter, check=_seen)

    return structure_mapping


def _items(
    items: Iterable[tuple[Any, object]], kind: Any, converter: Converter, check: Callable[[Any], Any] = lambda key: key
) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    failed: list[tuple[Any, Exception]] = []
    for key, item in items:
        try:
            result[check(key)] = converter.structure(item, kind)
        except Exception as error:
            failed.append((key, error))
    if failed:
        raise Several(failed)
    return result
