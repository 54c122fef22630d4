"""Where a device's time went, against a count of every microsecond; and what traces of every age say of themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.traces.made import LAYOUTS, NAMES, Text, host, kernel, launch, written

from meshwright.domain.observed import together
from meshwright.errors import InputError
from meshwright.readers.traces import columns, kineto

KINDS = tuple(NAMES)
ROWS = st.lists(
    st.tuples(st.integers(0, 250), st.integers(0, 30), st.sampled_from(KINDS), st.integers(-40, 10)), min_size=1, max_size=20)
"""Start, duration, kind, and how long before it was launched; above 4: not known."""
SPANS = st.lists(st.tuples(st.integers(0, 250), st.integers(0, 60)), max_size=4)
US = 1e-6


def _read(content, size=1 << 20):
    return kineto.read(Text(content), size)


def _trace(events, layout="compact", **beside):
    (found,) = _read(written(events, layout, **beside))
    return found


def _events(rows, loading=(), waiting=()):
    """Kernels, the launch of each so long before it (or not at all), and what the host does."""
    events = []
    for number, (start, duration, kind, ahead) in enumerate(rows, 1):
        events.append(kernel(1000 + start, duration, kind, number))
        if ahead < 5:
            events.append(launch(1000 + start + min(0, ahead), number))
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events += [host(1000 + start, length, name) for start, length in loading]
    return events + [host(1000 + start, length, "cudaDeviceSynchronize", "cuda_runtime") for start, length in waiting]


@examples(80)
@given(ROWS)
def test_parts_are_what_a_count_of_every_microsecond_says_and_add_up(rows):
    trace = _trace(_events(rows))
    cells = {kind: set() for kind in KINDS}
    for start, length, kind, _ in rows:
        cells[kind].update(range(start, start + length))
    compute, communication, copies = cells["compute"], cells["communication"], cells["memcpy"] | cells["memset"]
    first, last = min(row[0] for row in rows), max(row[0] + row[1] for row in rows)
    split = trace.split
    parts = {
        split.window_s: last - first, split.compute_s: len(compute), split.communication_s: len(communication),
        split.exposed_communication_s: len(communication - compute), split.exposed_copies_s: len(copies - communication - compute),
        split.memory_sets_s: len(cells["memset"] - compute), split.idle_s: last - first - len(compute | communication | copies),
        trace.exposed_by_group.get("", 0.0): len(communication - compute),
    }
    for got, want in parts.items():
        assert got == pytest.approx(want * US, abs=1e-12)
    assert split.window_s == pytest.approx(split.compute_s + split.exposed_communication_s + split.exposed_copies_s + split.idle_s)
    assert sum(each.exposed_s for each in trace.collectives) >= split.exposed_communication_s - 1e-12
    assert sum(each.total_s for each in trace.kernels) == pytest.approx(sum(row[1] for row in rows) * US)


@examples(80)
@given(ROWS, SPANS, SPANS)
def test_causes_of_idling_are_those_of_a_plain_walk_and_add_up(rows, loading, waiting):
    trace = _trace(_events(rows, loading, waiting))
    want = dict.fromkeys(("data", "host", "launch", "sync", "kernel", "other"), 0)
    busy = sorted((start, start + length) for start, length, _, _ in rows)
    loads = {cell for start, length in loading for cell in range(start, start + length)}
    end = busy[0][1]
    for start, stop in busy[1:]:
        if start > end:
            known = [each[0] + min(0, each[3]) for each in rows if each[0] == start and each[3] < 5]
            if not known:
                want["other"] += start - end
            elif min(known) <= end:
                want["kernel" if start - end <= 30 else "other"] += start - end
            else:
                late = range(end, min(*known, start))
                data = len(loads.intersection(late))
                want["data"] += data
                want["sync" if any(each <= end <= each + length for each, length in waiting) else "host"] += len(late) - data
                want["launch"] += start - late.stop
        end = max(end, stop)
    for name, value in want.items():
        assert trace.idle[name] == pytest.approx(value * US, abs=1e-12), name
    assert sum(trace.idle.values()) == pytest.approx(trace.split.idle_s, abs=1e-12)


@pytest.mark.parametrize(("start", "launched", "cause"), [
    (40, 10, "kernel"), (41, 10, "other"), (40, 9, "kernel"), (110, 10, "other"), (111, 11, "launch"), (112, 11, "other"),
])
def test_edges_of_causes(start, launched, cause):
    """A gap that begins at 10."""
    idle = _trace([kernel(0, 10, correlation=1), launch(0, 1), kernel(start, 10, correlation=2), launch(launched, 2)]).idle
    found = {name: round(value / US) for name, value in idle.items() if value}
    assert found == {cause: start - max(10, launched), **({"host": 1} if launched > 10 else {})}


def test_of_what_starts_at_one_moment_the_first_launch_counts():
    events = [kernel(0, 10, correlation=1), kernel(50, 5, correlation=2), kernel(50, 9, correlation=3)]
    events += [launch(45, 2), launch(20, 3)]
    assert {name: round(value / US) for name, value in _trace(events).idle.items() if value} == {"host": 10, "launch": 30}


@examples(25)
@given(ROWS, st.sampled_from(LAYOUTS), st.integers(20, 900))
def test_neither_layout_nor_pieces_change_the_answer(rows, layout, size):
    events = [host(990, 200, "ProfilerStep#1"), *_events(rows), host(1190, 150, "ProfilerStep#2")]
    assert _read(written(events, layout), size) == _read(written(events, "bare"))


@pytest.mark.parametrize("age", [
    {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset", "cuda_runtime": "Runtime", "user_annotation": "Operator"},
    {"kernel": "kernel"}, {"kernel": "concurrent_kernel", "cuda_runtime": "xpu_runtime"},
])
def test_categories_of_every_age_are_the_same(age):
    rows = [(0, 10, "compute", -2), (20, 5, "communication", -3), (22, 10, "memcpy", -1), (40, 4, "memset", -1),
            (60, 10, "compute", -2)]
    plain = [host(995, 40, "ProfilerStep#1"), *_events(rows), host(1035, 30, "ProfilerStep#2")]
    old = [{**each, "cat": age.get(each["cat"], each["cat"])} for each in plain]
    assert _trace(old) == _trace(plain)
    assert not _trace(old).notes[1:]


@pytest.mark.parametrize("name", [
    "ncclKernel_AllReduce_RING_LL_Sum_float(x)", "ncclDevKernel_Generic(x)", "rcclKernel", "hcom_allReduce__1_0", "mscclKernel",
    "MSCCL_x", "nvshmemi_put", "void deep_ep::intranode::dispatch<8>()", "deepep_combine", "rocshmem_put",
])
def test_kernels_of_every_library_communicate(name):
    trace = _trace([kernel(0, 5), {**kernel(5, 5), "name": name}])
    assert trace.num_communication_kernels == 1
    assert trace.split.exposed_communication_s == pytest.approx(5 * US)


def test_a_kernel_of_any_name_communicates_where_the_trace_calls_it_a_collective():
    trace = _trace([kernel(0, 5), kernel(5, 5, correlation=3, **{"Collective name": "allreduce"})])
    assert trace.split.communication_s == pytest.approx(5 * US)
    assert trace.collectives[0].operation == "all-reduce"


def test_no_communication_in_a_world_of_several_is_not_none_at_all():
    alone, two = (_trace([kernel(0, 5), kernel(9, 5)], distributedInfo={"rank": 0, "world_size": size}) for size in (1, 2))
    unsaid = _trace([kernel(0, 5), kernel(9, 5)])
    assert (alone.split.communication_s, alone.notes) == (0.0, ())
    assert unsaid.split.communication_s == 0.0
    assert "does not say how many ranks" in unsaid.notes[0]
    assert two.split.communication_s is None
    assert two.split.exposed_communication_s is None
    assert two.split.window_s == pytest.approx(two.split.compute_s + two.split.idle_s)
    assert "no communication kernels were recognised although there are 2 ranks" in two.notes[0]


def test_what_stands_on_device_streams_and_does_nothing_does_not_count():
    plain = [kernel(0, 5), kernel(20, 5)]
    noise = [{**kernel(6, 10), "cat": "cuda_sync", "name": "Stream Wait Event"}, {**kernel(0, 25), "cat": "gpu_user_annotation"},
             {**host(2, 30, "triton_poi_fused_0", "cpu_op"), "args": {"stream": 0, "correlation": 3}}]
    assert _trace(plain + noise).split == _trace(plain).split


def test_a_category_of_the_future_is_named_and_left_out():
    trace = _trace([kernel(0, 5), {**kernel(6, 10), "cat": "quantum_op\x1b[31m"}])
    assert trace.split.window_s == pytest.approx(5 * US)
    assert any("quantum_op\\x1b" in each for each in trace.notes)


def test_generic_kernels_are_told_by_the_operator_that_asked_for_them():
    said = {"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "Group size": 4, "dtype": "BFloat16",
            "Process Group Name": "3", "Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 17}
    generic = {**kernel(10, 5, "communication", 9), "name": "ncclDevKernel_Generic(x)"}
    events = [kernel(0, 12), generic, launch(4, 9, **{"External id": 77}),
              host(2, 5, "record_param_comms", "cpu_op", **{"External id": 77, **said})]
    (found,) = _trace(events).collectives
    assert (found.operation, found.group, found.ranks) == ("all-gather", "3 mesh_tp", (0, 1, 2, 3))
    assert (found.sequence, found.message_bytes) == (17, 80)
    assert found.exposed_s == pytest.approx(3 * US)
    assert _trace(events).exposed_by_group == {"3 mesh_tp": pytest.approx(3 * US)}
    assert _trace(events[:2]).collectives[0].operation == ""
    assert "does not say which collective" in _trace(events[:2]).notes[-1]
    own = {**generic, "args": {**generic["args"], "External id": 77}}
    assert _trace([kernel(0, 12), own, launch(4, 9), *events[3:]]).collectives == (found,)
    short = {**said, "Process Group Ranks": "[0, 1, ..., 7]"}
    shortened = [*events[:3], host(2, 5, "record_param_comms", "cpu_op", **{"External id": 77, **short})]
    assert _trace(shortened).collectives[0].ranks == ()


def test_steps_on_the_device_begin_with_what_they_launched():
    events = [host(0, 100, "ProfilerStep#4"), host(100, 100, "ProfilerStep#5"), launch(10, 1), launch(20, 2), launch(110, 3)]
    events += [kernel(50, 30, correlation=1), kernel(90, 60, correlation=2), kernel(155, 20, correlation=3)]
    trace = _trace(events)
    times = [[round(time / US) for time in (each.start_s, each.end_s, each.device_start_s, each.device_end_s)]
             for each in trace.steps]
    assert times == [[0, 100, 50, 155], [100, 200, 155, 175]]
    assert [round(each.compute_s / US) for each in trace.by_step] == [90, 20]
    windows = ["2 steps on the device, by what they launched", "what was launched before the last of 2 steps"]
    assert [each.window for each in trace.windows] == windows
    assert [round(each.window_s / US) for each in trace.windows] == [125, 100]
    for before, after in pairwise(trace.by_step):
        assert before.start_s + before.window_s == pytest.approx(after.start_s)


def test_a_step_on_the_device_does_not_begin_before_the_one_before_and_ends_with_what_it_launched():
    events = [host(0, 100, "ProfilerStep#4"), host(100, 100, "ProfilerStep#5"), launch(10, 1), launch(110, 2), launch(300, 3)]
    events += [kernel(150, 30, correlation=1), kernel(140, 60, correlation=2), kernel(400, 20, correlation=3)]
    steps = _trace(events).steps
    assert [(round(each.device_start_s / US), round(each.device_end_s / US)) for each in steps] == [(150, 150), (150, 200)]


@pytest.mark.parametrize(("length", "trusted"), [(90, True), (3, False)])
def test_steps_annotated_on_the_device_are_a_window_where_they_hold_what_it_did(length, trusted):
    annotated = {**kernel(10, length), "cat": "gpu_user_annotation", "name": "ProfilerStep#7"}
    trace = _trace([kernel(0, 5), kernel(10, 40), kernel(60, 40), annotated])
    assert [each.window for each in trace.windows] == (["1 step annotated on the device"] if trusted else [])
    assert [each.number for each in trace.steps] == ([7] if trusted else [])


def test_of_several_devices_the_one_that_works_longest_is_the_rank():
    other = kernel(0, 500, "memcpy")
    trace = _trace([kernel(0, 5), kernel(20, 5), {**other, "dur": 3, "args": {"device": 1}}])
    assert trace.split.window_s == pytest.approx(25 * US)
    assert "1 events of other devices" in trace.notes[-1]


def test_what_the_host_did_is_summed_once():
    names = ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "torch/utils/data/dataloader.py(733): __next__",
             "cudaStreamSynchronize", "Python GC", "save_checkpoint", "torch/_dynamo/convert_frame.py(12): _compile",
             "torch/utils/checkpoint.py(5): forward", "aten::mm"]
    events = [kernel(0, 1)] + [host(10 * number, 4, name) for number, name in enumerate(names)] + [host(2, 7, names[0])]
    found = {name: round(value / US) for name, value in _trace(events).host.items()}
    assert found == {"dataloader": 13, "sync": 4, "gc": 4, "checkpoint": 4, "compile": 4}


def test_a_trace_of_the_host_alone_says_so():
    trace = _trace([host(0, 5, "aten::mm", "cpu_op")], distributedInfo={"rank": 34, "world_size": 300})
    assert (trace.rank, trace.world, trace.num_kernels, trace.split.window_s) == (34, 300, 0, 0.0)
    assert "only the host was recorded" in trace.notes[0]


def test_collectives_of_a_host_alone_are_those_of_gloo():
    traces = [_trace([host(0, 300, "ProfilerStep#1"), host(20 + late + clock, 90 - late, "gloo:all_reduce"),
                      host(200 + clock, 30, "gloo:broadcast")], distributedInfo={"rank": rank, "world_size": 2})
              for rank, late, clock in ((0, 0, 0), (1, 60, 7))]
    assert [each.operation for each in traces[0].collectives] == ["all-reduce", "broadcast"]
    assert traces[0].host["gloo"] == pytest.approx(120 * US)
    assert together(traces).waiting_s[0] == pytest.approx(60 * US)


def test_what_holds_no_event_that_takes_time_is_none():
    assert _read(written([{"ph": "M", "name": "process_name", "ts": 1, "dur": 1}], "bare")) == ()


def test_half_a_trace_is_read_to_the_break_and_says_so():
    content = written([kernel(each, 1, correlation=each + 1) for each in range(0, 400, 2)])
    (trace,) = _read(content[:len(content) // 2])
    assert not trace.complete
    assert "ends before its end" in trace.notes[0]
    assert 90 < trace.num_kernels < 110


@pytest.mark.parametrize("damage", ["Infinity", "NaN", "1e999", '"never"', "-5", "[]", "null", "99999999999999999999999"])
def test_times_that_are_none_do_no_harm(damage):
    content = written([kernel(0, 5), kernel(10, 7), kernel(20, 5)]).replace(b'"dur":7', b'"dur":' + damage.encode(), 1)
    (trace,) = _read(content)
    assert trace.split.window_s >= 25 * US
    assert trace.split.compute_s >= 10 * US - 1e-12
    assert trace.kernels_s >= 10 * US - 1e-12


BYTES = st.sampled_from([b"", b"{", b"}", b"]", b'"', b"\\", b",", b"\x00", b"\xff", b"9" * 30, b"[["])


@examples(150)
@given(st.lists(st.tuples(st.integers(0, 3000), BYTES), min_size=1, max_size=4), st.sampled_from(LAYOUTS), st.integers(30, 5000))
def test_damage_anywhere_costs_no_more_than_an_answer(damage, layout, size):
    content = written([host(0, 99, "ProfilerStep#1"), *_events([(5, 5, "compute", -1), (20, 9, "communication", -2)] * 4)], layout)
    for place, what in damage:
        at = place % len(content)
        content = content[:at] + what + content[at + 1:]
    try:
        found = _read(content, size)
    except InputError:
        return
    assert all(each.split.window_s >= 0 and each.num_kernels <= 8 for each in found)


def test_of_endless_names_some_are_kept_and_communication_is_still_told(monkeypatch):
    monkeypatch.setattr(columns, "MAX_NAMES", 4)
    rows = [{**kernel(10 * each, 5), "name": f"{'nccl' if each % 2 else 'gemm'}_{each}"} for each in range(10)]
    trace = _trace(rows)
    assert trace.num_communication_kernels == 5
    assert {each.name: each.count for each in trace.kernels} == {
        "gemm_0": 1, "nccl_1": 1, "(further kernels)": 4, "nccl (further communication kernels)": 4}


def test_names_with_what_nobody_sees_are_shown():
    trace = _trace([{**kernel(0, 5), "name": "gemm\x1b[31m" + "x" * 5000}])
    assert trace.kernels[0].name.startswith("gemm\\x1b[31mxxx")
    assert len(trace.kernels[0].name) < 400


def test_a_kernel_correlation_too_large_for_a_machine_word_is_no_link():
    assert _trace([kernel(0, 5, correlation=2**70), kernel(10, 5, correlation=2**63)]).num_kernels == 2


@pytest.mark.parametrize(
    ("sample", "is_one"),
    [
        (b'{"traceEvents": [', True),
        (b' \n[{"ph": "X", "ts": 1}]', True),
        (b'\xef\xbb\xbf{"a": 1, "traceEvents": []}', True),
        (b"{}", False),
        (b'a log with "traceEvents"', False),
        (b'[{"ph": "X", "ts": 1}, {"cat": "HostToDevice"}, {"name": "HostToDevice12"}]', False),
    ],
)
def test_a_trace_is_told_by_its_content(sample, is_one):
    assert kineto.told(sample) == is_one


def test_no_list_of_events_is_refused():
    with pytest.raises(InputError, match="no list of events"):
        _read(b'{"traceEvents": {}}')
