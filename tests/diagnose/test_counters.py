"""Counters and snapshots are judged: what differs from the rest is named, a healthy run gets advice at most."""

from __future__ import annotations

import pytest

from meshwright.diagnose.allocator import judge_snapshot
from meshwright.diagnose.bandwidth import judge_ranks
from meshwright.diagnose.counters import judge_counters
from meshwright.domain.observed import Bandwidth, Bandwidths, Counters, DeviceSeries, MemorySnapshot

HEALTHY = {"utilization_ratio": 0.97, "power_w": 650.0, "power_limit_w": 700.0, "clock_hz": 1.9e9, "memory_used_bytes": 70e9,
           "memory_total_bytes": 80e9}


def counters(*changed: dict) -> Counters:
    """Four devices, of which the first differ."""
    means = [HEALTHY | each for each in (*changed, {}, {}, {}, {})][:4]
    return Counters(file="c", format="t", devices=tuple(
        DeviceSeries(device=str(at), samples=100, means=each, most=each, least=each)
        for at, each in enumerate(means)))


def ids(judged: tuple) -> list[tuple[str, str]]:
    return [(each.id.split(".")[1], each.severity) for each in judged]


def test_healthy_devices_are_left_alone():
    assert judge_counters([counters()]) == ()
    assert judge_counters([]) == ()


@pytest.mark.parametrize(("changed", "found"), [
    ({"clock_hz": 0.3e9, "utilization_ratio": 0.1}, [("left_out", "warning")]), ({"xid": 79.0}, [("xid", "warning")])])
def test_a_device_that_differs_is_named(changed, found):
    judged = judge_counters([counters(changed)])
    assert ids(judged) == found
    assert judged[0].message.values["device"] == "0"
    assert all(str(each.message) for each in judged)


@pytest.mark.parametrize(("rate", "found"), [(0.21, [("idle", "warning")]), (0.89, [("idle", "warning")]), (0.90, [])])
def test_devices_that_mostly_wait_are_a_finding(rate, found):
    """At 21 % the guide's bound failed beside "nothing found that costs time"."""
    judged = judge_counters([counters(*[{"utilization_ratio": rate}] * 4)])
    assert ids(judged) == found
    assert all(each.remedies for each in judged)


def test_low_power_at_full_utilisation_is_a_hint():
    waiting = {"power_w": 250.0}
    assert ids(judge_counters([counters(waiting, waiting, waiting, waiting)])) == [("waiting", "advice")]
    assert judge_counters([counters(waiting)]) == (), "of all of them"


def snapshot(**given: object) -> MemorySnapshot:
    return MemorySnapshot(**({"file": "m", "format": "t", "device": 0, "reserved_bytes": 100 * 2**30, "allocated_bytes": 60 * 2**30,
                              "active_bytes": 60 * 2**30, "num_segments": 9, "largest_free_bytes": 5 * 2**30,
                              "peak_bytes": 90 * 2**30} | given))


def test_what_did_not_fit_is_fragmented_or_full():
    assert judge_snapshot(snapshot()) == ()
    assert ids(judge_snapshot(snapshot(out_of_memory=(20 * 2**30,)))) == [("snapshot-fragmented", "warning")]
    assert ids(judge_snapshot(snapshot(out_of_memory=(50 * 2**30,)))) == [("snapshot-full", "warning")]


def times(late: int | None, share: float = 0.3) -> list[Bandwidths]:
    def row(rank: int, at: int) -> Bandwidth:
        return Bandwidth(operation="AllReduce", message_bytes=2.0**at, time_s=1e-3 * at * (1 - share if rank == late else 1),
                         rank=rank, group="0x1", algorithm_bytes_per_s=1.0, bus_bytes_per_s=1.0, line=3)

    return [Bandwidths(file=f"rank-{rank}", format="nccl_inspector", rows=tuple(row(rank, at) for at in range(20, 24)))
            for rank in range(8)]


def test_the_rank_that_waits_least_is_the_one_that_is_waited_for():
    assert judge_ranks(times(None)) == ()
    assert judge_ranks(times(5, 0.03)) == ()
    (found,) = judge_ranks(times(5))
    assert (found.id, found.message.values["rank"], found.severity) == ("network.last_to_arrive", 5, "warning")
    assert found.evidence[0].place.file == "rank-5"
    assert judge_ranks(times(5)[:2]) == (), "of two nobody can tell"
