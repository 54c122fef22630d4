"""What one page says of a case agrees with itself: verdicts, contests, what the layout does, what its framework can."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from diagnose_cases import CASES, explained, given, judged

import meshwright as mw
from meshwright.domain.layout import Full, Selective
from meshwright.explain import sections
from meshwright.explain.sections import VERDICTS, _counted
from meshwright.judging.climb import climb
from meshwright.judging.contests import disagreement_about
from meshwright.judging.facts import Facts

DOES = {  # by hand, from the words of the guides: what a layout that follows the advice looks like
    "chatlearn.micro-batch-one": lambda x: x.microbatch_sequences == 1,
    "mindspore.micro-batch-two": lambda x: x.microbatch_sequences == 2,
    "megatron.micro-batch-sixteen": lambda x: x.microbatch_sequences == 16,
    "mindspore.virtual-pipeline": lambda x: x.virtual_stages > 1,
    "chatlearn.virtual-one-or-two": lambda x: x.virtual_stages in (1, 2),
    "megatron.selective-recommended": lambda x: isinstance(x.recompute, Selective),
    "playbook.poor-full-recompute": lambda x: isinstance(x.recompute, Full),
    "playbook.small-full-recompute": lambda x: isinstance(x.recompute, Full),
    "mindspore.recompute-off-if-memory": lambda x: not isinstance(x.recompute, (Full, Selective)),
    "playbook.data-parallel-zero-three": lambda x: x.parameter_shards > 1,
    "megatron.zero-three": lambda x: x.parameter_shards > 1,
    "mindspore.distributed-optimizer": lambda x: x.optimizer_shards > 1,
    "mindspore.unsaturated-sharding": lambda x: 1 < x.optimizer_shards < x.data_parallel * x.context_parallel,
    "megatron.sequence-parallel": lambda x: x.sequence_parallel,
    "megatron.tensor-range": lambda x: 2 <= x.tensor_parallel <= 8,
    "playbook.tensor-to-node": lambda x: x.tensor_parallel == 8,
    "chatlearn.pipeline-for-large-batch": lambda x: x.pipeline_parallel > 1,
    "chatlearn.pipeline-cheap-for-large-batch": lambda x: x.pipeline_parallel > 1,
    "chatlearn.context-from-8192": lambda x: x.context_parallel > 1,
    "chatlearn.overlap-off-first": lambda x: not (x.overlap.gradient_reduce or x.overlap.parameter_gather),
    "megatron.overlap-comm": lambda x: x.overlap.gradient_reduce,
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_to_hold_is_what_the_layout_does(name: str) -> None:
    layout = given(name).layout
    for each in explained(name).judgements:
        if each.verdict in ("holds", "not-followed") and each.rule in DOES:
            assert DOES[each.rule](layout) == (each.verdict == "holds"), each
        assert each.verdict != "holds" or each.followed is not False, each
        assert each.verdict != "not-followed" or each.followed is False, each


@pytest.mark.parametrize("name", CASES)
def test_of_contradicting_rules_one_is_taken_or_a_tie_is_said(name: str) -> None:
    found = explained(name)
    verdicts = {each.rule: each.verdict for each in found.judgements}
    page = "\n".join(line for section in sections(found) for line in section.lines)
    for each in found.disagreements:
        stand = tuple(side.rule for side in each.sides if verdicts[side.rule] in ("holds", "not-followed"))
        if each.decision == "no-question":  # stages, of a layout that has one
            assert not each.right and (not stand or given(name).layout.pipeline_parallel == 1)
            continue
        assert each.right == stand
        assert all(side.verdict == verdicts[side.rule] for side in each.sides)
        assert each.decision == {0: each.decision, 1: "taken"}.get(len(stand), "tie")
        assert (each.decision in ("none", "no-question")) == (not stand)
        words = {"taken": "this case takes", "tie": "a tie between", "none": "none of them"}.get(each.decision)
        assert words is None or f"{each.topic}: {words}" in page
        for side in each.sides:
            assert side.sentence and (each.decision == "no-question" or side.sentence in page)


def test_no_verdict_stands_beside_its_opposite() -> None:
    """Micro-batch 2 was right among the contradictions and failing among the rules of one page."""
    for name in CASES:
        verdicts: dict[str, set[str]] = {}
        for each in explained(name).judgements:
            verdicts.setdefault(each.rule, set()).add(each.verdict)
        for topic in explained(name).disagreements:
            for side in topic.sides:
                verdicts[side.rule].add(side.verdict)
        assert all(len(each) == 1 for each in verdicts.values())


def test_the_template_is_told_which_side_it_takes_with_both_figures_and_lines() -> None:
    """One micro-batch or two: both figures, both guides with their lines, and that the model cannot tell them apart."""
    (section,) = (each for each in sections(explained("70b-template")) if each.title == "Where the guides disagree")
    micro = next(line for line in section.lines if line.startswith("micro-batch:"))
    head, one, two, sixteen = micro.split("\n")
    assert "a tie between" in head and "cannot tell them apart" in head
    for line, guide in ((one, "ChatLearn tuning guide, line 33"), (two, "tuning guide, line 78"), (sixteen, "guide, line 66")):
        assert re.search(r": [\d.]+ s \(tp", line) and line.endswith(guide)
    assert sixteen.startswith("[fails]")


def test_a_rule_of_the_files_is_shown_with_the_sides_that_contradict_it() -> None:
    each = given("70b-template")
    found = disagreement_about(Facts(each.case, each.layout, each.features), "megatron.micro-batch-sixteen")
    assert found == next(topic for topic in explained("70b-template").disagreements if topic.topic == "micro-batch")
    assert disagreement_about(Facts(each.case, each.layout, each.features), "megatron.nic-binding") is None


def test_a_flag_that_does_nothing_is_no_advice_that_holds() -> None:
    """``check`` says that --use-flash-attn does nothing where attention is fused anyway; ``explain`` said that it holds."""
    for name in CASES:
        found = judged(name, "megatron.flash-attention")
        assert found.verdict == ("fails" if given(name).case.implementation.flash_attention else "not-followed")
        assert "--attention-backend flash" in found.sentence


def test_overlap_that_a_framework_lacks_is_not_credited() -> None:
    """ChatLearn's gradients beside the backward fail in the second micro-batch."""
    assert "grad" not in given("8b-chatlearn").features.overlaps
    found = judged("8b-chatlearn", "megatron.overlap-comm")
    assert found.verdict == "does-not-apply" and "after the last backward" in found.sentence
    assert "(p2p)" in judged("8b-chatlearn", "chatlearn.overlap-off-first").sentence


def test_full_recompute_is_for_few_devices() -> None:
    assert judged("70b-template", "playbook.poor-full-recompute").verdict == "does-not-apply"
    assert "devices are not few" in judged("70b-template", "playbook.poor-full-recompute").sentence


def test_the_page_answers_first_and_leaves_out_what_says_nothing_of_this_layout() -> None:
    found = explained("70b-template")
    brief, full = sections(found), sections(found, all_rules=True)
    assert brief[0].title == "In short"
    assert any(line.startswith("the fastest layout found takes ") for line in brief[0].lines)
    assert sum(line.count("\n") + 1 for each in brief for line in each.lines) < 150
    assert sum(line.count("\n") + 1 for each in full for line in each.lines) > 280
    shown = {each.rule for each in found.judgements if f": {each.sentence}\n" in "\n".join(brief[-1].lines)}
    for each in found.judgements:
        follows_badly = each.verdict in ("fails", "wrong") and each.followed
        said = each.rule != "chatlearn.full-saves-most" and (each.verdict == "not-followed" or bool(follows_badly))
        assert (each.rule in shown) == said, each


def test_the_best_single_step_is_named_beside_a_faster_layout_and_only_there() -> None:
    told = next(each for each in map(explained, CASES) if each.fastest is not None and each.fastest.label)
    legal = [each for each in told.sensitivities if each.label is not None]

    def first(ratio: float, **changes: object) -> str:
        steps = tuple(replace(each, fits=True, step_change_ratio=ratio, expected_change_ratio=ratio) for each in legal)
        return " ".join(sections(replace(told, sensitivities=steps, **changes))[0].lines)

    faster, same = (replace(told.fastest, differences=words) for words in (("tp 4 -> 2",), ()))
    assert "the best single step is" in first(-0.1, fastest=faster)
    for page in (first(0.1, fastest=faster), first(-0.1, fastest=same), first(-0.1, fastest=None)):
        assert "the best single step is" not in page
    assert "nothing was found that fits" in first(-0.1, fastest=None)
    assert "nothing was found that is expected to be faster; faster where it fits" in first(-0.1, fastest=same)
    assert "faster where it fits" not in first(0.1, fastest=same)


@pytest.mark.parametrize("name", ["70b-64-nodes", "30b-moe", "8b-one-node", "13b-small-memory"])
def test_a_contest_names_the_best_of_all_where_no_side_is_right_and_only_there(name: str) -> None:
    by_grid = [each for each in explained(name).disagreements if each.figure.name == "expected_spread_ratio"]
    assert by_grid
    for each in by_grid:
        assert each.sentence.startswith("the best of all takes") == (not each.right), each
        assert each.sentence.startswith("within") == (len(each.right) > 1), each


@pytest.mark.parametrize("name", ["8b-one-node", "13b-small-memory"])
def test_one_knob_at_a_time_is_measured_against_the_best_of_all(name: str) -> None:
    facts = Facts(given(name).case, given(name).layout, given(name).features)
    starts = (facts.best.get(each) for each in ("guided-1.5", "guided-3", "guided-any"))
    start = next(each for each in starts if each is not None and each.fits)
    top, _ = climb(facts.case, facts.features, start.layout, start.expected_step_s)
    reached = facts.trial(top).expected_step_s
    found = judged(name, "playbook.one-at-a-time").figure.value
    assert found == pytest.approx(reached / facts.best["any"].expected_step_s - 1.0, rel=1e-6)


def test_the_fastest_that_is_named_is_the_first_plan_or_as_good() -> None:
    """What is faster in the plain grid and riskier, or in stages filled anew, is weighed as ``plan`` weighs it."""
    case = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 2, "global_batch": 256, "sequence": 4096}
    told = mw.explain(mw.ExplainRequest(**case, layout="tp8 dp2 mb1 sp zero1")).to_json()["explanation"]["fastest"]
    plans = mw.plan(mw.PlanRequest(**case, top=2)).to_json()["plans"]
    named = next(each for each in plans if each["label"] == told["label"])
    assert told["step_s"] == named["estimate"]["step_s"]
    behind = named["estimate"]["expected_step_s"] / plans[0]["estimate"]["expected_step_s"]
    assert behind < 1.002  # the page looks by a part of the search's work, which leaves out that pipelines are filled anew


def test_numbers_of_rules_have_the_verb_of_their_number():
    some = [SimpleNamespace(verdict=verdict) for verdict in VERDICTS]
    assert _counted(some) == (  # type: ignore[arg-type]
        "1 holds, 1 would hold and is not followed, 1 does not hold here, 1 is wrong anywhere, 1 does not apply"
    )
    assert _counted(some * 2) == ", ".join(f"2 {words}" for words in VERDICTS.values())  # type: ignore[arg-type]
