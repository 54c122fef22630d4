"""Implementations by name: ``data/implementations.yaml``, one block per framework version."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.sheets import Names, data_path
from meshwright.domain.implementation import Compilation, Implementation
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
    if other := block.pop("switched", None):
        rows = _with_rows(require_mapping(_blocks()[str(other)], f"{FILE}: {other}"))
        block["switched"] = {field.name: rows[field.name] for field in fields(Compilation)}
    return structure(make_converter(), _with_rows(block), Implementation, where=where)


def _with_rows(block: Mapping[str, object]) -> dict[str, object]:
    """A block whose tables are rows by name."""
    rows = {
        key: [read(row) for table in _tables(block, key) for row in table]
        for kind, read in (("saved", _saved), ("passes", _pass)) for key in (kind, f"score_{kind}") if key in block
    }
    return {**block, **rows}


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
