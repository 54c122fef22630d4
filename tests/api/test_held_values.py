"""What answers hold a caller may vary and take apart with the standard library, all the way down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct

from meshwright.api import ExplainRequest, PlanRequest, explain, plan
from meshwright.frameworks import Framework
from meshwright.value import Value

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 64, "sequence": 8192}


def held(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value inside an answer with the way to it; a framework is a plugin, no value of the answer."""
    yield path, value
    if is_dataclass(value) and not isinstance(value, Framework):
        for each in fields(value):
            yield from held(getattr(value, each.name), f"{path}.{each.name}")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from held(each, f"{path}[{key}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for number, each in enumerate(value):
            yield from held(each, f"{path}[{number}]")


def test_no_answer_holds_a_struct_of_ours() -> None:
    """A ``Value`` is a dataclass to the standard library; any other Struct is not."""
    answers = plan(PlanRequest(**CASE)), explain(ExplainRequest(**CASE))
    every = (each for answer in answers for each in held(answer, type(answer).__name__))
    found = [path for path, value in every if isinstance(value, Struct) and not isinstance(value, Value)]
    assert not found
