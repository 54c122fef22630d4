"""Allocators' records: small ones by hand, and replays against a count of everything that lives at each moment."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.sources import reads, survives

from meshwright.readers.memory import mindspore, snapshot, timeline
from meshwright.readers.memory.replay import Change, replayed

MIB = 2**20


def frames(name: str) -> list[dict]:
    return [{"name": "malloc", "filename": "CUDACachingAllocator.cpp", "line": 0},
            {"name": "forward", "filename": "/x/site-packages/torch/nn/functional.py", "line": 9},
            {"name": name, "filename": "/home/u/train.py", "line": 7}]


def event(action: str, addr: int, size: int, at: int, name: str = "") -> dict:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": at} | ({"frames": frames(name)} if name else {})


def backward(addr: int, size: int, at: int) -> dict:
    """An allocation of the backward pass, whose thread has no frames of Python."""
    names = ["at::mm", "torch::autograd::generated::MmBackward0::apply", "torch::autograd::Engine::thread_main"]
    return event("alloc", addr, size, at) | {"frames": [{"name": each, "filename": "??", "line": 0} for each in names]}


def leaking(steps: int = 12) -> dict:
    """Twelve steps that take and give back activations, and keep 1 MiB each; a segment goes back late, one request fails."""
    events = [event("alloc", 1, 100 * MIB, 0, "weights")]
    for step in range(steps):
        at = 10 * step
        events += [event("alloc", 2, 50 * MIB, at + 1, "layer"), event("alloc", 100 + step, MIB, at + 2, "log_loss"),
                   event("free_requested", 2, 50 * MIB, at + 3), event("free_completed", 2, 50 * MIB, at + 4),
                   backward(3, 5 * MIB, at + 5), event("free_completed", 3, 5 * MIB, at + 6)]
    events += [event("segment_free", 9, 20 * MIB, 130), event("oom", 0, 512 * MIB, 131)]
    block = {"address": 1, "size": 100 * MIB, "requested_size": 1, "state": "active_allocated", "frames": []}
    return {"segments": [{"device": 0, "address": 1, "total_size": 200 * MIB, "allocated_size": 100 * MIB, "active_size": 100 * MIB,
                          "blocks": [block, block | {"state": "inactive", "size": 60 * MIB},
                                     block | {"state": "inactive", "size": 40 * MIB}]}],
            "device_traces": [events, []]}


def test_a_leak_a_late_segment_and_a_failed_request_are_seen(tmp_path):
    (found,) = reads(snapshot.FORMAT, tmp_path, pickle.dumps(leaking(), 4))
    assert (found.reserved_bytes, found.allocated_bytes, found.num_segments) == (200 * MIB, 100 * MIB, 1)
    assert found.peak_bytes == (100 + 50 + 12) * MIB
    assert [(each.name.split()[0], each.bytes // MIB, each.never_freed) for each in found.holders] == [
        ("weights", 100, False), ("layer", 50, False), ("log_loss", 12, True)]
    assert (found.largest_free_bytes, found.out_of_memory, found.freed_segments) == (60 * MIB, (512 * MIB,), 1)


def test_one_pass_that_fills_up_does_not_grow(tmp_path):
    events = [event("alloc", at, MIB, at, "layer") for at in range(100)]
    (found,) = reads(snapshot.FORMAT, tmp_path, pickle.dumps({"segments": [], "device_traces": [events]}, 4))
    assert [each.never_freed for each in found.holders] == [False]
    (short,) = reads(snapshot.FORMAT, tmp_path, pickle.dumps(leaking(steps=3), 4))
    assert not any(each.never_freed for each in short.holders), "three steps are too few"


def test_several_devices_are_several_snapshots(tmp_path):
    two = leaking()
    two["segments"].append(two["segments"][0] | {"device": 1})
    two["device_traces"][1] = [event("alloc", 1, MIB, 0, "other")]
    assert [(each.device, each.peak_bytes) for each in reads(snapshot.FORMAT, tmp_path, pickle.dumps(two, 4))] == [
        (0, 162 * MIB), (1, MIB)]


@examples(80)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=40))
def test_the_peak_is_the_most_that_lives_at_any_moment(steps):
    changes = [Change(float(at), block, size, str(size % 3)) for at, (block, size) in enumerate(steps)]
    sums = [sum(dict(steps[:end]).values()) for end in range(1, len(steps) + 1)]
    found = replayed(changes)
    assert found.peak_bytes == max(sums, default=0)
    assert found.end_bytes == (sums[-1] if sums else 0)
    held = sum(each.bytes for each in found.holders if not each.never_freed or each.bytes)
    assert held >= found.peak_bytes


def test_a_timeline_is_summed_by_category(tmp_path):
    rows = [[-1, 1, 100, 0], [1000, 2, 40, 4], [2000, 2, 30, 3], [3000, 4, -30, 3], [4000, 3, -40, 4], [4000, 3, 40, 5],
            [5000, 4, -40, 5]]
    (found,) = reads(timeline.FORMAT, tmp_path, json.dumps(rows))
    assert (found.peak_bytes, found.allocated_bytes, found.peak_at_s) == (170, 100, pytest.approx(1e-6))
    assert [(each.name, each.bytes) for each in found.holders] == [("parameter", 100), ("activation", 40), ("temporary", 30)]


BLOCKS = """\
start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_peak_memory,file_name,line_num,type,task_name,node_name,
1,9223372036854775807,0x1,0,Pool,1000,1000,weights.cc,7,Weight,Init,Default/weight,
2,5,0x2,0,Pool,500,1500,,,Kernel,MatMul,Default/layer/MatMul,
3,4,0x3,0,Pool,300,2100,,,WorkSpace,MatMul,Default/layer/MatMul,
6,8,0x2,0,Pool,100,2100,,,Kernel,Add,,
broken,row
"""


def test_mindspores_blocks_are_replayed_by_task(tmp_path):
    (found,) = reads(mindspore.FORMAT, tmp_path, BLOCKS)
    assert (found.peak_bytes, found.reserved_bytes, found.allocated_bytes) == (1800, 2100, 1000)
    assert [(each.name, each.bytes) for each in found.holders] == [("weights.cc:7", 1000), ("Default/layer/MatMul", 800)]
    assert found.events == (("alloc", 4),)


def test_the_innermost_frame_of_the_users_own_code_holds_a_block(tmp_path):
    stack = "File:/u/train.py;Line:9;Function:main|File:/u/model.py;Line:31;Function:attend|File:/x/nn/cell.py;Line:1;Function:call"
    (found,) = reads(mindspore.FORMAT, tmp_path, f"start_time_stamp,end_time_stamp,size,python_stack,\n1,2,100,{stack},\n")
    assert [each.name for each in found.holders] == ["attend (/u/model.py:31)"]


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), which=st.integers(0, 2))
def test_scrambled_records_are_values_or_one_line(tmp_path, data, which):
    format, whole = [(snapshot.FORMAT, pickle.dumps(leaking(), 4)), (timeline.FORMAT, b"[[-1, 1, 100, 0], [1, 2, 3, 4]]"),
                     (mindspore.FORMAT, BLOCKS.encode())][which]
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(format, tmp_path, bytes(content[: data.draw(st.integers(0, len(content)))]))


JUNK = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3) | st.just({}) | st.floats()


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(sorted(leaking()["segments"][0])), event_key=st.sampled_from(sorted(event("alloc", 1, 1, 1, "x"))),
       junk=JUNK)
def test_values_of_any_kind_may_stand_anywhere_in_a_snapshot(tmp_path, key, event_key, junk):
    changed = leaking()
    changed["segments"][0][key] = junk
    changed["device_traces"][0][1][event_key] = junk
    survives(snapshot.FORMAT, tmp_path, pickle.dumps(changed, 4))


def test_a_pickle_of_something_else_is_refused_in_one_line(tmp_path):
    assert survives(snapshot.FORMAT, tmp_path, pickle.dumps({"segments total_size": 1}, 4)) == ()
