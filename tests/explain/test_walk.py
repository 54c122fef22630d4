"""The guide's way to a layout: as one goes it by hand, legal at every step, and never better than the search."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from diagnose_cases import case_of

from meshwright.catalog.guides import guides
from meshwright.domain.layout import Full
from meshwright.estimate import estimate
from meshwright.frameworks import framework
from meshwright.judging.ground import Ground
from meshwright.judging.walk import TAKES, plain, walk
from meshwright.judging.walk_choices import CHOICES
from meshwright.search import SearchOptions, layout_refusals, plan
from meshwright.search.plan import TIE

CASES = {
    "70b": ("llama3-70b", "h100-sxm", 512, 1024, 8192, "megatron"),
    "405b": ("llama3.1-405b", "h100-sxm", 128, 128, 8192, "megatron"),
    "mixtral": ("mixtral-8x7b", "h100-sxm", 64, 256, 4096, "megatron"),
    "few sequences": ("llama2-13b", "a100-80g-sxm", 64, 16, 4096, "megatron"),
    "no pipeline": ("llama3-8b", "h100-sxm", 64, 128, 32768, "chatlearn@fsdp"),
    "always sharded": ("qwen2.5-7b", "ascend-910b", 8, 64, 8192, "mindspeed-llm"),
    "one device": ("llama3.2-1b", "h200", 1, 8, 4096, "torchtitan"),
}


@cache
def ground(name: str) -> Ground:
    *named, runs_on = CASES[name]
    chosen = framework(runs_on)
    case = case_of(*named, chosen.implementation)
    chosen = chosen.for_case(case)
    return Ground(
        case=case, features=chosen.features, acceptable=lambda layout: not chosen.check(case, layout),
        said=lambda layout: chosen.overlap(case, layout),
    )


@cache
def gone(name: str):
    """The walk, and the best plan beside it."""
    own = ground(name)
    found = plan(own.case, own.features, SearchOptions(top=1, balance=False), acceptable=own.acceptable, said=own.said)
    best = found.plans[0].estimate
    return walk(own, best), best


BY_HAND = {
    # 70.6 B / 4 B = 17.6: sixteen parts are nearer than 32, eight of them in a node; 1,024 sequences for 512 devices are many, and
    # two stages there are; 8,192 tokens: cp2, so dp16 and 64 micro-batches for two stages. Only sharded it fits.
    "70b": ["tp8 cp1 pp2", "tp8 pp2", "cp2", "tp8 pp2", "zero1", "tp8 cp2 pp2", "recompute=none", "vp2", "mb2", "overlap=p2p"],
    # 405 / 4 = 101: 128 parts are all devices, so nothing is left to shard, grow or split over; recomputed it fits.
    "405b": ["tp8 cp1 pp16", "tp8 pp16", "cp1", "tp8 pp16", "zero0", "tp8 cp1 pp16", "recompute=full", "vp2", "mb1",
             "overlap=none"],
    # 46.7 / 4 = 11.7: sixteen parts are nearer than eight, and eight experts go no further than ep8, so etp2 (which needs tp2);
    # then EP in the place of ETP: ep16 is not legal, ep8 is. Many sequences: two stages. 4,096 tokens are not long.
    "mixtral": ["tp2 cp1 pp1 ep8 etp2", "ep8 etp1", "tp2 pp2", "cp1", "tp2 pp2", "zero1", "tp2 cp1 pp2 ep8 etp1", "recompute=none",
                "vp2", "mb1", "overlap=p2p"],
    # 13 / 4 = 3.25: four parts, in a node; 64 devices leave sixteen replicas for sixteen sequences, fewer than devices: no stages.
    "few sequences": ["tp4 cp1 pp1", "tp4 pp1", "cp1", "tp4 pp1", "zero1", "tp4 cp1 pp1", "recompute=none", "vp1", "mb1",
                      "overlap=none"],
}


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_the_walk_is_the_one_that_one_goes_by_hand(name):
    assert [step.choice for step in gone(name)[0]] == BY_HAND[name]


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_choice_is_legal_and_the_search_is_never_slower(name):
    own, (steps, best) = ground(name), gone(name)
    assert steps
    for step in steps:
        layout = step.estimate.layout
        assert layout_refusals(own.case, own.features, layout) == ()
        assert own.acceptable(layout)
        assert layout.world == own.case.cluster.num_devices
        assert layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches == own.case.batch.global_batch_sequences
        assert (step.loss_ratio is None) == (not step.estimate.fits)
        if step.loss_ratio is not None and layout.overlap == own.said(layout):
            assert step.loss_ratio >= -TIE, step
            assert step.loss_ratio == pytest.approx(step.estimate.step_s / best.step_s - 1.0)  # priors know no risk


def test_recompute_is_the_first_that_fits_and_tried_sizes_are_the_fastest_that_fit():
    """Asked of the estimates one by one, not of the walk."""
    own, (steps, _) = ground("405b"), gone("405b")
    before = next(step for step in steps if step.step == "no running out of memory").estimate
    chosen = next(step for step in steps if step.step == "recompute").estimate
    assert not before.fits
    assert chosen.layout == replace(before.layout, recompute=Full())
    sizes = {mb: replace(steps[-3].estimate.layout, microbatch_sequences=mb, num_microbatches=128 // mb) for mb in (1, 2, 4, 8)}
    tried = {mb: estimate(own.case, layout) for mb, layout in sizes.items() if own.layout(layout, {}) is not None}
    fastest = min((each.step_s, mb) for mb, each in tried.items() if each.fits)
    assert steps[-2].choice == f"mb{fastest[1]}"


def test_a_step_depends_on_the_case_and_on_what_was_chosen_before_alone():
    own, (steps, best) = ground("70b"), gone("70b")
    slower = replace(best, step_s=2 * best.step_s, layout=steps[0].estimate.layout)
    again = walk(own, slower)
    assert [step.estimate for step in again] == [step.estimate for step in steps]
    fitting = [(one.loss_ratio, two.loss_ratio) for one, two in zip(again, steps, strict=True) if two.loss_ratio is not None]
    assert fitting
    for ours, before in fitting:
        assert ours + 1.0 == pytest.approx((before + 1.0) / 2)


def test_where_no_layout_is_legal_there_is_no_walk():
    own = ground("70b")
    best = gone("70b")[1]
    assert walk(replace(own, acceptable=lambda _: False), best) == ()


def test_every_step_of_the_data_has_a_rule_that_stands_somewhere_and_a_function():
    stops = guides().walk
    assert stops
    for stop in stops:
        assert guides().rule(stop.rule).passages
        assert stop.choose in CHOICES
        assert stop.take in TAKES
    assert {stop.choose for stop in stops} == set(CHOICES)
    assert plain(ground("70b"), 0).world == 512


def test_model_parallelism_grows_in_every_degree_but_those_of_experts_that_are_not_there():
    own = ground("few sequences")
    grown = CHOICES["parallelism"](own, plain(own, 0))
    values = {name: {knobs[name] for knobs in grown} for name in grown[0]}
    assert {name: max(each) for name, each in values.items()} == {
        "pipeline_parallel": 64, "context_parallel": 64, "tensor_parallel": 8, "expert_parallel": 1, "expert_tensor_parallel": 1,
    }
    assert max(knobs["expert_parallel"] for knobs in CHOICES["parallelism"](ground("mixtral"), plain(ground("mixtral"), 0))) == 64
