"""What adapters share: limits from tables, joined words, and what checks ask of a reading."""

from __future__ import annotations

import pytest

from meshwright.documents.source import UNKNOWN, Setting, Source
from meshwright.frameworks.asking import at, count_of, differs, place_of, whole
from meshwright.frameworks.deepspeed.mistakes import removed, sections
from meshwright.frameworks.rules import Rule, limits, words_if
from meshwright.frameworks.settings import Reading, Said


def reading(**values: object) -> Reading:
    """A reading whose keys stand on lines 1, 2, ..."""
    settings = {key: Setting(key=key, value=value, file="a.yaml", line=line) for line, (key, value) in enumerate(values.items(), 1)}
    return Reading(framework="test", version="1", source=Source(settings=settings), said=Said())


def test_a_finding_names_value_place_and_what_would_be_right():
    setting = reading(tp=3).source.settings["tp"]
    assert at(setting, 4, heads=64) == {"value": 3, "path": "a.yaml:1", "expected": 4, "heads": 64}
    assert at(setting, 4, value="three")["value"] == "three"
    assert at(None, 4) == {"value": None, "path": "", "expected": 4}


@pytest.mark.parametrize(
    ("value", "expected"), [("8", 8), (16, 16), ("08", 8), ("-1", None), ("\u00b2", None), ("9" * 5000, None), (None, None)]
)
def test_a_count_is_read_from_text_and_nothing_else(value, expected):
    assert whole(value) == expected


def test_the_place_is_that_of_the_first_key_that_stands_there():
    found = reading(tp=3, pp=2)
    assert place_of(found, "cp", "pp", "tp") == "a.yaml:2"
    assert place_of(found, "cp") == ""


@pytest.mark.parametrize(("value", "count"), [(3, 3), (0, 0), (True, 7), ("3", 7), (None, 7), (UNKNOWN, 7)])
def test_only_whole_numbers_count(value, count):
    assert count_of(reading(tp=value), "tp", 7) == count


@pytest.mark.parametrize(("value", "other"), [("1", False), (1, False), ("8", True), (None, True), (UNKNOWN, False)])
def test_a_variable_that_only_the_run_knows_is_nothing_else(value, other):
    assert differs(Setting(key="CUDA_DEVICE_MAX_CONNECTIONS", value=value), "1") is other


def test_a_variable_that_is_not_set_is_something_else():
    assert differs(None, "1")


def test_words_of_what_holds_are_joined():
    reasons = ((1, "one"), ("", "two"), (True, "three"))
    assert words_if("knobs", reasons, between="; ", model="m") == {"knobs": "one; three", "model": "m"}
    assert words_if("knobs", ((False, "one"), (0, "two"))) is None


def test_a_framework_says_a_rule_of_the_table_in_its_own_words():
    rules = [Rule(name, "plain", lambda plan: None, "never", "model") for name in ("heads", "width", "batch")]
    found = limits("trainer", rules, words={"width": ("its own", "start")}, skip=("batch",))
    assert [(limit.id, limit.words, limit.noticed, limit.path) for limit in found] == [
        ("trainer.heads", "plain", "never", "model"),
        ("trainer.width", "its own", "start", "model"),
    ]


def test_each_section_of_deepspeed_refuses_extra_keys_or_passes_them_on():
    assert set(sections().values()) == {"refused", "passed on"}
    assert sections()["zero_optimization"] == "refused"
    assert removed("0.18") == {}
    assert all("removed" in words for words in removed("0.19").values())
