"""Where a message meets the prediction, and whether every change does what it promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.api import fix_layout, make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import parse_layout
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.overlap import overlap_for
from meshwright.fix import observe
from meshwright.fix.observed import stage_of
from meshwright.fix.packing import QUANTUM, packed
from meshwright.frameworks import File, framework, frameworks
from meshwright.frameworks.resume import ORDER
from meshwright.readers.out_of_memory import read_out_of_memory
from oom_texts import GIB, modern

CAPACITY = 79.11 * GIB


@cache
def case_of(model="llama3-8b", devices=16, sequence=8192, batch=128):
    return make_case(model, cluster_for("h100-sxm", num_devices=devices), global_batch_sequences=batch, sequence_tokens=sequence)


def layout_of(case, text):
    return parse_layout(text, num_devices=case.cluster.num_devices, global_batch_sequences=case.batch.global_batch_sequences,
                        devices_per_node=8, model=case.model, overlap=overlap_for(case))


def seen(case, layout, text, **more):
    return observe(case, layout, estimate(case, layout), read_out_of_memory(text), **more)


def message(tried, free, allocated, unallocated, prefix=""):
    return prefix + modern(tried, CAPACITY, free, allocated, unallocated, process=allocated + unallocated + 2 * GIB)


# Where it ran out.


@pytest.mark.parametrize("text", ["tp2 pp4 mb1 sp zero1", "pp2 mb1", "tp4 cp2 pp2 mb1 sp", "mb1 zero3"])
def test_stages_of_ranks_are_those_of_the_two_orders(text):
    layout = layout_of(case_of(), text)
    tp, cp, pp, dp = layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.data_parallel
    outermost = [stage for stage in range(pp) for _ in range(dp) for _ in range(cp) for _ in range(tp)]
    inside = [stage for _ in range(dp) for stage in range(pp) for _ in range(cp) for _ in range(tp)]
    assert [stage_of(layout, rank) for rank in range(16)] == outermost
    assert [stage_of(layout, rank, inside_replicas=True) for rank in range(16)] == inside
    assert stage_of(layout, 16) is None


def test_a_request_of_the_size_of_the_logits_is_known_without_a_traceback():
    case = case_of()
    layout = layout_of(case, "pp4 mb2 zero1")
    logits = 2 * 8192 * 128256 * 4
    found = seen(case, layout, message(logits, GIB, 70 * GIB, GIB))
    assert (found.kind, found.stage) == ("transient", 3)
    assert seen(case, layout, message(logits * 1.3, GIB, 70 * GIB, GIB)).kind == "capacity"


def test_a_device_names_its_rank_only_on_one_node():
    text = message(GIB, 0.1 * GIB, 77 * GIB, 0.1 * GIB).replace("GPU 0", "GPU 6")
    one, many = case_of(devices=8), case_of()
    assert seen(one, layout_of(one, "pp4 mb1 zero1"), text).stage == 3
    found = seen(many, layout_of(many, "pp4 mb1 zero1"), text)
    assert (found.stage, found.why_stage) == (None, "the message names no rank")


def test_stages_inside_replicas_are_known_by_framework_and_by_flag():
    text = message(GIB, 0.1 * GIB, 77 * GIB, 0.1 * GIB, "[rank3]: ")
    case = case_of()
    layout = layout_of(case, "pp4 mb1 zero1")
    assert seen(case, layout, text).stage == 0
    assert seen(case, layout, text, stages_inside_replicas=True).stage == 3
    picotron = fix_layout(case, layout_of(case, "pp4 mb2"), framework="picotron", message=text, max_edits=1)
    assert picotron.observed.stage == 3


def test_a_share_that_is_kept_for_another_program_is_not_counted_twice():
    case = replace(case_of(), reserve_ratio=0.1)
    layout = layout_of(case, "pp4 mb1 zero1")
    kept = 0.1 * case.cluster.device.memory_bytes
    alone = message(GIB, 0.5 * GIB, 60 * GIB, GIB, "[rank0]: ")
    named = "[rank0]: " + modern(GIB, CAPACITY, 0.5 * GIB, 60 * GIB, GIB, process=62 * GIB, others=((7, kept),))
    for text in (alone, named):
        found = seen(case, layout, text)
        assert found.device_bytes == pytest.approx(CAPACITY - kept, rel=1e-3)
        assert found.needed_bytes - found.device_bytes == pytest.approx(0.5 * GIB, rel=1e-3)


def test_a_run_that_needed_far_more_than_predicted_is_asked_what_it_was():
    case = case_of()
    layout = layout_of(case, "tp4 pp4 mb1 sp zero1")
    found = seen(case, layout, message(GIB, 0.1 * GIB, 77 * GIB, 0.1 * GIB, "[rank0]: "))
    assert any("was it this configuration" in str(each) for each in found.remarks)


def test_a_rank_that_the_layout_does_not_have_is_remarked():
    case = case_of()
    found = seen(case, layout_of(case, "pp4 mb1 zero1"), message(GIB, 0.1 * GIB, 77 * GIB, 0.1 * GIB, "[rank40]: "))
    assert found.stage is None
    assert "ranks 0 to 15" in str(found.remarks[0])


def test_of_ranks_that_are_alike_the_first_speaks_and_stages_are_listed():
    case = case_of()
    log = "\n".join(
        message(GIB, free * GIB, 77 * GIB, 0.1 * GIB, f"[rank{rank}]: ") for rank, free in ((9, 0.2), (1, 0.1), (10, 0.2))
    )
    found = seen(case, layout_of(case, "pp4 mb1 zero1"), log)
    assert (found.said.rank, found.ranks, found.stage) == (9, (9, 1, 10), 2)
    assert "stages 0, 2 ran out, first stage 2" in {str(each) for each in found.remarks}


# How much it needed.

TENTHS = st.integers(0, 400).map(lambda tenth: tenth / 10 * GIB)


@given(TENTHS.filter(bool), TENTHS, TENTHS, st.sampled_from(["pp4 mb2 zero1", "pp4 mb1 zero1", "tp4 pp2 mb2 sp zero1"]))
@examples(40)
def test_what_was_observed_lifts_the_prediction_and_never_lowers_it(asked, free, scattered, text):
    case = case_of()
    layout, allocated = layout_of(case, text), CAPACITY - free - scattered
    base = estimate(case, layout)
    one, more = (seen(case, layout, message(each, free, allocated, scattered, "[rank0]: ")) for each in (asked, asked + GIB))
    lift = one.extra_bytes(case, base)
    assert 0.0 <= lift <= more.extra_bytes(case, base) <= lift + 1.05 * GIB + more.margin_bytes
    assert one.extra_bytes(case, base, joined=True) <= lift
    stage = base.stages[0].memory.reserved_bytes
    missing = CAPACITY - free + asked + one.margin_bytes - CAPACITY  # of the device, when it was written
    if stage + lift <= case.capacity_bytes:
        assert missing <= 0.02 * GIB, "what the run says not to fit does not fit"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pp4 mb2 zero1 layers=[4,8,8,12]", message(7.83 * GIB, 4.43 * GIB, 70.83 * GIB, 1.12 * GIB, "[rank13]: ")),
        ("tp2 pp4 mb2 sp zero1", message(2 * GIB, 0.5 * GIB, 60 * GIB, 16 * GIB, "[rank0]: ")),
        ("tp2 pp4 mb2 sp zero1", message(20 * GIB, 0.5 * GIB, 60 * GIB, 16 * GIB, "[rank0]: ")),
        ("tp2 pp4 mb4 sp zero1", "[rank0]: RuntimeError: CUDA error: out of memory"),
    ],
)
def test_every_change_frees_what_was_missing_and_is_what_its_estimate_says(text, words):
    case, runner = case_of(), framework("megatron")
    fixed = fix_layout(case, layout_of(case, text), message=words, max_edits=2)
    assert fixed.changes
    counts = [len(change.moves) for change in fixed.changes]
    assert counts == sorted(counts), "the smallest first"
    joined = fixed.observed.extra_bytes(case, fixed.base, joined=True)
    for change in fixed.changes:
        assert change.fits
        assert change.meaning.resume in ORDER
        assert runner.check(case, change.layout) == ()
        assert estimate(case, change.layout).memory_reserved_bytes == change.estimate.memory_reserved_bytes
        if change.margin_bytes is None:
            continue
        extra = joined if change.moves[0].sort == "environment" else fixed.extra_bytes
        last = change.layout.pipeline_parallel - 1
        part = {None: None, 0: 0, fixed.layout.pipeline_parallel - 1: last}.get(fixed.observed.stage, 0)
        for stage in change.estimate.stages:
            lifted = extra if part in (None, stage.stage) else 0.0
            assert stage.memory.reserved_bytes + lifted <= case.capacity_bytes * (1 + 1e-12)


def test_virtual_memory_comes_beside_a_layout_where_it_helps_but_is_not_enough():
    case = case_of()
    words = message(20 * GIB, 0.5 * GIB, 60 * GIB, 16 * GIB, "[rank0]: ")
    fixed = fix_layout(case, layout_of(case, "tp2 pp4 mb2 sp zero1"), message=words, max_edits=2)
    kinds = [tuple(move.sort for move in change.moves) for change in fixed.changes]
    assert ("environment", "layout") in kinds
    assert ("environment",) not in kinds, "20 GiB are more than all pieces together"
    assert not any("environment" in kind for kind in (
        tuple(move.sort for move in change.moves)
        for change in fix_layout(case, fixed.layout, message=words, max_edits=1).changes
    ))


def test_a_layout_that_cannot_run_is_made_legal_and_fitting_under_a_bound():
    case = case_of("qwen3-30b-a3b", sequence=4096)
    layout = layout_of(case, "tp2 ep4 mb1 zero1")
    legal = fix_layout(case, layout)
    assert legal.base is None
    assert not all(change.fits for change in legal.changes)
    bounded = fix_layout(case, layout, memory_bytes=case.capacity_bytes)
    assert all(change.fits for change in bounded.changes)


def test_an_empty_message_is_none_and_a_strange_one_is_refused():
    case = case_of()
    layout = layout_of(case, "tp2 pp4 mb1 sp zero1")
    assert fix_layout(case, layout).changes == ()
    with pytest.raises(InputError):
        fix_layout(case, layout, message="all is well")


# Packing.


def trainer(limit, **values):
    keys = {"num_gpu": 16, "tensor_model_parallel_size": 4, "use_distributed_optimizer": "true", "packing": "true",
            "max_token_in_packing": limit, "max_prompt_tokens_length": 1024, "max_response_tokens_length": 2048,
            **values}
    lines = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    text = f"runtime_args:\n  train_backend: megatron\n  train_global_batch_size: 512\nmodels:\n  policy_trainer:\n{lines}"
    reading = framework("chatlearn").read([File(path="grpo.yaml", text=text)])
    case = make_case("qwen3-8b", cluster_for("h100-sxm", num_devices=16), global_batch_sequences=512, sequence_tokens=3072,
                     task="sft", framework="chatlearn")
    return packed(case, reading.layout, framework("chatlearn"), reading)


def test_the_limit_is_the_largest_that_fits_by_trying_all():
    packing = trainer(65536)
    for bound in (70 * GIB, 50 * GIB, 45 * GIB):
        tried = [limit for limit in range(QUANTUM, 65536, QUANTUM)
                 if limit > 3072 and packing.estimate(limit).memory_reserved_bytes <= bound]
        assert packing.largest(lambda each, bound=bound: each.memory_reserved_bytes <= bound) == max(tried, default=None)


def test_limits_to_choose_from_go_down_to_the_longest_sample():
    packing = trainer(65536)
    assert packing.up_to(8192) == (8192, 7168, 6144, 5120, 4096)
    many = packing.up_to(61440)
    assert (many[0], len(many) <= 33, min(many) > 3072) == (61440, True, True)
    assert all(limit % QUANTUM == 0 for limit in many)
    for limit in many[:3]:
        case, layout = packing.one_sequence(limit)
        assert case.batch.sequence_tokens >= limit
        assert case.batch.tokens >= packing.case.batch.tokens
        assert packing.in_sequences(layout) == packing.layout


def test_no_limit_is_below_the_longest_sample():
    packing = trainer(65536)
    assert packing.largest(lambda each: False) is None
    smallest = []
    packing.largest(lambda each: bool(smallest.append(each)))
    assert smallest[0].layout.microbatch_sequences == 1
    assert trainer(3000).largest(lambda each: True) is None, "the limit is already below it"


def test_only_a_trainer_that_packs_has_a_limit():
    assert trainer(65536, packing="false") is None
    assert trainer(0) is None


# Words.


def test_the_switches_that_are_named_exist():
    """Facts of a framework name keys of its own, in one of its releases at least."""
    named = 0
    for name in frameworks():
        each = framework(name)
        facts = each.facts
        for key in (facts.stages_inside_key, facts.allocator_key, *(remedy.key for remedy in facts.remedies)):
            surfaces = [each.at(release) for release in each.releases]
            assert not key or any(there.surface().find(key, there.version) is not None for there in surfaces), (name, key)
            named += bool(key)
    assert named >= 9
