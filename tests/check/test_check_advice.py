"""The guides' rules beside files: followed to their cost, broken although they hold, silent otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from check_cases import found, ids, judged, megatron, megatron_text

from meshwright.catalog import guides
from meshwright.check import Question, check
from meshwright.check.habits import LAYOUT, RULES, SPELLINGS, VARIABLES
from meshwright.frameworks import File, framework
from meshwright.frameworks.surface import Key
from meshwright.judging.following import ABLE, FOLLOWS
from meshwright.report.findings import finding_lines

pytestmark = pytest.mark.usefixtures("alone", "unrivalled")


def test_every_rule_of_the_tables_is_one_of_the_guides():
    known = {rule.id for rule in guides().rules}
    assert known >= RULES
    assert known >= set(FOLLOWS) >= {*ABLE, *LAYOUT}
    assert {*LAYOUT, *SPELLINGS, *VARIABLES} == RULES


@pytest.mark.parametrize("rule", [name for name, each in SPELLINGS.items() if each.keys[0].startswith("--")])
def test_a_flag_that_a_guide_advises_wrongly_is_named_with_the_guides_line(rule):
    spelling = SPELLINGS[rule]
    value = next(each for each in (True, "dynamic", 3) if spelling.wanted(each))
    checked = judged({"train.sh": megatron_text({spelling.keys[0]: value})}, "megatron@0.16")
    says = next(each for each in guides().rules if each.id == rule)
    if says.status != "wrong":  # without a case nobody can tell
        assert not found(checked, f"guide.{rule}")
        return
    (finding,) = found(checked, f"guide.{rule}")
    assert says.places in finding.source
    assert finding.message.path.startswith("train.sh:")
    quiet = judged({"train.sh": megatron_text()}, "megatron@0.16")
    assert not found(quiet, f"guide.{rule}")


def test_sequence_parallelism_left_off_is_advised_where_it_pays():
    off = megatron({"--sequence-parallel": None})
    (finding,) = found(off, "guide.megatron.sequence-parallel")
    assert finding.severity == "advice"
    assert "003:70" in finding.source
    assert "guide.megatron.sequence-parallel" not in ids(megatron())


def test_a_micro_batch_above_the_stages_is_followed_to_its_cost():
    wide = megatron({"--micro-batch-size": 16, "--pipeline-model-parallel-size": 8})
    assert "guide.megatron.micro-batch-above-stages" in ids(wide)


def test_advice_alone_never_fails_a_check():
    assert megatron({"--sequence-parallel": None}).ok


def test_a_flag_that_the_framework_has_after_all_is_not_called_wrong():
    named = framework("megatron@0.16")
    surface = named.surface()
    flag = "--use-torch-compile"
    key = Key(name=flag, kind="switch", default="", since=0, until=len(surface.releases) - 1)
    able = replace(named, surface=lambda: replace(surface, keys={**surface.keys, flag: (key,)}))
    reading = named.read([File(path="train.sh", text=megatron_text({flag: True}))])
    for judge, times in ((named, 1), (able, 0)):
        checked = check(Question(framework=judge, reading=reading))
        assert len(found(checked, "guide.megatron.torch-compile")) == times


def test_advice_that_other_guides_contradict_is_shown_with_the_side_that_is_right():
    """Micro-batch 16 was set against "any micro-batch", and no other guide was named."""
    wide = megatron({"--micro-batch-size": 16})
    (finding,) = found(wide, "guide.megatron.micro-batch-sixteen")
    assert "003:66" in finding.source
    sides = str(finding.message.values["sides"]).split()
    assert sides and set(sides) <= {"chatlearn.micro-batch-one", "mindspore.micro-batch-two"}
    for rule in sides:
        assert guides().rule(rule).places in finding.source and f'"{guides().rule(rule).says}" (micro-batch' in str(finding.message)
    shown = "\n".join(str(getattr(each, "renderable", each)) for each in finding_lines(finding))
    assert "micro-batch-size=2大概率较优" in shown or "mindspore.micro-batch-two" not in sides
