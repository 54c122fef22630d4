"""Implementations by name: ``data/implementations.yaml``, one block per framework version."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.sheets import Names, data_path
from meshwright.domain.implementation import Implementation
from meshwright.readers.safe import load_yaml, require_mapping
from meshwright.readers.structure import make_converter, structure

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "implementations.yaml"


@cache
def _blocks() -> Mapping[str, object]:
    document = require_mapping(load_yaml(data_path(FILE)), FILE)
    return require_mapping(document["implementations"], f"{FILE}: implementations")


def implementations() -> tuple[str, ...]:
    """Names of the implementations."""
    return tuple(sorted(_blocks()))


@cache
def implementation(name: str) -> Implementation:
    """An implementation by name; its tables' rows are lists in the order that the file's head explains."""
    canonical = Names("implementation", dict.fromkeys(implementations(), ()), "meshwright catalog implementations").resolve(name)
    where = f"{FILE}: {canonical}"
    block = dict(require_mapping(_blocks()[canonical], where))
    block["name"] = canonical
    block["saved"] = [_saved(row) for table in _tables(block, "saved") for row in table]
    block["passes"] = [_pass(row) for table in _tables(block, "passes") for row in table]
    return structure(make_converter(), block, Implementation, where=where)


def _tables(block: Mapping[str, object], key: str) -> list[list[list[object]]]:
    tables = block[key]
    assert isinstance(tables, list), f"{FILE}: {key} is a list of tables"
    return tables


def _saved(row: list[object]) -> dict[str, object]:
    name, part, width, size, shard, modules, *only = row
    linear = isinstance(size, str)
    number = float(str(size).removeprefix("i"))
    return {
        "name": name, "part": part, "width": width, "bytes_per_element": number, "shard": shard,
        "linear_input": linear, "modules": modules, "only": only[0] if only else "",
    }


def _pass(row: list[object]) -> dict[str, object]:
    name, part, width, forward, backward, shard, modules, *more = row
    kind, only = [*more, "", ""][:2]
    return {
        "name": name, "part": part, "width": width, "forward_bytes": forward, "backward_bytes": backward,
        "shard": shard, "modules": modules, "kind": kind, "only": only,
    }
