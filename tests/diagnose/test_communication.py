"""Communication that nothing hides: each dimension with its own share, from whatever tells it, and each second once."""

from __future__ import annotations

import pytest

from meshwright.diagnose.groups import dimensions
from meshwright.diagnose.rules.communication import communication
from meshwright.diagnose.run import Run
from meshwright.domain.label import parse_layout
from meshwright.domain.observed import RankSplit, RankTrace, RunLog, Step


def trace(exposed: dict[str, float], groups: dict[str, tuple[int, ...]] | None = None) -> RankTrace:
    """Ten seconds, of which groups are exposed."""
    total = sum(exposed.values())
    split = RankSplit(window_s=10.0, compute_s=10.0 - total, communication_s=total, exposed_communication_s=total)
    return RankTrace(file="trace.json", format="kineto", split=split, exposed_by_group=exposed, groups=groups or {})


def log(**parts: float) -> RunLog:
    return RunLog(file="run.log", format="megatron_log", steps=tuple(
        Step(number=number, step_s=1.0, line=number, parts={name.replace("_", "-"): value for name, value in parts.items()})
        for number in (1, 2, 3)))


def lost(*observations: RankTrace | RankSplit | RunLog) -> dict[str, float | None]:
    return {each.id: each.loss_ratio for each in communication(Run(observations=observations))}


def test_each_dimension_is_told_with_its_own_share():
    """A finding of the worst group lost the share of all groups, and the others were left unsaid."""
    found = lost(trace({"tp_group": 2.0, "dp_group": 1.0, "pp_group": 0.2, "77": 0.6}))
    assert found == pytest.approx({"communication.tp": 0.2, "communication.dp": 0.1, "communication.unknown": 0.06})


def test_what_is_told_and_what_is_lost_are_one_figure():
    for each in communication(Run(observations=(trace({"tp_group": 2.0, "dp_group": 1.0}),))):
        assert each.message.values["share"] in str(each.message)
        assert each.loss_ratio == pytest.approx(float(str(each.message.values["share"]).rstrip("% ")) / 100)
        assert all(each.id.split(".")[1] in seen.text for seen in each.evidence), "evidence is that of its own groups"


def test_no_group_is_named_and_none_has_enough_alone():
    assert lost(trace({"": 2.0})) == pytest.approx({"communication.unknown": 0.2})
    assert lost(trace({"tp_group": 0.4, "dp_group": 0.35})) == pytest.approx({"communication.tp": 0.04})
    assert lost(trace({"tp_group": 0.4})) == {}


def test_a_timer_inside_another_counts_once():
    """Gathering parameters is part of the optimizer's timer, reducing in micro-steps part of the backward pass."""
    timers = log(forward_compute=0.3, backward_compute=0.3, all_grads_sync=0.1, optimizer=0.2, params_all_gather=0.15)
    run = Run(observations=(timers,))
    assert run.split.exposed["dp"] == pytest.approx(0.25)
    assert run.split.optimizer_ratio == pytest.approx(0.05)
    (found,) = communication(run)
    assert found.loss_ratio == pytest.approx(0.25)
    assert {seen.text.split(":")[0] for seen in found.evidence} == {"timer all-grads-sync", "timer params-all-gather"}


def test_timers_of_communication_alone_tell_it():
    assert lost(log(all_grads_sync=0.2)) == pytest.approx({"communication.dp": 0.2})


def test_a_table_beside_a_log_without_timers_is_told():
    table = [RankSplit(file="step_trace.csv", rank=rank, window_s=10.0, compute_s=6.0, communication_s=3.0,
                       exposed_communication_s=2.0, idle_s=2.0) for rank in (0, 1)]
    assert lost(log(), *table) == lost(*table) == pytest.approx({"communication.unknown": 0.2})


@pytest.mark.parametrize(("label", "world", "inside", "groups"), [
    ("tp2 pp1", 8, False, {(0, 1): "tp", (0, 2, 4, 6): "dp", tuple(range(8)): None}),
    ("tp2 cp2 pp2", 16, False, {(0, 1): "tp", (0, 2): "cp", (0, 4): "dp", (0, 8): "pp", (0, 2, 4, 6): "dp"}),
    ("tp2 pp4", 32, True, {(0, 2, 4, 6): "pp", (0, 8, 16, 24): "dp"}),
    ("tp1 pp1", 8, False, {tuple(range(8)): "dp"}),
])
def test_groups_are_placed_as_frameworks_place_ranks(label, world, inside, groups):
    layout = parse_layout(f"{label} mb1", num_devices=world, global_batch_sequences=64)
    named = {f"group {number}": ranks for number, ranks in enumerate(groups)}
    found = dimensions([trace({}, named)], layout, inside)
    assert {ranks: found.get(name) for name, ranks in named.items()} == groups


def test_the_group_of_all_ranks_is_data_parallel_only_where_nothing_else_is():
    everyone = trace({"0 default_pg": 2.0}, {"0 default_pg": tuple(range(8))})
    layouts = [parse_layout(f"{words} mb1", num_devices=8, global_batch_sequences=8) for words in ("tp1", "tp2", "tp8")]
    assert [dimensions([everyone], each).get("0 default_pg") for each in (None, *layouts)] == ["dp", "dp", None, "tp"]
    unlisted = trace({"0 default_pg": 2.0})
    assert [dimensions([unlisted], each).get("0 default_pg") for each in (None, *layouts)] == ["dp", "dp", None, "tp"]
