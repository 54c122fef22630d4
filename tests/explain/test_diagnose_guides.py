"""The rules are where they say they stand, and their verdicts come from the case."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from diagnose_cases import CASES, explained, given, judged, seeds

from meshwright.catalog import guides
from meshwright.catalog.guides import cited, markdown
from meshwright.estimate.single import estimate
from meshwright.explain import judge, sections
from meshwright.judging.judges.stated import CITED
from meshwright.judging.predicates import PREDICATES

MISSIONS = {
    "CL1", "CL2", "CL3", "CL4", "CL5", "CL6", "CL7", "CL8", "MS1", "MS2", "MS3", "MS7", "MS8", "MS10",
    "MS11", "MS15", "MG1", "MG2", "MG3", "MG4", "MG5", "MG6", "MG7", "MG8", "MG9", "MG10", "UP1", "UP2", "UP3", "UP7", "GX1",
}


@pytest.mark.skipif(seeds() is None, reason="the guides are not at hand")
def test_every_quote_stands_in_its_line() -> None:
    place, book = seeds(), guides()
    assert place is not None
    lines = {key: (place / document.file).read_text(encoding="utf-8").split("\n") for key, document in book.documents.items()}
    for passage in (*book.passages, *(each for rule in book.rules for each in rule.passages)):
        assert passage.quote in lines[passage.document][passage.line - 1], passage.place


def test_a_citation_shows_title_and_sentence() -> None:
    shown = cited("prediction; guide 003:66", "megatron.accumulation-flag")
    assert shown == 'prediction; guide 003 (Megatron-LM throughput guide), line 66: "--gradient-accumulation-steps 32"'
    both = cited("guide 000:15, 001:20", "chatlearn.context-from-8192")
    assert both.startswith("guide 001 (ChatLearn tuning guide), line 20: \"Recommended to set 2 or larger")
    assert "000" not in both, "one of two languages is enough"
    assert cited("CUDA programming guide") == "CUDA programming guide"
    for rule in guides().rules:
        assert rule.passages[-1].quote in cited(f"guide {rule.places}", rule.id)


def test_every_place_that_the_sources_cite_has_its_sentence() -> None:
    package = Path(__file__).resolve().parents[2] / "src" / "meshwright"
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*") if path.suffix in {".py", ".yaml"}}
    found = [several for text in texts.values() for several in re.findall(r"guide (\d{3}:\d+(?:, \d{3}:\d+)*)", text)]
    places = {place for several in found for place in several.split(", ")}
    assert len(places) > 5
    for place in places:
        assert guides().passage(place).quote in cited(f"guide {place}")
    assert not [path.name for path, text in texts.items() if re.search(r"\bseed 0", text)], "no reader knows a seed"


def test_people_read_the_sentences_and_programs_the_places() -> None:
    explanation = explained(next(iter(CASES)))
    brief, full = (sections(explanation, all_rules=each)[-1].lines for each in (False, True))
    assert set(brief[:-1]) < set(full) and brief[-1].startswith("of the others ")
    for line, judgement in zip(full, explanation.judgements, strict=True):
        words, source = line.split("\n")
        assert judgement.says in words and not re.search(r"\d{3}:\d", words)
        assert source == cited(f"guide {judgement.source}", judgement.rule)


def test_every_mission_line_has_rules() -> None:
    assert {mission for rule in guides().rules for mission in rule.missions} >= MISSIONS


def test_rules_are_complete() -> None:
    rules = guides().rules
    assert len({rule.id for rule in rules}) == len(rules) > 100
    for rule in rules:
        assert rule.judge in PREDICATES, rule.id
        assert rule.passages and rule.says and rule.says.isascii(), rule.id
        assert bool(rule.correction) == (rule.status == "wrong"), rule.id
        assert bool(rule.condition) == (rule.status == "holds-only-if"), rule.id
        assert (rule.cites in CITED) == (rule.judge == "stated"), rule.id
    assert set(PREDICATES) == {rule.judge for rule in rules}, "a predicate that no rule names"
    assert set(CITED) == {rule.cites for rule in rules if rule.cites}


def test_the_page_is_what_the_rules_say() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "guides.md"
    assert page.read_text(encoding="utf-8") == markdown(), "write it again, as the page says"


@pytest.mark.parametrize("name", CASES)
def test_judgements_cite_a_figure_and_read_well(name: str) -> None:
    found = explained(name).judgements
    assert [each.rule for each in found] == [rule.id for rule in guides().rules]
    for each in found:
        assert math.isfinite(each.figure.value), each.rule
        assert each.figure.name and each.figure.unit, each.rule
        assert not re.search(r"[{}]|  |None|nan\b|\binf\b", each.sentence), (each.rule, each.sentence)
        assert each.sentence.isascii(), each.rule
        assert each.verdict == "does-not-apply" or re.search(r"\d", each.sentence), (each.rule, each.sentence)
        assert each.status != "wrong" or each.verdict in ("wrong", "does-not-apply", "holds", "not-followed", "fails")


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_in_general_is_never_advised(name: str) -> None:
    by_class = {"megatron.tensor-by-size"}  # wrong because it has a hole; inside its classes the case decides
    for each in explained(name).judgements:
        if each.status == "wrong" and each.rule not in by_class:
            assert each.verdict in ("wrong", "does-not-apply"), each.rule
        if each.status != "wrong":
            assert each.verdict != "wrong", each.rule


def test_the_bubble_is_in_the_number_of_micro_batches() -> None:
    found = judged("70b-64-nodes", "megatron.bubble-formula")
    layout = given("70b-64-nodes").layout
    assert found.verdict == "wrong"
    assert found.figure.value == pytest.approx(3 / (5 * layout.num_microbatches + 3))
    assert "80.0 %" in found.sentence  # the guide's PP / (PP + mb)


def test_size_classes_leave_out_seventy_billion() -> None:
    assert judged("70b-64-nodes", "megatron.tensor-by-size").verdict == "wrong"
    assert judged("8b-one-node", "megatron.tensor-by-size").verdict == "holds"


def test_the_template_is_no_batch_of_2048() -> None:
    assert "128, not 2048" in judged("70b-64-nodes", "megatron.template-batch").sentence


def test_tokens_at_150_teraflops() -> None:
    each = given("70b-64-nodes")
    own = estimate(each.case, each.layout)
    rate = judged("70b-64-nodes", "megatron.fifteen-thousand-tokens").figure.value
    assert rate == pytest.approx(150e12 / own.model_flops_per_s_per_device * own.tokens_per_s, rel=1e-9)
    assert rate > 10 * 15_000


def test_long_context_and_small_context_are_judged_differently() -> None:
    rule = "chatlearn.context-from-8192"
    assert judged("8b-long", rule).verdict == "holds"
    assert judged("8b-one-node", rule).verdict == "does-not-apply"


def test_expert_rules_need_experts() -> None:
    assert judged("30b-moe", "chatlearn.experts-for-moe").verdict in ("holds", "fails")
    assert judged("8b-long", "chatlearn.experts-for-moe").verdict == "does-not-apply"


def test_full_recompute_where_devices_are_plenty_costs_too_much() -> None:
    assert judged("8b-one-node", "playbook.small-full-recompute").verdict == "fails"
    assert judged("70b-64-nodes", "playbook.small-full-recompute").verdict == "does-not-apply"


def test_alibi_needs_the_model_and_the_framework() -> None:
    assert judged("8b-long", "megatron.alibi").verdict == "does-not-apply"
    assert judged("176b-alibi", "megatron.alibi").verdict == "fails"


def test_one_rule_alone_is_judged_like_all_together() -> None:
    each = given("8b-one-node")
    rule = guides().rule("megatron.communication-15")
    alone = judge(rule, each.case, each.layout, estimate(each.case, each.layout), each.features)
    assert alone == judged("8b-one-node", rule.id)


def decided(name: str, topic: str) -> tuple[str, ...]:
    return next(each.right for each in explained(name).disagreements if each.topic == topic)


def test_contradictions_are_decided_by_the_case() -> None:
    topics = [each.topic for each in explained("70b-64-nodes").disagreements]
    assert topics == [each.topic for each in explained("30b-moe").disagreements]
    assert len({decided(name, "micro-batch") for name in CASES}) > 1
    assert "megatron.micro-batch-sixteen" not in decided("70b-64-nodes", "micro-batch")
    assert "playbook.small-full-recompute" not in decided("8b-one-node", "recompute")
    assert "playbook.data-parallel-zero-three" in decided("7b-torchtitan", "which axis after TP")
    assert "playbook.data-parallel-zero-three" not in decided("70b-64-nodes", "which axis after TP")
    assert decided("70b-64-nodes", "communication") == ("megatron.communication-20", "megatron.communication-15")
    assert decided("30b-moe", "communication") == ()  # ranks of experts wait for the fullest: more than either figure
    assert decided("70b-64-nodes", "stages and micro-batches") == ("chatlearn.pipeline-below-microbatches",)


@pytest.mark.parametrize("name", CASES)
def test_disagreements_quote_their_sides_and_decide_among_them(name: str) -> None:
    for each in explained(name).disagreements:
        assert len(each.sides) >= 2
        assert set(each.right) <= {side.rule for side in each.sides}
        assert all(re.fullmatch(r"(\d{3}:\d+)(, \d{3}:\d+)*", side.source) for side in each.sides)
        assert math.isfinite(each.figure.value)
        assert not re.search(r"[{}]|None|nan\b|\binf\b", each.sentence), each.sentence
