"""Every rule by its own example: what triggers it, what does not, what mends it; straight from the table."""

from __future__ import annotations

from collections import Counter

from tests.draws import together

from meshwright.catalog.guides import cited
from meshwright.frameworks.variables import habits
from meshwright.lint.rule import rules
from meshwright.lint.run import Wanted, findings_of, mended_text

FILES = {
    "Python": "train.py",
    "environment": "train.sh",
    "launch script": "train.sh",
    "DeepSpeed JSON": "ds.json",
    "accelerate YAML": "accelerate.yaml",
    "MindSpore YAML": "run.yaml",
    "any file": "train.py",
}
RULES = [rule for rule in rules().values() if rule.bad]


def found(rule, text):
    return findings_of(text, FILES[rule.looks_at], Wanted(select=(rule.id,)))


@together("rule", RULES, called=lambda rule: rule.id)
def test_a_rule_finds_its_example_and_nothing_in_the_other(rule):
    bad = found(rule, rule.bad)
    assert bad, "what triggers it"
    assert found(rule, rule.good) == [], "what does not"
    assert all(each.severity == rule.severity and each.source == rule.source for each in bad)
    assert all("{" not in each.message.words.replace(str(each.message.values["code"]), "") for each in bad)
    lines = rule.bad.split("\n")
    assert all(1 <= each.line <= len(lines) and 1 <= each.column <= len(lines[each.line - 1]) + 1 for each in bad)
    assert any(each.edits for each in bad) == bool(rule.fix), "what --fix is said to write"
    if rule.fix:
        mended = mended_text(rule.bad, FILES[rule.looks_at], Wanted(select=(rule.id,)))
        assert mended != rule.bad
        assert found(rule, mended) == []


def test_the_table_is_large_enough_and_each_row_is_whole():
    looks = Counter(rule.looks_at for rule in rules().values())
    assert len(rules()) >= 60
    assert looks["Python"] >= 30
    for rule in rules().values():
        assert all((rule.says, rule.why, rule.source, rule.purpose in ("speed", "memory", "both"))), rule.id
        assert rule.severity in ("error", "warning", "advice")
        if "guide" in rule.source:
            assert cited(rule.source), rule.source


def test_rules_of_variables_are_the_rows_that_check_asks():
    assert {habit.id for habit in habits()} <= set(rules())


def test_purposes_part_the_rules_and_only_an_analysis_of_memory_wants_streams_synchronised():
    text = "import mindspore as ms\nms.set_context(pynative_synchronize={})\n"
    on, off = text.format(True), text.format(False)

    def ids(code, **wanted):
        return [each.id for each in findings_of(code, "train.py", Wanted(**wanted))]

    assert ids(on) == ids(on, purpose="speed") == ["mindspore.synchronize"]
    assert ids(off) == ids(off, purpose="speed") == ids(on, purpose="memory") == []
    assert ids(off, purpose="memory") == ["mindspore.synchronize-for-memory"]
    assert mended_text(off, "train.py", Wanted(purpose="memory")) == on
