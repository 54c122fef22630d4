"""What a search promises beside its counts: pins, determinism, verdicts, nearest batches, refinements, fixed batch."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.draws import one_of

import meshwright as mw
from meshwright.domain.estimate import Fits, Infeasible
from meshwright.domain.layout import Full, Layout, Selective
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.many import evaluate_many
from meshwright.search import SearchOptions, compare, layout_refusals, min_devices, plan
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.linearity import baseline
from meshwright.search.plan import device_counts, overlap_for
from meshwright.search.refine import around
from meshwright.search.result import PlanResult
from meshwright.search.runner import Functions
from meshwright.search.sizes import on
from meshwright.search.space import Pins, make_space, parse_pins
from strategies import EVERYTHING, MEGATRON, small_case

EXACT = SearchOptions(risk="exact")
PINNED = replace(EXACT, pins={"offload": "none"})
"""Nothing in host memory, even where nothing else fits."""
CASES = {
    "dense": small_case(layers=8, devices=8, batch=32),
    "mixture": small_case("mixtral-8x7b", layers=4, devices=8, batch=16),
    "mla": small_case("deepseek-v3", "b200", layers=5, devices=8, batch=16),
    "windows": small_case("gemma2-9b", layers=6, devices=4, batch=8, sequence=8192),
    "tight": replace(small_case(layers=8, devices=8, batch=16), memory_ratio=0.13),
    "long": small_case(layers=4, devices=8, batch=2, sequence=131072),
    "lora": small_case(layers=8, devices=8, batch=16, task="lora"),
}


@cache
def planned(name: str) -> PlanResult:
    return plan(CASES[name], MEGATRON, EXACT)


@pytest.mark.parametrize("name", sorted(CASES))
def test_plans_are_legal_fit_and_keep_batch_sequence_and_numerics(name):
    case, result = CASES[name], planned(name)
    assert result.plans
    for each in (*result.plans, *result.pareto):
        layout = each.layout
        assert layout_refusals(case, MEGATRON, layout) == ()
        assert layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches == case.batch.global_batch_sequences
        assert layout.world == case.cluster.num_devices
        assert layout.overlap == overlap_for(case, "exact")
        assert not layout.offload
        assert each.estimate.fits
        assert each.estimate.memory_reserved_bytes <= case.capacity_bytes
        assert each.estimate.tokens_per_s == pytest.approx(case.batch.tokens / each.estimate.step_s)
    assert isinstance(result.verdict, Fits)
    assert (result.used_devices, result.idle_devices) == (case.cluster.num_devices, 0)


@pytest.mark.parametrize("name", sorted(CASES))
def test_plans_are_ranked_and_grouped_and_refinement_never_loses(name):
    case = CASES[name]
    refined, coarse = planned(name), plan(case, MEGATRON, replace(EXACT, refine=False))
    steps = [each.estimate.step_s for each in refined.plans]
    assert steps == sorted(steps)
    assert [each.rank for each in refined.plans] == list(range(1, len(steps) + 1))
    assert [each.group for each in refined.plans] == sorted(each.group for each in refined.plans)
    assert refined.plans[0].group == 1
    assert refined.plans[0].estimate.step_s <= coarse.plans[0].estimate.step_s * (1 + 1e-12)
    assert (refined.legal, refined.evaluated, refined.fitting) == (coarse.legal, coarse.evaluated, coarse.fitting)


@pytest.mark.parametrize(("layers", "devices", "batch"), [(10, 8, 8), (15, 16, 16)])
def test_plans_with_unequal_stages_are_ranked_by_their_simulated_step(layers, devices, batch):
    """Here the closed form alone would rank otherwise."""
    case = small_case(layers=layers, devices=devices, batch=batch)
    result = plan(case, MEGATRON, replace(EXACT, pins={"pp": "4"}, refine=False))
    closed = list(evaluate_many(case, [each.layout for each in result.plans])[0])
    simulated = [each.estimate.step_s for each in result.plans]
    assert closed != sorted(closed)
    assert simulated == sorted(simulated)


@pytest.mark.parametrize(("layers", "batch"), one_of(3, [(13, 32), (14, 16), (15, 16), (18, 16), (19, 32), (22, 16)]))
def test_no_pinned_number_of_chunks_is_better_where_chunks_are_not_alike(layers, batch):
    """The closed form promises too much of some numbers of chunks; simulation decides among all that promise enough."""
    case = small_case(layers=layers, devices=16, batch=batch)
    options = replace(EXACT, pins={"pp": "4"}, refine=False)
    pinned = [
        plan(case, MEGATRON, replace(options, pins={"pp": "4", "vp": str(chunks)})).plans for chunks in range(1, layers // 4 + 1)
    ]
    fastest = min(plans[0].estimate.step_s for plans in pinned if plans)
    assert plan(case, MEGATRON, options).plans[0].estimate.step_s == fastest


def test_linearity_compares_with_the_best_on_the_smallest_number_of_nodes_that_fits():
    case = small_case("llama2-13b", "a100-40g-sxm", devices=32, batch=32, sequence=2048)
    result = plan(case, MEGATRON, EXACT)
    smallest = result.plans[0].estimate.linearity_baseline_devices
    assert smallest is not None
    assert smallest < 32
    base = plan(replace(case, cluster=replace(case.cluster, num_devices=smallest)), MEGATRON, EXACT)
    for devices in range(8, smallest, 8):
        assert not plan(on(case, devices), MEGATRON, PINNED).plans
    ratio = result.plans[0].estimate.tokens_per_s_per_device / base.plans[0].estimate.tokens_per_s_per_device
    assert result.plans[0].estimate.linearity_ratio == pytest.approx(ratio, rel=0.01)
    assert base.plans[0].estimate.linearity_ratio == 1.0


@pytest.mark.parametrize("weak", [False, True])
def test_linearity_is_against_nodes_that_do_not_divide_the_nodes(weak):
    """A model that two nodes hold, on five; one of 80 layers was compared with itself, though fewer nodes hold it."""
    case = small_case("llama3-70b", devices=40, batch=120, sequence=8192, layers=48)
    assert baseline(case, MEGATRON, Functions(), weak=weak).devices == 16


@pytest.mark.parametrize("share", [0.9999, 1.0001])
def test_offload_is_planned_exactly_where_it_fits(share):
    case = HOPELESS["8b on two a100-40g"]
    assert isinstance(plan(case, MEGATRON, PINNED).verdict, Infeasible)
    moved = replace(EXACT, objective="memory", refine=False, top=1, pins={"offload": "optimizer"})
    least = plan(_with_memory(case, 10**15), MEGATRON, moved).plans[0].layout
    _, (size,) = evaluate_many(case, [least])
    result = plan(_with_memory(case, int(size * share / case.memory_ratio)), MEGATRON, EXACT)
    assert bool(result.plans) == (share > 1)
    assert all(each.layout.offload == ("optimizer",) for each in result.plans)
    assert isinstance(result.verdict, Infeasible) == (share < 1)


def _with_memory(case, size: int):
    return replace(case, cluster=replace(case.cluster, device=replace(case.cluster.device, memory_bytes=size)))


def test_two_searches_give_the_same_answer():
    case = CASES["mixture"]
    first, second = planned("mixture"), plan(case, MEGATRON, EXACT)
    assert replace(first, search_s=0.0) == replace(second, search_s=0.0)


def test_the_answer_does_not_depend_on_the_hash_seed():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from dataclasses import replace\n"
        "from strategies import EVERYTHING, small_case\n"
        "from meshwright.search import SearchOptions, plan\n"
        "case = small_case('mixtral-8x7b', layers=4, devices=8, batch=8)\n"
        "print(repr(replace(plan(case, EVERYTHING, SearchOptions(pins={'tp': '2'})), search_s=0.0)))\n"
    )
    tests = str(Path(__file__).parents[1])
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, tests],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(answers) == 1
    assert "tp2" in answers.pop()


PINS = [
    {"tp": "2"},
    {"cp": "2"},
    {"pp": "4"},
    {"pp": "2", "vp": "2"},
    {"dp": "4"},
    {"mb": "2"},
    {"zero": "0"},
    {"zero": "1"},
    {"zero": "2", "pp": "1"},
    {"zero": "1", "shard": "2"},
    {"shard": "2"},
    {"shard": "1"},
    {"recompute": "full"},
    {"recompute": "none"},
    {"recompute": "selective:layernorm"},
    {"schedule": "1f1b", "pp": "2"},
    {"schedule": "interleaved", "pp": "2"},
    {"schedule": "zb1p"},
    {"sp": "0", "tp": "2"},
    {"sp": "1", "tp": "4"},
    {"tp": "2", "pp": "2", "mb": "1", "zero": "1", "recompute": "full"},
]


def _keeps(layout: Layout, pins: dict[str, str]) -> bool:
    wanted = parse_pins(pins)
    numbers = {
        "tp": layout.tensor_parallel,
        "cp": layout.context_parallel,
        "pp": layout.pipeline_parallel,
        "vp": layout.virtual_stages,
        "ep": layout.expert_parallel,
        "etp": layout.expert_tensor_parallel,
        "dp": layout.data_parallel,
        "mb": layout.microbatch_sequences,
        "zero": layout.zero_stage,
        "shard": layout.optimizer_shards,
        "sp": layout.sequence_parallel,
    }
    kind = "full" if isinstance(layout.recompute, Full) else "selective" if isinstance(layout.recompute, Selective) else "none"
    return (
        all(getattr(wanted, knob) in (None, value) for knob, value in numbers.items())
        and wanted.recompute in (None, kind)
        and (wanted.recompute != "full" or layout.recompute == Full())
        and (wanted.modules is None or layout.recompute == Selective(modules=wanted.modules))
        and (wanted.schedule in (None, layout.schedule) or (wanted.schedule == "1f1b" and layout.schedule == "interleaved"))
    )


@pytest.mark.parametrize("pins", one_of(2, PINS), ids=lambda pins: " ".join(f"{k}={v}" for k, v in pins.items()))
def test_pins_are_respected_by_the_grid_and_by_refinements(pins):
    case = small_case(layers=8, devices=8, batch=16)
    result = plan(case, EVERYTHING, replace(EXACT, pins=pins))
    assert result.plans
    for each in (*result.plans, *result.pareto):
        assert _keeps(each.layout, pins), each.label


@pytest.mark.parametrize(
    "pins",
    [{"ep": "4"}, {"etp": "2", "tp": "2"}, {"ep": "2", "tp": "2", "etp": "1"}],
    ids=lambda pins: " ".join(f"{k}={v}" for k, v in pins.items()),
)
def test_expert_pins_are_respected(pins):
    result = plan(CASES["mixture"], MEGATRON, replace(EXACT, pins=pins))
    assert result.plans
    assert all(_keeps(each.layout, pins) for each in result.plans)


@pytest.mark.parametrize(
    ("pins", "word"),
    [
        ({"tp": "3"}, "tp=3"),
        ({"tp": "8", "pp": "2"}, "together"),
        ({"dp": "3"}, "dp=3"),
        ({"zero": "0", "shard": "4"}, "together"),
        ({"zero": "1", "shard": "1"}, "together"),
        ({"schedule": "1f1b", "pp": "2", "vp": "5"}, "vp=5"),
        ({"mb": "3"}, "mb=3"),
        ({"schedule": "interleaved", "vp": "1"}, "together"),
        ({"pp": "1", "vp": "2"}, "together"),
        ({"schedule": "zb1p"}, "schedule=zb1p"),
        ({"ep": "2"}, "ep=2"),
        ({"vp": "9"}, "vp=9"),
        ({"shard": "3"}, "shard=3"),
    ],
)
def test_contradictory_pins_are_named(pins, word):
    case = small_case(layers=8, devices=8, batch=16)
    with pytest.raises(InputError) as caught:
        plan(case, MEGATRON, replace(EXACT, pins=pins))
    assert word in str(caught.value)


def test_sequence_parallelism_is_not_pinned_onto_a_framework_without_it():
    case = small_case("gpt2", layers=4, devices=4, batch=8, sequence=512, implementation="megatron-2021")
    with pytest.raises(InputError):
        plan(case, MEGATRON, replace(EXACT, pins={"sp": "1", "tp": "2"}))


def test_experts_are_not_spread_with_tensor_parallelism_but_without_sequence_parallelism():
    with pytest.raises(InputError):
        plan(CASES["mixture"], MEGATRON, replace(EXACT, pins={"sp": "0", "tp": "2", "ep": "2"}))


@pytest.mark.parametrize(
    "pins",
    [
        {"tq": "2"},
        {"tp": "0"},
        {"tp": "-1"},
        {"tp": "1e3"},
        {"tp": ""},
        {"zero": "4"},
        {"recompute": "half"},
        {"sp": "maybe"},
        {"mb": "2.0"},
        {"recompute": "selective:core_atn"},
        {"recompute": "full:core_attn"},
    ],
)
def test_malformed_pins_are_refused_before_the_search(pins):
    with pytest.raises(InputError):
        parse_pins(pins)


def test_every_malformed_pin_is_named_at_once():
    with pytest.raises(InputError) as caught:
        parse_pins({"tp": "0", "foo": "1", "zero": "9"})
    assert len(caught.value.messages) == 3


BATCHES = [
    (small_case("gemma2-9b", layers=2, devices=64, batch=7, sequence=63), MEGATRON),
    (small_case("gpt2", layers=2, devices=48, batch=5, sequence=1024), MEGATRON),
    (small_case(layers=1, devices=512, batch=3, sequence=65), MEGATRON),
    (small_case(layers=1, devices=64, batch=10, sequence=1), MEGATRON),
]


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_nearest_batches_work_and_nothing_nearer_does(number):
    case, features = BATCHES[number]
    with pytest.raises(InputError) as caught:
        plan(case, features, EXACT)
    (message,) = caught.value.messages
    assert message.id == "plan.batch"
    near = [int(value) for value in str(message.values["near"]).split(", ")]
    wanted = case.batch.global_batch_sequences

    def legal(batch: int) -> bool:
        own = replace(case, batch=replace(case.batch, global_batch_sequences=batch))
        counts = Counts()
        for _ in evaluate_grid(
            make_space(own, features, own.cluster.num_devices, Pins()), counts, overlap=overlap_for(own, "exact")
        ):
            break
        return counts.legal > 0

    assert all(legal(batch) for batch in near)
    low, high = max((b for b in near if b < wanted), default=0), min(b for b in near if b > wanted)
    assert not any(legal(batch) for batch in range(max(1, low + 1), high))


def test_no_batch_is_promised_where_pins_make_it_illegal():
    case = small_case("gpt2", layers=2, devices=48, batch=5, sequence=1024)
    with pytest.raises(InputError) as caught:
        plan(case, MEGATRON, replace(EXACT, pins={"pp": "2", "schedule": "interleaved", "vp": "2"}))
    for message in caught.value.messages:
        assert message.id != "plan.batch", str(message)


def test_a_model_that_nothing_makes_legal_says_which_rule_refuses():
    case = small_case("bloom-176b", layers=2, devices=8, batch=8)
    with pytest.raises(InputError) as caught:
        plan(case, MEGATRON, EXACT)
    assert "position encoding" in str(caught.value)


@pytest.mark.parametrize(
    ("device", "precision"), [("v100-32g", "bf16"), ("a100-40g-sxm", "fp8-cs"), ("ascend-910a", "bf16"), ("h100-sxm", "nvfp4")]
)
def test_numerics_that_the_device_lacks_are_refused_and_not_replaced(device, precision):
    case = small_case("gpt2", device, layers=2, devices=8, batch=8, sequence=512, precision=precision)
    with pytest.raises(InputError) as caught:
        plan(case, MEGATRON, EXACT)
    assert "data types" in str(caught.value)


@pytest.mark.parametrize("device", ["v100-32g", "ascend-910a"])
def test_devices_without_bf16_plan_in_fp16(device):
    case = small_case("gpt2", device, layers=2, devices=8, batch=8, sequence=512, precision="fp16")
    assert plan(case, MEGATRON, EXACT).plans


@pytest.mark.parametrize("name", ["dense", "mixture", "lora"])
def test_more_memory_never_makes_fewer_layouts_fit_nor_the_winner_slower(name):
    fitting, steps = [], []
    for gib in (1, 24, 80, 2000):
        case = CASES[name]
        device = replace(case.cluster.device, memory_bytes=gib * 2**30)
        own = replace(case, cluster=replace(case.cluster, device=device))
        result = plan(own, MEGATRON, replace(EXACT, refine=False, top=1))
        assert result.evaluated + result.bounded == result.legal
        every = Counts()
        space = make_space(own, MEGATRON, 8, Pins())
        assert all(len(rows) for rows in evaluate_grid(space, every, overlap=overlap_for(own, "exact")))
        fitting.append(every.fitting)
        steps.append(result.plans[0].estimate.step_s if result.plans else float("inf"))
    assert fitting == sorted(fitting)
    assert fitting[0] < fitting[-1] == result.legal
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(steps))


def test_memory_objective_finds_the_least_memory():
    case = CASES["mixture"]
    least = plan(case, MEGATRON, replace(EXACT, objective="memory"))
    fast = planned("mixture")
    sizes = [each.estimate.memory_reserved_bytes for each in least.plans]
    assert sizes == sorted(sizes)
    smallest = min(
        float(rows.reserved_bytes.min())
        for rows in evaluate_grid(make_space(case, MEGATRON, 8, Pins()), Counts(), overlap=overlap_for(case, "exact"), bound=False)
    )
    assert sizes[0] <= smallest * (1 + 1e-9)
    assert sizes[0] <= fast.plans[0].estimate.memory_reserved_bytes
    assert fast.plans[0].estimate.step_s <= least.plans[0].estimate.step_s


def test_spare_nodes_may_stay_idle_and_are_reported():
    case = small_case("gpt2", layers=2, devices=24, batch=16, sequence=1024)
    result = plan(case, MEGATRON, replace(EXACT, spare_nodes=1))
    assert {each.layout.world for each in result.plans} <= {16, 24}
    assert result.used_devices + result.idle_devices == 24
    assert result.plans[0].layout.world == result.used_devices
    alone = plan(replace(case, cluster=replace(case.cluster, num_devices=16)), MEGATRON, EXACT)
    assert result.plans[0].estimate.step_s <= alone.plans[0].estimate.step_s * (1 + 1e-9)


def test_spare_nodes_rescue_a_batch_that_all_devices_cannot_share():
    case = small_case("gpt2", layers=2, devices=56, batch=4, sequence=1024)
    with pytest.raises(InputError):
        plan(case, MEGATRON, EXACT)
    result = plan(case, MEGATRON, replace(EXACT, spare_nodes=3))
    assert result.used_devices < 56
    assert result.idle_devices == 56 - result.used_devices
    assert any(note.id == "plan.idle" for note in result.notes)


def test_throughput_per_device_prefers_fewer_devices():
    case = small_case("gpt2", layers=2, devices=32, batch=32, sequence=1024)
    wide = plan(case, MEGATRON, replace(EXACT, spare_nodes=3))
    narrow = plan(case, MEGATRON, replace(EXACT, spare_nodes=3, objective="throughput-per-device"))
    assert narrow.plans[0].estimate.tokens_per_s_per_device >= wide.plans[0].estimate.tokens_per_s_per_device
    assert narrow.used_devices <= wide.used_devices


HOPELESS = {  # of an implementation whose optimizer step copies no gradients, so that 16-bit ones are a lever
    "7b on one 4090": small_case("llama2-7b", "rtx-4090", devices=1, batch=8, sequence=4096, implementation="torch-eager"),
    "8b on two a100-40g": small_case("llama3-8b", "a100-40g-sxm", devices=2, batch=8, sequence=4096, implementation="torch-eager"),
    "mixtral on 8": small_case("mixtral-8x7b", "a100-40g-sxm", devices=8, batch=8, sequence=4096, implementation="torch-eager"),
}


@pytest.mark.parametrize("name", sorted(HOPELESS))
def test_when_nothing_fits_the_verdict_has_the_gap_and_levers(name):
    case = HOPELESS[name]
    result = plan(case, MEGATRON, PINNED)
    assert (result.plans, result.fitting, result.used_devices) == ((), 0, 0)
    assert isinstance(result.verdict, Infeasible)
    (unmet,) = result.verdict.unmet
    assert unmet.demand > unmet.bound == case.capacity_bytes
    assert unmet.gap == unmet.demand - unmet.bound
    assert sum(unmet.terms.values()) == pytest.approx(unmet.demand)
    smallest = min(
        float(rows.reserved_bytes.min())
        for rows in evaluate_grid(
            make_space(case, MEGATRON, case.cluster.num_devices, Pins()), Counts(), overlap=overlap_for(case, "exact"), bound=False
        )
    )
    assert unmet.demand == pytest.approx(smallest, rel=1e-9)
    assert unmet.levers


def test_when_nothing_fits_no_question_is_asked_twice(monkeypatch):
    """Levers are searched for the case as it was asked, and not for one that was tried on the way and given up."""
    asked = []
    monkeypatch.setattr(
        sys.modules["meshwright.search.levers"], "find",
        lambda case, features, options, *_, **__: asked.append((case, options)) or SimpleNamespace(plans=(), refused=0),
    )
    assert not plan(HOPELESS["7b on one 4090"], EVERYTHING, SearchOptions(top=1)).plans
    assert len(asked) > 2
    assert all(asked.count(each) == 1 for each in asked)


@pytest.mark.parametrize(("options", "least"), [(EXACT, 2), (PINNED, 4), (replace(EXACT, pins={"offload": "optimizer"}), 2)])
def test_smallest_number_of_devices_fits_and_the_next_smaller_does_not(options, least):
    """As ``plan`` counts: with optimizer states in host memory where nothing fits without, unless a pin forbids it."""
    case = small_case("llama2-13b", devices=8, batch=64, sequence=4096)
    quick = replace(options, refine=False, top=1)
    found = min_devices(case, MEGATRON, options=quick)
    assert found.fits.devices == least
    for devices in (1, 2, 4):
        result = plan(on(case, devices), MEGATRON, quick)
        assert bool(result.plans) == (devices >= least)
    assert ("offload=optimizer" in found.fits.label) == (least == 2)


def test_the_winner_compared_with_itself_needs_nothing():
    case = CASES["dense"]
    result = plan(case, MEGATRON, replace(EXACT, refine=False))
    own = compare(case, MEGATRON, result, result.plans[0].layout, EXACT)
    assert own.refused_because == ()
    assert own.rank is not None
    assert own.estimate.step_s == pytest.approx(result.plans[0].estimate.step_s)
    slow = replace(result.plans[0].layout, recompute=Full())
    other = compare(case, MEGATRON, result, slow, EXACT)
    assert other.rank is None or other.rank > own.rank
    assert other.needed


def test_the_first_plan_explains_itself_in_figures():
    result = planned("mixture")
    assert all(each.reasons for each in result.plans)
    assert result.plans[0].estimate == replace(
        estimate(CASES["mixture"], result.plans[0].layout),
        linearity_ratio=result.plans[0].estimate.linearity_ratio,
        linearity_baseline_devices=result.plans[0].estimate.linearity_baseline_devices,
        linearity_baseline_label=result.plans[0].estimate.linearity_baseline_label,
    )


@pytest.mark.parametrize("name", ["dense", "tight", "mixture"])
def test_no_pareto_point_dominates_another_and_the_front_holds_the_extremes(name):
    case, result = CASES[name], planned(name)
    front = [(each.estimate.step_s, each.estimate.memory_reserved_bytes) for each in result.pareto]
    assert front == sorted(front)
    assert all(later[1] < earlier[1] for earlier, later in pairwise(front))
    least = plan(case, MEGATRON, replace(EXACT, objective="memory", refine=False)).plans[0].estimate.memory_reserved_bytes
    assert front[-1][1] <= least * (1 + 1e-9)
    assert front[0][0] == result.plans[0].estimate.step_s


def test_the_pareto_front_has_fewer_devices_where_nodes_may_stay_idle():
    case = small_case("gpt2", layers=2, devices=24, batch=48, sequence=1024)
    result = plan(case, MEGATRON, replace(EXACT, spare_nodes=2))
    figures = [(each.estimate.step_s, each.estimate.memory_reserved_bytes, each.layout.world) for each in result.pareto]
    assert len({world for *_, world in figures}) > 1
    for own in figures:
        assert not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in figures)


def test_idle_nodes_are_no_more_than_there_are_and_a_search_ends(monkeypatch):
    case = CASES["dense"]
    nodes = case.cluster.num_devices // case.cluster.devices_per_node
    assert len(device_counts(case, 10**9)) == max(1, nodes)
    several = replace(case, cluster=replace(case.cluster, devices_per_node=2))
    everything = plan(several, MEGATRON, replace(EXACT, spare_nodes=3))
    assert "plan.untried" not in [note.id for note in everything.notes]
    monkeypatch.setattr(sys.modules["meshwright.search.finding"], "MOST_EVALUATED", 0)
    cut = plan(several, MEGATRON, replace(EXACT, spare_nodes=3))
    assert "more than 0 idle nodes were not tried" in str(next(note for note in cut.notes if note.id == "plan.untried"))
    assert cut.evaluated < everything.evaluated


def test_the_least_demanding_layout_is_one_that_the_framework_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight key-value heads are not cut into sixteen under MindSpeed-LLM, however little memory that would take."""
    monkeypatch.setattr(sys.modules["meshwright.search.plan"], "levers", lambda *_, **__: ())
    request = mw.PlanRequest(
        model="nemotron4-340b", device="ascend-910b", nodes=8, global_batch=1024, sequence=4096, framework="mindspeed-llm"
    )
    unmet = mw.plan(request).to_json()["verdict"]["unmet"][0]
    layout = unmet["constraint"].partition("the least demanding layout is ")[2]
    given = {name: getattr(request, name) for name in ("model", "device", "nodes", "global_batch", "sequence", "framework")}
    found = mw.estimate(mw.EstimateRequest(**given, layout=layout)).to_json()
    assert not found["fits"]
    assert found["memory_reserved_bytes"] == round(unmet["demand"])


def test_modules_are_tried_around_layouts_that_recompute_everything():
    """In the grid only full recomputation may fit; of the modules one is enough, and cheaper."""
    case = small_case("mixtral-8x7b", devices=16, batch=64)
    space = make_space(case, EVERYTHING, 16, parse_pins({}))
    base = Layout(pipeline_parallel=2, data_parallel=8, expert_parallel=8, num_microbatches=8, recompute=Full())
    assert Selective(modules=("moe",)) in {each.recompute for each in around(space, [base])}
