"""Rows of rules, mistakes and keys: what they find, what fills their words, and that they speak of keys that exist."""

from __future__ import annotations

import pytest
from megatron_cases import case_of, layout_of

from meshwright.documents.source import Setting, Source
from meshwright.frameworks import framework, frameworks
from meshwright.frameworks.asking import above, equal, is_true, other_than
from meshwright.frameworks.rules import At, Mistake, Rule, checks, limits, values_if
from meshwright.frameworks.settings import Reading, Said

CASE = case_of("llama3-8b")
LAYOUT = layout_of(CASE, tensor_parallel=4)


def reading(environment: dict[str, object] | None = None, **values: object) -> Reading:
    """A reading of some keys and variables."""
    found = {key: Setting(key=key, value=value, file="a.yaml", line=line) for line, (key, value) in enumerate(values.items(), 1)}
    variables = {name: Setting(key=name, value=value, file="a.sh", line=9) for name, value in (environment or {}).items()}
    return Reading(framework="test", version="1", source=Source(settings=found, environment=variables), said=Said())


def found(at: At | tuple[At, ...], where: Reading) -> list[tuple[str, object, object, str]]:
    """Text, value, expected and place of what one mistake finds."""
    (check,) = checks("trainer", (Mistake("rule", "{key} is {value}", at),))
    return [
        (each.message.template.format(**each.message.values), each.value, each.expected, each.message.path)
        for each in check.findings(where, None)
    ]


def test_words_are_filled_by_the_plan_and_by_what_the_expression_gives():
    rows = (
        Rule("heads", "{heads} heads on {tp} ranks", lambda plan: plan.heads % 3),
        Rule("own", "{heads} of {model}", lambda plan: values_if(plan.tp > 1, heads="some"), "start", "model"),
        Rule("none", "never", lambda plan: plan.tp > 8),
        Rule("empty", "no values", lambda plan: values_if(plan.tp > 1)),
    )
    broken = [limit.check(CASE, LAYOUT) for limit in limits("trainer", rows)]
    assert [str(message) if message else None for message in broken] == [
        "layout: 32 heads on 4 ranks", "model: some of llama3-8b", None, "layout: no values"
    ]


def test_a_release_has_the_rows_that_name_it_or_none():
    rows = (Rule("old", "", bool, releases=("1",)), Rule("new", "", bool, releases=("2", "3")), Rule("x", "", bool))
    assert [limit.id for limit in limits("t", rows, release="2")] == ["t.new", "t.x"]
    mistakes = (Mistake("old", "", At("a"), releases=("1",)), Mistake("every", "", At("a")))
    assert [check.id for check in checks("t", mistakes, release="2")] == ["t.every"]


def test_the_release_is_known_to_an_expression():
    (limit,) = limits("t", (Rule("x", "{release}", lambda plan: plan.release == "2"),), release="2")
    assert str(limit.check(CASE, LAYOUT)) == "layout: 2"


@pytest.mark.parametrize(("value", "times"), [(True, 1), ("true", 0), (1, 0), (None, 0)])
def test_a_value_is_tested_at_its_key(value, times):
    assert found(At("a", "b", is_true), reading(a=value)) == [("a is True", True, "b", "a.yaml:1")] * times
    assert found(At("b", None, is_true), reading(a=value)) == []


def test_what_stands_beside_a_key_and_what_does_not():
    at = At("a", beside=("b",), without=("c",))
    files = ({"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"b": 1})
    assert [len(found(at, reading(**each))) for each in files] == [0, 1, 0, 0]
    tested = At("a", beside={"b": above(1), "c": equal(None, 3)})
    files = ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": True}, {"a": 1, "b": 2, "c": 4}, {"a": 1, "b": 2, "c": 3})
    assert [len(found(tested, reading(**each))) for each in files] == [0, 1, 0, 0, 1]


def test_a_row_without_a_key_has_no_place():
    assert found(At("", "a", without=("a",)), reading(b=1)) == [(" is None", None, "a", "")]
    assert found(At("", "a", without=("a",)), reading(a=1)) == []


def test_a_variable_is_a_key_with_a_dollar():
    at = At("$NCCL_DEBUG", "WARN", other_than("WARN"))
    assert found(at, reading({"NCCL_DEBUG": "INFO"})) == [("$NCCL_DEBUG is INFO", "INFO", "WARN", "a.sh:9")]
    assert found(at, reading({"NCCL_DEBUG": "WARN"})) == found(at, reading(NCCL_DEBUG="INFO")) == []


def test_values_of_when_win_over_those_of_the_row():
    at = At("a", "row", when=lambda found: {"expected": "when"}, values={"value": "row"})
    assert found(at, reading(a=1)) == [("a is row", "row", "when", "a.yaml:1")]
    assert found(At("a", when=lambda found: False), reading(a=1)) == []


def test_rows_of_one_mistake_are_found_in_their_order():
    assert [text for text, *_ in found((At("b"), At("a")), reading(a=1, b=2))] == ["b is 2", "a is 1"]


def test_a_framework_says_when_a_key_is_given():
    (check,) = checks("t", (Mistake("x", "", At("a")),), given=lambda found, key: found.source.value(key) is not None)
    assert [len(list(check.findings(reading(a=value), None))) for value in (None, 1)] == [0, 1]


@pytest.mark.parametrize("name", frameworks())
def test_rules_have_names_of_their_own(name):
    """A rule has one identifier in a release, and words that say something."""
    for release in framework(name).releases:
        there = framework(name).at(release)
        for rules in (there.limits, there.checks):
            ids = [each.id for each in rules]
            assert len(ids) == len(set(ids)) and all(each.words for each in rules), release
