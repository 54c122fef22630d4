"""Keys as rows: what a row writes is what it reads, in every adapter that has rows."""

from __future__ import annotations

import importlib
import pkgutil
from operator import attrgetter
from pathlib import Path

import pytest
from megatron_cases import case_of, layout_of

import meshwright.frameworks
from meshwright.documents.source import Setting, Source
from meshwright.domain.layout import Layout
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.compose import Values
from meshwright.frameworks.keys import NOT, Says, decided, spellings, switched_on, told
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.surface import Surface

CASE = case_of("llama3-8b")
PLAIN = Layout()
ROWS = (
    Says("tp", "tensor_parallel", also=("old.tp",)),
    Says("sp", "sequence_parallel"),
    Says("cp.kind", "context_kind", {"ring": "p2p", "ulysses": "a2a"}, "ulysses", when=lambda plan: plan.cp > 1),
    Says("schedule", "schedule", {"1f1b": "1F1B", "gpipe": "GPipe"}),
    Says("serial", "overlap.gradient_reduce", NOT),
    Says("p2p", "overlap.point_to_point", default=False),
    Says("batch", lambda plan: plan.batch),
    Says("nothing", lambda plan: None),
)


def values(**settings: object) -> Values:
    found = {key: Setting(key=key, value=value) for key, value in settings.items()}
    return Values(source=Source(settings=found), surface=Surface(title="t", releases=("1",), keys={}), release="1")


def test_what_a_plan_writes_stands_in_the_order_of_the_rows():
    plan = Planned(CASE, layout_of(CASE, tensor_parallel=2, sequence_parallel=True), "1")
    assert list(decided(ROWS, plan).items()) == [
        ("tp", 2), ("sp", True), ("schedule", "1F1B"), ("serial", not plan.layout.overlap.gradient_reduce),
        ("p2p", plan.layout.overlap.point_to_point), ("batch", CASE.batch.global_batch_sequences),
    ]
    context = Planned(CASE, layout_of(CASE, context_parallel=2, context_kind="ulysses"), "1")
    assert decided(ROWS, context)["cp.kind"] == "a2a"


def test_switches_that_are_off_do_not_stand():
    assert switched_on({"a": False, "b": True, "c": 0, "d": ""}) == {"b": True, "c": 0, "d": ""}


@pytest.mark.parametrize(("knob", "settings", "value"), [
    ("tensor_parallel", {}, 1), ("tensor_parallel", {"tp": 4}, 4), ("tensor_parallel", {"old.tp": 4}, 4),
    ("tensor_parallel", {"old.tp": 4, "tp": 2}, 2), ("tensor_parallel", {"tp": None, "old.tp": 4}, 4),
    ("sequence_parallel", {}, False), ("sequence_parallel", {"sp": True}, True),
    ("context_kind", {}, "ulysses"), ("context_kind", {"cp.kind": "p2p"}, "ring"), ("context_kind", {"cp.kind": "odd"}, "ulysses"),
    ("schedule", {}, "1f1b"), ("schedule", {"schedule": "GPipe"}, "gpipe"), ("schedule", {"schedule": 3}, "1f1b"),
    ("overlap.gradient_reduce", {}, PLAIN.overlap.gradient_reduce), ("overlap.gradient_reduce", {"serial": True}, False),
    ("overlap.gradient_reduce", {"serial": False}, True),
    ("overlap.point_to_point", {}, False), ("overlap.point_to_point", {"p2p": True}, True),
])
def test_a_knob_is_read_by_its_row(knob, settings, value):
    assert told(ROWS, values(**settings), knob) == value


def test_a_degree_below_one_is_noted():
    files = values(tp=0)
    assert told(ROWS, files, "tensor_parallel") == 1
    assert [each.id for each in files.messages] == ["setting.degree"]


def test_spellings_of_a_knob():
    assert spellings(ROWS, "tensor_parallel") == ("tp", "old.tp")


def tables() -> dict[str, tuple[Says, ...]]:
    """Every table of rows in an adapter, by module and name."""
    found = {}
    for _, name, _ in pkgutil.walk_packages(meshwright.frameworks.__path__, "meshwright.frameworks."):
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, tuple) and value and all(isinstance(each, Says) for each in value):
                found.setdefault(id(value), (f"{name.removeprefix('meshwright.frameworks.')}.{attribute}", value))
    return dict(found.values())


TABLES = tables()


def owner(table: str) -> str:
    """The framework of a table."""
    folder = table.partition(".")[0]
    return next(name for name in frameworks() if name.replace("-", "_") == folder)


def test_there_are_tables():
    assert len(TABLES) >= 15


@pytest.mark.parametrize("table", TABLES)
def test_keys_of_rows_are_keys_of_the_framework(table):
    name = owner(table)
    known = {key for release in framework(name).releases for key in framework(name).at(release).surface().keys}
    assert {row.key for row in TABLES[table]} <= known


@pytest.mark.parametrize("table", TABLES)
def test_what_a_row_writes_it_reads(table):
    rows = TABLES[table]
    for row in rows:
        if callable(row.what):
            continue
        plain = attrgetter(row.what)(PLAIN)
        for value in row.words or ((True, False) if isinstance(plain, bool) else (1, 2, 8)):
            for key in spellings(rows, row.what):
                assert told(rows, values(**{key: row.words[value] if row.words else value}), row.what) == value, (row.key, value)


def test_rows_of_the_guide_are_rows():
    """The three tables of docs/adding-a-framework.md are what their text says."""
    blocks = (Path(__file__).parents[2] / "docs/adding-a-framework.md").read_text(encoding="utf-8").split("```python\n")[1:]
    names: dict[str, object] = {"case": CASE, "layout": layout_of(CASE, tensor_parallel=2), "release": "1.4"}
    names |= {"DEAD": {"model.dtype": "the device"}, "_layers": lambda reading, case: [{"total": 3}]}
    for module in ("rules", "keys", "asking", "planned"):
        names |= vars(importlib.import_module(f"meshwright.frameworks.{module}"))
    for block in blocks[:3]:
        exec(block.partition("```")[0], names)
    assert [limit.id for limit in names["LIMITS"]] == ["trainer.heads", "trainer.precision"]
    assert list(names["settings"])[:2] == ["parallel.tensor", "parallel.engine"]
    assert [check.id for check in names["CHECKS"]] == [
        f"trainer.{name}" for name in ("fused", "sequence", "dead", "connections", "layers")
    ]
