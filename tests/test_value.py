"""Values that a caller holds: frozen, and dataclasses to the functions of ``dataclasses``."""

import copy
import pickle
from dataclasses import MISSING, asdict, fields, is_dataclass, replace

import pytest
from msgspec import field

import meshwright as mw
from meshwright.value import Value


class Span(Value, frozen=True, kw_only=True):
    first: int
    last: int = 9
    names: dict[str, int] = field(default_factory=dict)


class Named(Span, frozen=True, kw_only=True):
    inner: Span
    name: str = ""


def test_the_functions_of_dataclasses_take_a_value() -> None:
    """``replace``, ``fields``, ``asdict`` and ``is_dataclass``, of a class and of the one that it is made from."""
    span = Span(first=1)
    named = Named(first=2, inner=span, name="a")
    assert is_dataclass(named) and is_dataclass(Named) and not is_dataclass(3)
    assert [each.name for each in fields(Span)] == ["first", "last", "names"]
    assert [each.name for each in fields(named)] == ["first", "last", "names", "inner", "name"]
    assert [each.default for each in fields(Span)] == [MISSING, 9, MISSING]
    assert fields(Span)[2].default_factory is dict and fields(Span)[2].default_factory() == {}
    assert asdict(named) == {"first": 2, "last": 9, "names": {}, "inner": {"first": 1, "last": 9, "names": {}}, "name": "a"}
    assert replace(named, last=3) == Named(first=2, last=3, inner=span, name="a") != named
    with pytest.raises(TypeError):
        replace(span, missing=1)


def test_a_value_is_frozen_equal_by_its_fields_and_can_be_copied() -> None:
    """As a frozen dataclass is."""
    layout = mw.parse_layout("tp2 dp4 mb1", num_devices=8, global_batch_sequences=8)
    assert copy.copy(layout) == pickle.loads(pickle.dumps(layout)) == layout == replace(layout) != replace(layout, data_parallel=2)
    assert len({layout, replace(layout)}) == 1
    with pytest.raises(AttributeError):
        layout.data_parallel = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", [each for each in vars(mw).values() if isinstance(each, type) and issubclass(each, Value)])
def test_fields_are_what_a_value_is_made_of(kind: type[Value]) -> None:
    """Of every class that the package names: in the order in which it stands there."""
    assert tuple(each.name for each in fields(kind)) == kind.__struct_fields__
