"""The closed loop by hand: limits of a run, layouts that are listed, sizes of what is rehearsed, what this machine is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace as Some

import pytest
from run_cases import OPTIONS, case, cluster, job, layouts

from meshwright.domain.layout import Full, Layout
from meshwright.errors import InputError
from meshwright.measure import here
from meshwright.measure.rehearse import choice, rounds, small


@pytest.mark.parametrize(
    ("predicted_s", "steps", "warmup", "limit_s"),
    [(0.1, 3, 2, 120.0), (1.0, 2, 1, 120.0), (1.5, 3, 1, 240.0), (10.0, 5, 5, 4000.0)],
)
def test_a_run_is_given_forty_times_its_prediction_and_two_minutes_at_least(monkeypatch, predicted_s, steps, warmup, limit_s):
    given = {}

    def run(case, layout, options, *, limit_s, start):
        given.update(limit_s=limit_s, start=start)
        return Some(steps_s=[1.0], ranks=[Some(memory_peak_bytes=3), Some(memory_peak_bytes=None), Some(memory_peak_bytes=7)])

    monkeypatch.setattr(rounds, "run", run)
    asked = replace(job(0), predicted_s=predicted_s, options=replace(OPTIONS, steps=steps, warmup_steps=warmup))
    assert rounds.real("start")(asked) == rounds.Ran([1.0], 7)
    assert given == {"limit_s": limit_s, "start": "start"}


def degrees(count):
    return [each for each in range(1, count + 1) if count % each == 0]


@pytest.mark.parametrize(
    ("devices", "batch", "mixture"), [(1, 4, False), (2, 4, False), (4, 8, False), (4, 8, True), (6, 12, False)]
)
def test_every_layout_of_the_grid_is_listed_once(devices, batch, mixture):
    asked = Some(cluster=Some(num_devices=devices), batch=Some(global_batch_sequences=batch), model=Some(is_moe=mixture))
    wanted = set()
    for tp, cp, pp, dp in product(degrees(devices), repeat=4):
        if tp * cp * pp * dp != devices or batch % dp:
            continue
        schedules = choice.SCHEDULES if pp > 1 else choice.SCHEDULES[:1]
        for mb, (schedule, chunks), recompute in product(degrees(batch // dp), schedules, choice.TREATMENTS):
            for sp in {False, tp > 1}:
                for zero in range(4 if dp * cp > 1 else 1):
                    for ep in degrees(tp * cp * dp) if mixture else [1]:
                        if ep in degrees(devices):
                            wanted.add((tp, cp, pp, dp, mb, schedule, chunks, recompute, sp, zero, ep))
    found = [
        (
            each.tensor_parallel,
            each.context_parallel,
            each.pipeline_parallel,
            each.data_parallel,
            each.microbatch_sequences,
            each.schedule,
            each.virtual_stages,
            each.recompute,
            each.sequence_parallel,
            each.zero_stage,
            each.expert_parallel,
        )
        for each in choice._grid(asked)
    ]
    assert set(found) == wanted
    assert len(found) == len(wanted)
    for each in choice._grid(asked):
        assert each.data_parallel * each.microbatch_sequences * each.num_microbatches == batch
        assert each.context_kind == ("ulysses" if each.context_parallel > 1 else "ring")
        assert {each.optimizer_shards, each.gradient_shards, each.parameter_shards} <= {
            1,
            each.data_parallel * each.context_parallel,
        }


def test_traits_are_of_knobs_that_mean_something():
    plain = Layout(data_parallel=1, num_microbatches=4)
    always = {"tp1", "cp1", "pp1", "dp1", "ep1", "mb1", "recompute=none"}
    assert choice.traits(plain) == always
    assert choice.traits(replace(plain, data_parallel=2)) == always - {"dp1"} | {"dp2", "zero0"}
    assert choice.traits(replace(plain, context_parallel=2)) == always - {"cp1"} | {"cp2", "zero0"}
    assert choice.traits(replace(plain, tensor_parallel=2, recompute=Full())) == always - {"tp1", "recompute=none"} | {
        "tp2",
        "sp=False",
        "recompute=full",
    }
    assert choice.traits(replace(plain, pipeline_parallel=2)) == always - {"pp1"} | {"pp2", "schedule=1f1b vp1"}


def test_what_does_not_fit_is_not_in_the_pool(monkeypatch):
    first = layouts(2)[0]
    capacity = case(2).capacity_bytes
    for needs, fits in ((capacity, True), (1.001 * capacity, False)):
        monkeypatch.setattr(choice, "evaluate_many", lambda _, found, needs=needs: (None, [needs] * len(found)))
        assert (first in choice.pool(case(2), OPTIONS)) == fits


def test_equal_ones_are_settled_by_pairs_and_then_by_the_step():
    one, two, three = layouts(2)[:3]
    times = {one: 3.0, two: 1.0, three: 2.0}
    same = choice.spread([], [one, one], {one: 1.0}, 5)
    assert same == (one,)
    alike = [replace(one, expert_tensor_parallel=each) for each in (1, 2)]
    assert choice.traits(alike[0]) == choice.traits(alike[1])
    assert choice.spread([], alike, dict(zip(alike, (2.0, 1.0), strict=True)), 1) == (alike[1],)
    assert len(choice.spread([one, two, three], [], times, 2)) == 2


@pytest.mark.parametrize(("ranks", "layers"), [(1, 4), (2, 4), (3, 6), (8, 16)])
def test_two_chunks_on_every_rank_divide_the_layers(ranks, layers):
    assert small.layers_for(ranks) == layers
    made = small.decoder(64, layers)
    attention = made.attention
    assert (made.num_layers, made.hidden, made.feed_forward.width) == (layers, 64, 192)
    assert (attention.num_heads, attention.num_key_value_heads, attention.head_dim) == (8, 4, 8)


def test_the_largest_case_within_the_time_is_taken(monkeypatch):
    monkeypatch.setattr(small, "predicted_s", lambda each: each.model.hidden * each.batch.sequence_tokens / 1e4)
    every = [hidden * tokens / 1e4 for hidden, _, tokens in small.SIZES]

    def taken(target_s, ranks=2):
        found = small.small_case(cluster(ranks), target_s=target_s)
        return found.model.hidden, found.batch.global_batch_sequences, found.batch.sequence_tokens

    assert taken(1e-9) == small.SIZES[0]
    assert taken(every[0]) == small.SIZES[0]
    assert taken(every[1]) == small.SIZES[1]
    assert taken(every[3]) == small.SIZES[3]
    assert taken(0.99 * every[4]) == small.SIZES[3]
    assert taken(1e9) == small.SIZES[-1]
    assert taken(every[1], ranks=8)[1] == 2 * small.SIZES[1][1]
    first, narrow, long = small.cases(cluster(1), target_s=every[3])
    hidden, batch, tokens = small.SIZES[3]
    assert (narrow.model.hidden, narrow.model.num_layers, narrow.batch) == (hidden // 2, 2 * first.model.num_layers, first.batch)
    assert (long.model.hidden, long.batch.global_batch_sequences, long.batch.sequence_tokens) == (hidden, batch // 2, 2 * tokens)
    assert len(small.cases(cluster(2), target_s=every[3])) == 1
    assert small.cases(cluster(1), target_s=every[0])[1].model.hidden == small.SIZES[0][0]


def test_one_host_has_all_its_devices_in_one_node():
    found = here.on_one_host(cluster(2), 6)
    assert (found.num_devices, found.devices_per_node, found.scale_up_devices, found.num_nodes) == (6, 6, 6, 1)


def test_more_ranks_than_accelerators_are_refused(monkeypatch):
    monkeypatch.setattr(here, "count_devices", lambda: 2)
    monkeypatch.setattr(here, "device_name", lambda: "Card")
    here.check_devices(2, "cuda")
    here.check_devices(64, "cpu")
    with pytest.raises(InputError, match="3 ranks need a device each, and this machine has 2"):
        here.check_devices(3, "cuda")
    assert here.machine_name("cuda").startswith("2 x Card, torch ")
    assert "cores, torch" in here.machine_name("cpu")
    monkeypatch.setattr(here, "count_devices", lambda: 0)
    with pytest.raises(InputError, match="reaches no CUDA device"):
        here.machine_name("cuda")
    assert "cores, torch" in here.machine_name("cpu")


@pytest.mark.parametrize(
    ("text", "free"),
    [("MemTotal: 9 kB\nMemAvailable:  2 kB\n", 2048), ("MemAvailable: 9999 kB\n", 5000), ("MemTotal: 9 kB\n", None)],
)
def test_free_memory_is_what_the_system_says_and_no_more_than_there_is(monkeypatch, tmp_path, text, free):
    (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr(here, "Path", lambda _: tmp_path / "meminfo")
    monkeypatch.setattr(here, "host_memory_bytes", lambda: 5000)
    assert here.free_memory_bytes() == free
    (tmp_path / "meminfo").unlink()
    assert here.free_memory_bytes() is None


def test_what_is_chosen_beside_the_plan_is_weighed_by_predicted_steps(monkeypatch):
    every, given = layouts(2)[:3], []
    monkeypatch.setattr(choice, "pool", lambda *_: list(every))
    monkeypatch.setattr(choice, "evaluate_many", lambda *_: ([3.0, 1.0, 2.0], [9.0, 9.0, 9.0]))
    monkeypatch.setattr(choice, "spread", lambda *asked: given.append(asked) or "chosen")
    assert choice.chosen(case(2), OPTIONS, every[:1], 2) == "chosen"
    assert given == [(every[:1], list(every), dict(zip(every, (3.0, 1.0, 2.0), strict=True)), 2)]
    monkeypatch.setattr(choice, "pool", lambda *_: [])
    choice.chosen(case(2), OPTIONS, [], 2)
    assert given[-1] == ([], [], {}, 2)
