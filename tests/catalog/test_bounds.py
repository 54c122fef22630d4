"""From where on a figure of a file is refused: what stands at an end is taken, what lies beyond it is named with its place."""

from __future__ import annotations

from types import SimpleNamespace as Some

import pytest
import yaml

from meshwright.catalog import load_model
from meshwright.catalog.guides import Document, Guides, Passage, Rule, _shown, lines_of
from meshwright.catalog.measured_sheet import FARTHEST, LARGEST_SIZE, LONGEST_S, MOST, _faults
from meshwright.errors import InputError


def record(**more):
    """A block of one cluster with nothing wrong in it."""
    plain = {
        "date": "2026-11-21",
        "machine": "m",
        "software": "s",
        "ranks": 2,
        "passes": {},
        "tiles": (),
        "products": (),
        "cores": (),
        "scale_up": (),
        "network": (),
    }
    return Some(**{**plain, **more})


def timed(measured_s=1.0, formula_s=1.0, **sizes):
    plain = {"rows": 1, "columns": 1, "inner": 1, "groups": 1, "tokens": 1, "head_dim": 1, "ranks": 2, "payload_bytes": 1}
    return Some(**{**plain, **sizes}, seconds=measured_s, formula_s=formula_s, ratio=measured_s / formula_s)


def places(**more):
    return [each.path for each in _faults(record(**more), "here")]


@pytest.mark.parametrize(
    ("make", "where", "inside", "outside"),
    [
        (lambda value: {"ranks": value}, "here.ranks", (1, 10**7), (0, 10**7 + 1)),
        (lambda value: {"machine": "x" * value}, "here.machine", (0, 500), (501,)),
        (
            lambda value: {"passes": {"norm": Some(base=value)}},
            "here.passes.norm",
            (1 / FARTHEST, FARTHEST),
            (0.99 / FARTHEST, 10001),
        ),
        (lambda value: {"tiles": (Some(rows=value, columns=1, ratio=1.0),)}, "here.tiles[0].rows", (1, 10**6), (0, 10**6 + 1)),
        (lambda value: {"tiles": (Some(rows=1, columns=value, ratio=1.0),)}, "here.tiles[0].columns", (1, 10**6), (0, 10**6 + 1)),
        (lambda value: {"tiles": (Some(rows=1, columns=1, ratio=value),)}, "here.tiles[0].ratio", (1e-3, 10.0), (9e-4, 10.1)),
        (lambda value: {"network": (timed(),) * value}, "here.network", (0, MOST), (MOST + 1,)),
        (lambda value: {"network": (timed(ranks=value),)}, "here.network[0].ranks", (2, LARGEST_SIZE), (1, LARGEST_SIZE + 1)),
        (lambda value: {"scale_up": (timed(payload_bytes=value),)}, "here.scale_up[0].payload_bytes", (1, LARGEST_SIZE), (0,)),
        (lambda value: {"products": (timed(inner=value),)}, "here.products[0].inner", (1, LARGEST_SIZE), (0, LARGEST_SIZE + 1)),
        (lambda value: {"cores": (timed(), timed(head_dim=value))}, "here.cores[1].head_dim", (1,), (0,)),
        (lambda value: {"cores": (timed(value, value),)}, "here.cores[0].seconds", (1e-9, LONGEST_S), (9e-10, 1.01 * LONGEST_S)),
        (lambda value: {"cores": (timed(1e-9, value),)}, "here.cores[0].formula_s", (1e-12,), (9e-13,)),
        (
            lambda value: {"cores": (timed(value, 1.0),)},
            "here.cores[0]",
            (1 / FARTHEST, FARTHEST),
            (0.99 / FARTHEST, 1.01 * FARTHEST),
        ),
    ],
)
def test_measured_figures_reach_from_one_end_to_the_other(make, where, inside, outside):
    for value in inside:
        assert places(**make(value)) == []
    for value in outside:
        assert where in places(**make(value))


@pytest.mark.parametrize("date", ["2026-11-21", "1", "2026-11-21T10:00"])
def test_dates(date):
    assert places(date=date) == []
    assert places(date=f" {date}") == places(date="") == ["here.date"]
    assert places(passes={"No": Some(base=1.0)}) == ["here.passes"]


@pytest.mark.parametrize(
    ("path", "low"),
    [
        ("hidden", 1),
        ("vocabulary", 1),
        ("mlp.width", 1),
        ("attention.num_heads", 1),
        ("attention.window_tokens", 1),
        ("position_table", 0),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"hiden": 8}], ids=["alone", "beside another fault"])
def test_sizes_of_a_model_reach_down_to_their_least(tmp_path, path, low, beside):
    block = {
        "hidden": 64,
        "vocabulary": 1000,
        "layers": 4,
        "source": "my own",
        **beside,
        "attention": {"num_heads": 8, "num_key_value_heads": 1, "head_dim": 8},
        "mlp": {"width": 256},
    }
    section, _, key = path.rpartition(".")
    for value in (low - 1, low):
        (block[section] if section else block)[key] = value
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"models": {"mine": block}}))
        try:
            load_model(str(tmp_path / "mine.yaml"))
            said = ""
        except InputError as error:
            said = str(error)
        assert (f"models.mine.{path}: {value} is not within {low}.." in said) == (value < low), said


def test_of_a_guide_in_two_languages_the_english_sentence_is_shown():
    assert lines_of("000:16, 001:21") == lines_of("001:21, 000:16") == "ChatLearn tuning guide, line 21"
    assert lines_of("000:16").endswith("guide, line 16") or "line 16" in lines_of("000:16")
    assert lines_of("001:21, 001:33") == "ChatLearn tuning guide, lines 21, 33"
    book = Guides(
        documents={
            "0": Document(file="a", title="A", language="zh"),
            "1": Document(file="b", title="A", language="en"),
            "2": Document(file="c", title="C", language="zh"),
        },
        rules=(
            Rule(id="r", missions=(), passages=(Passage(document="0", line=1, quote="eins"),), says="", status="holds", judge="j"),
        ),
    )
    every = [Passage(document=document, line=line, quote=f"q{line}") for document, line in (("0", 1), ("1", 2), ("2", 3), ("1", 4))]
    assert _shown(book, every) == 'guide 1 (A), line 2: "q2"; line 4: "q4"; guide 2 (C), line 3: "q3"'
    assert _shown(book, every[:1]) == 'guide 0 (A), line 1: "q1"'
    assert book.passage("0:1").quote == "eins"
