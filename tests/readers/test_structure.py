"""Strict structuring: nothing is converted in silence, all faults come at once with their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from meshwright.errors import InputError
from meshwright.readers.structure import make_converter, structure


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: int
    kind: Literal["red", "green"] = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    rate: float
    on: bool = True
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    named: Mapping[str, Inner] = field(default_factory=dict)
    words: tuple[str, ...] = ()


def make(**data: object) -> Outer:
    return structure(make_converter(), {"name": "n", "rate": 1, **data}, Outer, where="f.yaml")


def test_good_data() -> None:
    made = make(rate=2, inner={"size": 1}, many=[{"size": 2}], named={"a": {"size": 3, "kind": "green"}}, words=["x"])
    assert made.rate == 2.0
    assert isinstance(made.rate, float)
    assert made.inner == Inner(size=1)
    assert made.many == (Inner(size=2),)
    assert made.named == {"a": Inner(size=3, kind="green")}
    assert make(inner=None).inner is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"name": 3}, "f.yaml.name: 3 is not text"),
        ({"rate": "1e-5"}, "f.yaml.rate: '1e-5' is not a number but text; YAML reads 1e-5 as text"),
        ({"rate": True}, "f.yaml.rate: true is not a number"),
        ({"rate": float("inf")}, "f.yaml.rate: inf is not finite"),
        ({"on": 1}, "f.yaml.on: 1 is not true or false"),
        ({"inner": {"size": 4.0}}, "f.yaml.inner.size: 4.0 is not a whole number"),
        ({"inner": [1]}, "f.yaml.inner: [1] stands there, keys with values are expected"),
        ({"many": {"size": 1}}, "f.yaml.many: {size: 1} is not a list"),
        ({"many": [{"size": 1}, {"size": None}]}, "f.yaml.many[1].size: null is not a whole number"),
        (
            {"named": {"a": {"size": 1, "kind": "gren"}}},
            "f.yaml.named.a.kind: 'gren' is none of red, green; did you mean",
        ),
        ({"words": "abc"}, "f.yaml.words: 'abc' is not a list"),
        ({"rat": "x"}, "f.yaml.rat: is no known key; did you mean rate?"),
    ],
)
def test_each_fault_has_its_path(data: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**data)
    assert any(expected in str(message) for message in caught.value.messages)


def test_all_faults_at_once() -> None:
    with pytest.raises(InputError) as caught:
        structure(make_converter(), {"rate": "x", "on": "no", "words": [1, 2], "extra": 0}, Outer, where="f")
    paths = {message.path for message in caught.value.messages}
    assert paths == {"f.name", "f.rate", "f.on", "f.words[0]", "f.words[1]", "f.extra"}


@pytest.mark.parametrize("data", [None, [], 3, "text"])
def test_a_document_of_another_kind(data: object) -> None:
    with pytest.raises(InputError, match="keys with values are expected"):
        structure(make_converter(), data, Outer, where="f")
