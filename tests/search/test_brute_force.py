"""The search against exhaustive enumeration on small spaces: counts, reasons, values and the winner."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.draws import one_of

from meshwright.domain.case import Case
from meshwright.domain.features import Features
from meshwright.domain.layout import Overlap
from meshwright.estimate import estimate
from meshwright.search import SearchOptions, layout_refusals, plan
from meshwright.search.finalists import layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.least import least_demanding, least_states_bytes
from meshwright.search.linearity import fits_anywhere
from meshwright.search.plan import overlap_for
from meshwright.search.runner import Functions
from meshwright.search.space import Pins, make_space
from search.brute_force import BruteForce, brute_force, grid, layout_of, refusal
from strategies import EVERYTHING, MEGATRON, small_case

SIMULATED = 40
"""Layouts of enumeration, best first by the closed form, that are estimated with their simulated bubbles."""


def _shrunk(case: Case, **changes: object) -> Case:
    return replace(case, model=replace(case.model, **changes))


@cache
def spaces() -> dict[str, tuple[Case, Features]]:
    """Small spaces of every sort: dense, MoE, MLA, windows, tied, odd nodes, odd batches, tight memory, poor frameworks."""
    fsdp = Features(
        name="fsdp",
        schedules=("1f1b", "zb1p"),
        zero_stages=(0, 2, 3),
        parameter_shards_with_pipeline=True,
        shards_over_context=False,
        expert_tensor_parallel=False,
        uneven_stages=False,
        context_kinds=("all-gather",),
    )
    poor = Features(
        name="poor",
        schedules=("1f1b", "gpipe"),
        zero_stages=(0, 1),
        partial_sharding=False,
        context_parallel=False,
        sequence_parallel=False,
        expert_parallel=False,
        recompute=("none", "full"),
        uneven_stages=False,
    )
    flat = Features(name="flat", schedules=("1f1b",), pipeline_parallel=False, zero_stages=(1, 3), shards_over_context=True)
    gqa = small_case(layers=4, devices=4, batch=4)
    return {
        "one device": (small_case(layers=2, devices=1, batch=6), MEGATRON),
        "two devices": (small_case(layers=3, devices=2, batch=4), MEGATRON),
        "gqa on four": (gqa, MEGATRON),
        "gqa on four, tight": (replace(gqa, memory_ratio=0.2), MEGATRON),
        "gqa on four, nothing fits": (replace(gqa, memory_ratio=0.01), MEGATRON),
        "three devices, batch of nine": (small_case(layers=5, devices=3, batch=9, per_node=3), EVERYTHING),
        "six devices in nodes of two": (small_case(layers=3, devices=6, batch=6, sequence=1536, per_node=2), MEGATRON),
        "all schedules": (small_case(layers=4, devices=2, batch=8), EVERYTHING),
        "one layer": (small_case(layers=1, devices=4, batch=2), MEGATRON),
        "sequence of two": (small_case(layers=2, devices=4, batch=4, sequence=2), MEGATRON),
        "odd sequence": (small_case(layers=2, devices=4, batch=4, sequence=513), MEGATRON),
        "fsdp": (small_case(layers=4, devices=4, batch=4, implementation="torchtitan"), fsdp),
        "stages by cost": (
            small_case(layers=7, devices=4, batch=4, implementation="nanotron"),
            Features(name="nanotron", schedules=("1f1b", "gpipe"), zero_stages=(0, 1), partial_sharding=False),
        ),
        "ulysses": (
            small_case("gpt2", layers=2, devices=8, batch=2, sequence=1024),
            Features(name="ulysses", context_kinds=("ulysses",), zero_stages=(0, 1)),
        ),
        "poor framework": (small_case("gpt2", layers=4, devices=4, batch=4, sequence=512, implementation="megatron-2021"), poor),
        "no pipeline": (small_case(layers=3, devices=4, batch=12), flat),
        "tied, learned positions": (small_case("gpt2", layers=6, devices=4, batch=4, sequence=1024), MEGATRON),
        "alibi refused": (small_case("bloom-176b", layers=2, devices=2, batch=2), MEGATRON),
        "windows": (small_case("gemma2-9b", layers=4, devices=2, batch=4, sequence=8192), MEGATRON),
        "mixture on two": (small_case("mixtral-8x7b", layers=2, devices=2, batch=2), MEGATRON),
        "mixture on four, tight": (replace(small_case("mixtral-8x7b", layers=2, devices=4, batch=2), memory_ratio=0.6), MEGATRON),
        "mla, mixture, shared experts, mtp": (small_case("deepseek-v3", layers=4, devices=2, batch=2), MEGATRON),
        "mixture without sequence parallelism": (
            small_case("qwen3-30b-a3b", layers=2, devices=4, batch=2),
            replace(MEGATRON, sequence_parallel=False),
        ),
        "no data types": (small_case(layers=2, devices=2, batch=2, precision="fp8-cs", device="a100-40g-sxm"), MEGATRON),
        "mixture, poor framework": (small_case("qwen3-30b-a3b", layers=2, devices=2, batch=2), poor),
        "hybrid alone, nodes of four": (
            small_case(layers=1, devices=8, batch=1, per_node=4),
            Features(name="hybrid", schedules=("1f1b",), zero_stages=(0, 1), context_kinds=("hybrid",), recompute=("none",)),
        ),
        "shard groups that divide the experts' replicas": (
            small_case("mixtral-8x7b", layers=1, devices=8, batch=4, per_node=4),
            Features(
                name="instances", schedules=("1f1b",), zero_stages=(1,), instances_divide_experts=True, recompute=("none",),
                context_parallel=False,
            ),
        ),
        "shards of a node beside tp": (
            small_case(layers=1, devices=8, batch=4, per_node=4),
            Features(name="nodes", schedules=("1f1b",), zero_stages=(1,), recompute=("none",), context_parallel=False),
        ),
        "lora": (small_case(layers=4, devices=4, batch=2, task="lora"), MEGATRON),
        "fp8": (small_case(layers=3, devices=2, batch=2, precision="fp8-cs"), MEGATRON),
        "two scale-up domains in a node": (small_case("llama3-8b", "rtx-4090", layers=2, devices=4, batch=4, per_node=2), MEGATRON),
    }


NAMES = sorted(spaces())


@cache
def answer(name: str) -> BruteForce:
    case, features = spaces()[name]
    return brute_force(case, features, overlap=overlap_for(case, "exact"))


@cache
def rows_of(name: str, *, bound: bool = False) -> tuple[Counts, dict[object, tuple[float, float]]]:
    """The grid as the search evaluates it."""
    case, features = spaces()[name]
    overlap = overlap_for(case, "exact")
    space, counts = make_space(case, features, case.cluster.num_devices, Pins()), Counts()
    found = {}
    for rows in evaluate_grid(space, counts, overlap=overlap, bound=bound):
        for index in range(len(rows)):
            layout = layout_of_row(space, rows, index, overlap)
            assert layout not in found, "each layout stands in the grid once"
            found[layout] = float(rows.step_s[index]), float(rows.reserved_bytes[index])
    return counts, found


def test_there_are_at_least_twenty_spaces():
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_the_grid_has_the_layouts_and_the_figures_of_exhaustive_enumeration(name):
    truth = answer(name)
    counts, found = rows_of(name)
    assert counts.legal == truth.legal == len(found)
    assert set(found) == set(truth.step_s)
    order = list(truth.step_s)
    scalar = np.array([(truth.step_s[layout], truth.reserved[layout]) for layout in order]).reshape(-1, 2)
    column = np.array([found[layout] for layout in order]).reshape(-1, 2)
    np.testing.assert_allclose(column, scalar, rtol=1e-9, atol=0.0)
    apart = np.diff(np.sort(scalar[:, 0])) > 1e-9 * scalar[:, 0].max(initial=0.0)
    if apart.all():
        assert (np.argsort(column[:, 0], kind="stable") == np.argsort(scalar[:, 0], kind="stable")).all()


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_every_reason_is_counted_as_often_as_by_enumeration(name):
    counts, _ = rows_of(name)
    assert dict(counts.rejected or {}) == dict(answer(name).rejected)


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_layouts_left_out_by_the_bound_do_not_fit(name):
    case, _ = spaces()[name]
    truth = answer(name)
    counts, kept = rows_of(name, bound=True)
    assert counts.evaluated == len(kept)
    assert counts.evaluated + counts.bounded == counts.legal == truth.legal
    fitting = truth.fitting(case.capacity_bytes)
    assert counts.fitting == len(fitting)
    assert set(fitting) <= set(kept)


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_the_winner_is_that_of_enumeration(name):
    case, features = spaces()[name]
    truth = answer(name)
    if not truth.legal:
        pytest.skip("no layout is legal; the messages are tested elsewhere")
    fitting = truth.fitting(case.capacity_bytes)
    result = plan(case, features, SearchOptions(risk="exact", refine=False))
    assert (result.legal, dict(result.rejected)) == (truth.legal, dict(truth.rejected))
    assert min(len(fitting), len(result.plans)) <= result.fitting <= len(fitting)
    if not fitting:
        assert not result.plans
        return
    best = min(estimate(case, layout).step_s for layout in fitting[:SIMULATED])
    assert result.plans[0].estimate.step_s == pytest.approx(best, rel=1e-9)
    assert result.plans[0].layout in truth.step_s


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_no_layout_keeps_less_than_its_share_of_the_states(name):
    case, _ = spaces()[name]
    assert 0.0 < least_states_bytes(case) <= min(answer(name).reserved.values(), default=np.inf)


@pytest.mark.parametrize("name", one_of(2, NAMES))
def test_the_short_way_to_know_whether_anything_fits_is_that_of_enumeration(name):
    case, features = spaces()[name]
    truth, overlap = answer(name), overlap_for(case, "exact")
    least = min(truth.reserved.values(), default=0.0)
    space = make_space(case, features, case.cluster.num_devices, Pins())
    leanest = least_demanding([space], overlap, Functions(said=lambda _: overlap))
    assert (leanest.memory_reserved_bytes if leanest else 0.0) == pytest.approx(least, rel=1e-9)
    for share in (0.999, 1.001):
        device = replace(case.cluster.device, memory_bytes=int(least * share / case.memory_ratio))
        own = replace(case, cluster=replace(case.cluster, device=device))
        assert fits_anywhere(own, features, case.cluster.num_devices, overlap=overlap) == (share > 1 and truth.legal > 0)


@pytest.mark.parametrize("name", ["gqa on four", "mixture on two", "all schedules", "fsdp", "mixture, poor framework"])
def test_rules_of_one_layout_agree_with_rules_of_columns(name):
    case, features = spaces()[name]
    points = list(grid(case, features, case.cluster.num_devices))[::41]
    legal = 0
    for point in points:
        if (point.zero and point.shards == 1) or (point.schedule == "1f1b" and point.vp > 1):
            continue  # a layout with shard groups of one rank is ZeRO 0, and 1F1B over chunks is the interleaved schedule
        refused = layout_refusals(case, features, layout_of(case, features, point, Overlap()))
        expected = refusal(case, features, point)
        legal += expected is None
        assert (not refused) == (expected is None), point
        assert expected is None or expected in refused
    assert legal
