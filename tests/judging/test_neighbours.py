"""Layouts one step away keep what was chosen."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Selective
from meshwright.estimate.many import evaluate_many
from meshwright.judging import facts as facts_of
from meshwright.judging.guides import judge_all
from meshwright.judging.neighbours import neighbours, vary
from meshwright.search.legality import shape_refusals
from strategies import MEGATRON, small_case


@pytest.mark.parametrize(("shards", "expected"), [
    (8, 16),  # all eight ranks: all sixteen that there are now
    (4, 4),  # a group of four stays one
    (1, 1),
])
def test_full_sharding_stays_full_and_a_group_stays_a_group(shards, expected):
    """zero1 on tp2 dp8, one step to tp1 dp16."""
    case = small_case(devices=16, batch=32)
    layout = Layout(
        tensor_parallel=2, sequence_parallel=True, data_parallel=8, num_microbatches=4, optimizer_shards=8, gradient_shards=shards
    )
    new = vary(case, MEGATRON, layout, tensor_parallel=1)
    assert isinstance(new, Layout)
    assert (new.data_parallel, new.optimizer_shards, new.gradient_shards) == (16, 16, expected)


def test_a_group_that_no_longer_divides_becomes_all_ranks():
    case = small_case(devices=12, batch=24, per_node=4)
    layout = Layout(data_parallel=12, num_microbatches=2, optimizer_shards=4)
    new = vary(case, MEGATRON, layout, pipeline_parallel=2)
    assert isinstance(new, Layout)
    assert (new.data_parallel, new.optimizer_shards) == (6, 6)


def test_lists_by_stage_end_with_their_chunks():
    """Six micro-batches do not fill four stages of two chunks: one chunk a stage is left, and lists of two mean nothing."""
    case = small_case("llama3-8b", layers=8, devices=4, batch=24)
    lists = Full(layers=((1, 1, 1, 1), (1, 0, 0, 0)))
    layout = Layout(
        pipeline_parallel=4, virtual_stages=2, num_microbatches=24, schedule="interleaved", recompute=lists,
    )
    for knobs in ({"microbatch_sequences": 4}, {"virtual_stages": 1}, {"pipeline_parallel": 1}, {"pipeline_parallel": 2}):
        new = vary(case, MEGATRON, layout, **knobs)
        assert isinstance(new, Layout)
        if isinstance(new.recompute, Full) and isinstance(new.recompute.layers, tuple):
            assert np.shape(new.recompute.layers) == (new.virtual_stages, new.pipeline_parallel)
        times, reserved = evaluate_many(case, [new])
        assert np.isfinite([*times, *reserved]).all()
    assert vary(case, MEGATRON, layout, microbatch_sequences=4).virtual_stages == 1
    assert vary(case, MEGATRON, layout, microbatch_sequences=2).recompute == lists


@pytest.mark.parametrize("split", [None, ((1, 1, 2, 1), (1, 1, 1, 0))])
@pytest.mark.parametrize("recompute", [
    Full(layers=((1, 1, 1, 1), (1, 0, 0, 0))),
    Mixed(parts=((Full(), ((1, 0, 1, 1), (0, 0, 0, 0))), (Selective(), ((0, 1, 0, 0), (1, 1, 1, 0))))),
    NoRecompute(),
])
def test_every_step_away_from_a_balanced_layout_is_a_layout(recompute, split):
    """Whatever schedule, chunks or stages a step leads to: lists by stage have the shape of the pipeline, and it has figures."""
    case = small_case("llama3-8b", layers=8, devices=8, batch=24)
    layout = Layout(
        pipeline_parallel=4, virtual_stages=2, data_parallel=2, num_microbatches=12, schedule="interleaved", recompute=recompute,
        stage_layers=split,
    )
    assert not shape_refusals(case, layout)
    able = replace(MEGATRON, schedules=("1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"))
    found = [each for each in neighbours(case, able, layout) if each.layout is not None]
    assert {"schedule", "vp", "pp"} <= {each.knob for each in found}
    for each in found:
        assert not shape_refusals(case, each.layout), each.change
    assert np.isfinite(evaluate_many(case, [each.layout for each in found])).all()


def test_judges_ask_for_no_sharding_or_overlap_alone(monkeypatch):
    """What every judge holds a layout against is estimated together; one by one it takes three times as long."""
    case = small_case(devices=16, batch=32)
    layout = Layout(
        tensor_parallel=2, sequence_parallel=True, pipeline_parallel=2, data_parallel=4, num_microbatches=8, optimizer_shards=4,
    )
    asked, estimate_of = [], facts_of.estimate_of

    def noted(under, other):
        asked.append(other if under is case else layout)
        return estimate_of(under, other)

    facts = facts_of.Facts(case, layout, MEGATRON)
    monkeypatch.setattr(facts_of, "estimate_of", noted)
    assert judge_all(facts)
    plain = replace(
        layout, optimizer_shards=1, gradient_shards=1, parameter_shards=1, sequence_parallel=False, overlap=Layout().overlap
    )
    knobs = ("optimizer_shards", "gradient_shards", "parameter_shards", "sequence_parallel", "overlap")
    over_all = [each for each in asked if each != layout and each.optimizer_shards in (1, 4)]
    alike = [each for each in over_all if replace(each, **{name: getattr(plain, name) for name in knobs}) == plain]
    assert not alike
