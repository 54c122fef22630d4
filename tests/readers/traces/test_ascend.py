"""Files of Ascend's profiler, made by hand: tables by the names of their columns, traces by the names of their processes."""

from __future__ import annotations

import json

import pytest
from tests.readers.traces.made import Text

from meshwright.errors import InputError
from meshwright.readers.traces import ascend_kernels, ascend_steps, ascend_view, kineto

US = 1e-6
STEPS = """Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Without Receive
1,rank,0,100.5,50,10,60,49.5,200,5,45
1,rank,3,90,70,0,70,40,200,7,63
1,stage,"(0, 3)",100.5,70,10,70,49.5,200,7,63
"""
KERNELS = """Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),aicore_time(us),{ratio}
1,MatMul1,MatMul,AI_CORE,1000\t,20,0,16,0.5
1,hcom_allReduce__445_7,hcom_allReduce_,HCCL,1010,30,0,N/A,N/A
1,AscendC,Add,AI_VECTOR_CORE,1045,5,0,0,0
1,Broken,Add,AI_VECTOR_CORE,,,0,0,0
1,cut
"""


def test_a_table_of_steps_gives_every_rank_and_stage():
    assert ascend_steps.FORMAT.told(STEPS.encode())
    first, second, stage, other = ascend_steps.read(Text((STEPS + STEPS.splitlines()[-1]).encode()))
    assert (stage.stage, other.stage) == (0, 1)
    assert [(each.rank, each.step, each.stage) for each in (first, second, stage)] == [(0, 1, None), (3, 1, None), (None, 1, 0)]
    assert stage.ranks == (0, 3)
    assert first.window_s == pytest.approx(200 * US)
    assert first.window_s == pytest.approx(first.compute_s + first.exposed_communication_s + first.idle_s)
    assert (first.communication_s, first.bubble_s) == (pytest.approx(60 * US), pytest.approx(5 * US))


def test_a_table_of_one_rank_has_fewer_columns():
    content = b"Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\r\n5,12,10,2,1,3,4\r\n"
    (found,) = ascend_steps.read(Text(content))
    assert (found.rank, found.step, found.bubble_s, round(found.window_s / US)) == (5, 12, None, 16)


def test_a_table_without_times_is_refused():
    with pytest.raises(InputError, match="none of its 1 rows has times"):
        ascend_steps.read(Text(STEPS.splitlines()[0].encode() + b"\n1,rank,0,a,b,c,d,e,f,g,h\n"))


@pytest.mark.parametrize("ratio", ["aic_mac_ratio", "aic_mac_fp16_ratio"])
def test_a_table_of_kernels_is_a_trace(ratio):
    content = KERNELS.format(ratio=ratio).encode()
    assert ascend_kernels.FORMAT.told(content)
    assert not ascend_steps.FORMAT.told(content)
    (found,) = ascend_kernels.read(Text(content))
    assert (found.num_kernels, found.num_communication_kernels, found.num_by_unit["HCCL"]) == (3, 1, 1)
    split = found.split
    parts = (split.window_s, split.compute_s, split.communication_s, split.exposed_communication_s, split.idle_s)
    assert [round(each / US) for each in parts] == [50, 25, 30, 20, 5]
    assert found.kernels_s == pytest.approx(55 * US)
    assert found.matrix_unit_ratio == pytest.approx(8 / 25)
    (collective,) = found.collectives
    assert (collective.operation, collective.group, collective.sequence) == ("all-reduce", "445", 7)
    assert found.notes == ("1 rows without times were left out",)


def _view(*more):
    def named(pid, name, tid=None):
        what = "process_name" if tid is None else "thread_name"
        return {"ph": "M", "name": what, "pid": pid, "tid": tid or 0, "args": {"name": name}}

    def timed(pid, tid, start, duration, name):
        return {"ph": "X", "pid": pid, "tid": tid, "ts": f"1704161511420{start:.3f}", "dur": duration, "name": name}

    return json.dumps([
        named(1, "Python"), named(8, "Ascend Hardware"), named(7, "HCCL"), named(9, "Overlap Analysis"), named(9, "Computing", 0),
        named(9, "Communication", 1), named(9, "Free", 2),
        timed(1, 1, 300.5, 30, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        timed(8, 3, 300.125, 10, "MatMul"), timed(8, 3, 312.0, 3, "EVENT_WAIT"), timed(8, 3, 340.125, 10, "Add"),
        timed(7, 5, 305.125, 10, "hcom_allReduce__9_0"),
        timed(9, 0, 300.125, 10, "Computing"), timed(9, 1, 305.125, 10, "Communication"), timed(9, 2, 315.125, 25, "Free"),
        timed(9, 0, 340.125, 10, "Computing"),
        {"ph": "s", "cat": "HostToDevice", "id": "77", "pid": 2, "tid": 1, "ts": "1704161511420335.125", "name": "HostToDevice77"},
        {"ph": "f", "cat": "HostToDevice", "id": "77", "pid": 8, "tid": 3, "ts": "1704161511420340.125", "name": "HostToDevice77"},
        *more,
    ]).encode()


@pytest.mark.parametrize("size", [50, 1 << 20])
def test_a_trace_is_split_as_the_profilers_own_analysis_says(size):
    assert ascend_view.told(_view())
    assert not kineto.told(_view())
    (found,) = ascend_view.read(Text(_view()), size)
    split = found.split
    parts = (split.window_s, split.compute_s, split.communication_s, split.exposed_communication_s, split.idle_s)
    assert [round(each / US, 3) for each in parts] == [50, 20, 10, 5, 25]
    causes = {name: round(value / US, 3) for name, value in found.idle.items() if value}
    assert causes == {"data": 15.375, "host": 4.625, "launch": 5}
    assert (found.num_kernels, found.num_communication_kernels) == (3, 1)
    assert [each.name for each in found.kernels if each.name == "EVENT_WAIT"] == []


def test_a_trace_without_its_own_analysis_is_split_by_what_ran():
    content = _view().replace(b"Overlap Analysis", b"Something else")
    (found,) = ascend_view.read(Text(content))
    parts = (found.split.compute_s, found.split.exposed_communication_s, found.split.idle_s)
    assert [round(each / US, 3) for each in parts] == [20, 5, 25]


def test_half_a_trace_says_so():
    (found,) = ascend_view.read(Text(_view()[:-150]))
    assert not found.complete
    assert "ends before its end" in found.notes[0]


def test_names_of_processes_alone_are_nothing():
    assert ascend_view.read(Text(b'[{"ph": "M", "name": "process_name", "pid": 8, "args": {"name": "Ascend Hardware"}}]')) == ()
