"""Plain data becomes dataclasses, strictly: no coercion, no unknown key, and every fault at once with its path.

cattrs does the walking; the hooks here refuse what it would convert in silence (``"4096"`` to 4096, True to 1). It is imported
where strange data is read; the files of this package, which a test reads by it, are converted by msgspec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from meshwright.errors import InputError, Message, did_you_mean
from meshwright.readers.names import name_fault
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import cattrs

T = TypeVar("T")


class Reject(ValueError):
    """Raised by a hook: what is wrong with one value."""

    def __init__(self, id: str, template: str, **values: object) -> None:
        """Keep the pieces of the message; the walker adds the path."""
        super().__init__(template)
        self.id, self.template, self.values = id, template, values


class Several(ValueError):
    """Faults of several items of one list or mapping."""

    def __init__(self, parts: list[tuple[Any, Exception]]) -> None:
        """Keep key and fault of every item."""
        super().__init__("several faults")
        self.parts = parts


def make_converter() -> cattrs.Converter:
    """A converter that refuses coercion, unknown keys, and text in which something hides."""
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(bool, _boolean)
    converter.register_structure_hook_func(_has_origin(Literal), _word)
    converter.register_structure_hook_factory(is_dataclass, lambda kind: record_hook(kind, converter))
    converter.register_structure_hook_factory(_has_origin(tuple), lambda kind: _sequence(kind, converter))
    converter.register_structure_hook_factory(_has_origin(dict, Mapping), lambda kind: _mapping(kind, converter))
    return converter


def structure(converter: cattrs.Converter, data: object, kind: type[T], *, where: str) -> T:
    """``data`` as ``kind``, or an ``InputError`` with a message for every fault."""
    try:
        return converter.structure(data, kind)
    except Exception as error:
        messages = list(faults(error, where))
        if not messages:
            raise
        raise InputError(messages) from None


def structure_shipped(
    data: object, kind: type[T], *, where: str, converter: Callable[[], cattrs.Converter] = make_converter
) -> T:
    """What a file of this package holds as ``kind``; of what cannot be that ``structure`` says every fault.

    Holds:   it is what ``structure`` makes of it by the converter: a test reads every file by both.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        return structure(converter(), data, kind, where=where)


def faults(error: BaseException, path: str) -> Iterator[Message]:
    """Every fault inside an exception of cattrs, as messages with paths."""
    import cattrs

    if isinstance(error, cattrs.ClassValidationError):
        noted, plain = error.group_exceptions()
        for inner, note in noted:
            if isinstance(inner, KeyError):
                yield Message("key.missing", "is missing", {}, join(path, note.name))
            else:
                yield from faults(inner, join(path, note.name))
        for inner in plain:
            yield from faults(inner, path)
    elif isinstance(error, Several):
        for key, inner in error.parts:
            yield from faults(inner, join(path, key))
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = [field.name for field in fields(error.cl)]
        for key in sorted(error.extra_fields, key=str):
            yield Message(
                "key.unknown", "is no known key{hint}; known: {known}",
                {"hint": did_you_mean(str(key), known), "known": known}, join(path, key),
            )
    elif isinstance(error, Reject):
        yield Message(error.id, error.template, error.values, path)
    elif isinstance(error, InputError):
        yield from error.messages


def join(path: str, key: object) -> str:
    """A path one step deeper: ``a.b`` for keys, ``a[0]`` for positions."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def _has_origin(*origins: Any) -> Callable[[Any], bool]:
    """Whether a type is one of the generic types, subscripted."""
    return lambda kind: get_origin(kind) in origins


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


def record_hook(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """Structure a dataclass from a mapping; for hooks that check the result further.

    What is right is read field by field; where anything is wrong cattrs reads it again and says every fault with its path, by a
    function that it compiles for the class.
    """
    from cattrs.gen import make_dict_structure_fn

    types = get_type_hints(kind)
    known = {field.name: types[field.name] for field in fields(kind) if field.init}

    @cache
    def strictly() -> Callable[[Any, Any], Any]:
        return make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

    def structure_record(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Reject("value.mapping", "{value} stands there, keys with values are expected", value=shown(value))
        try:
            return kind(**{key: converter.structure(item, known[key]) for key, item in value.items()})
        except Exception:
            return strictly()(value, kind)

    return structure_record


def _sequence(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """``tuple[X, ...]`` from a list only: text would be taken apart letter by letter."""
    item_kind = get_args(kind)[0]

    def structure_sequence(value: Any, _: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise Reject("value.list", "{value} is not a list", value=shown(value))
        return tuple(_items(enumerate(value), item_kind, converter).values())

    return structure_sequence


def _mapping(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """``Mapping[str, X]`` from a mapping."""
    item_kind = get_args(kind)[1]

    def structure_mapping(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Reject("value.mapping", "{value} stands there, keys with values are expected", value=shown(value))
        return _items(((str(key), item) for key, item in value.items()), item_kind, converter, check=_seen)

    return structure_mapping


def _items(
    items: Iterable[tuple[Any, object]], kind: Any, converter: cattrs.Converter, check: Callable[[Any], Any] = lambda key: key
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
