"""Implementations by name: ``data/implementations.yaml``, one block per framework version."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from meshwright.catalog.sheets import Names, data_path
from meshwright.domain.implementation import Compilation, Implementation
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import structure_shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "implementations.yaml"


@cache
def _document() -> Mapping[str, object]:
    return require_mapping(load_shipped(data_path(FILE)), FILE)


def _blocks() -> Mapping[str, object]:
    return require_mapping(_document()["implementations"], f"{FILE}: implementations")


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
    return structure_shipped(_with_rows(block), Implementation, where=where)


def _with_rows(block: Mapping[str, object]) -> dict[str, object]:
    """A block whose tables are rows by name."""
    rows = {
        key: [read(row) for table in (*_tables(block, key), *(_shared(block, kind) if key == kind else ())) for row in table]
        for kind, read in (("saved", _saved), ("passes", _pass)) for key in (kind, f"score_{kind}") if key in block
    }
    own = {key: value for key, value in block.items() if key not in ("mixer_saved", "mixer_passes")}
    return {**own, **rows}


def _shared(block: Mapping[str, object], kind: str) -> list[list[list[object]]]:
    """The tables of linear mixers and of recent attention that stand behind each implementation's own."""
    tables = require_mapping(_document()["tables"], f"{FILE}: tables")
    mixers = _tables(block, f"mixer_{kind}") if f"mixer_{kind}" in block else [tables[f"mixer-{kind}"]]
    return [*mixers, tables[f"recent-{kind}"]]


def _tables(block: Mapping[str, object], key: str) -> list[list[list[object]]]:
    tables = block[key]
    assert isinstance(tables, list), f"{FILE}: {key} is a list of tables"
    return tables


def _saved(row: list[object]) -> dict[str, object]:
    name, part, width, size, shard, modules, *more = row
    only, offload = [*more, "", ""][:2]
    linear = isinstance(size, str)
    number = float(str(size).removeprefix("i"))
    assert isinstance(modules, list), f"{FILE}: modules of {name} are a list"
    return {
        "name": name, "part": part, "width": width, "bytes_per_element": number, "shard": shard, "linear_input": linear,
        "modules": [each for each in modules if not each.startswith("+")],
        "kept_by": [each.removeprefix("+") for each in modules if each.startswith("+")], "only": only, "offload": offload,
    }


def _pass(row: list[object]) -> dict[str, object]:
    name, part, width, forward, backward, shard, modules, *more = row
    kind, only = [*more, "", ""][:2]
    return {
        "name": name, "part": part, "width": width, "forward_bytes": forward, "backward_bytes": backward,
        "shard": shard, "modules": modules, "kind": kind, "only": only,
    }
