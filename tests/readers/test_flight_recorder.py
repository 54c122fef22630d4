"""Dumps of several ranks, as JSON with numbers for texts and as pickles, give the same; and the hang in them is found."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.sources import reads, survives

from meshwright.readers.hangs.flight_recorder import FORMAT, rank_of
from meshwright.readers.hangs.locate import located
from meshwright.readers.source import Source


def dump(rank: int, *, asked: int = 6, operation: str = "nccl:all_reduce", texts: bool = False) -> dict:
    """Rank's record of a world of four, whose collectives up to 5 ended."""
    number = str if texts else int
    entries = [{
        "frames": [{"name": "step", "filename": "/home/u/train.py", "line": 40 + at}], "record_id": at, "pg_id": number(0),
        "process_group": ["0", "default_pg"], "collective_seq_id": number(at), "p2p_seq_id": number(0), "op_id": number(at),
        "profiling_name": operation if at == asked else "nccl:all_reduce", "time_created_ns": number(1_000 + at),
        "time_discovered_completed_ns": number(2_000 + at) if at < 6 else None, "input_sizes": [[4, 8]], "output_sizes": [[4, 8]],
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed" if at < 6 else "scheduled", "retired": False,
        "timeout_ms": number(600_000), "is_p2p": False} for at in range(1, asked + 1)]
    ranks = "[0, 1, 2, 3]" if texts else [0, 1, 2, 3]
    return {"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
            "pg_status": {"0": {"last_enqueued_collective": number(asked), "last_started_collective": number(-1),
                                "last_completed_collective": number(5)}}, "entries": entries}


def tupled(value: object) -> object:
    """The same, with tuples where pickles have them."""
    if isinstance(value, dict):
        return {key: tuple(each) if key == "process_group" else tupled(each) for key, each in value.items()}
    return [tupled(each) for each in value] if isinstance(value, list) else value


def test_json_with_texts_and_pickles_say_the_same(tmp_path):
    plain = reads(FORMAT, tmp_path, json.dumps(dump(3)), "trace_rank_3.json")
    texts = reads(FORMAT, tmp_path, json.dumps(dump(3, texts=True)), "trace_rank_3.json")
    assert texts[0].entries[:5] == plain[0].entries[:5]  # behind them it waits since it was written
    assert replace(texts[0], entries=()) == replace(plain[0], entries=())
    for protocol in (2, 4):
        (pickled,) = reads(FORMAT, tmp_path, pickle.dumps(tupled(dump(3)), protocol), "trace_rank_3")
        assert [each.sequence for each in pickled.entries] == [each.sequence for each in plain[0].entries]
        assert pickled.groups == plain[0].groups == {"0(default_pg)": (0, 1, 2, 3)}
    (entry, *_) = plain[0].entries
    assert (entry.rank, entry.group, entry.elements_in, entry.timeout_s) == (3, "0(default_pg)", 32, 600.0)
    assert entry.frame == "step (/home/u/train.py:41)"
    assert entry.waited_s == pytest.approx(1e-6)


@pytest.mark.parametrize(("odd", "kind"), [({"asked": 5}, "missing"), ({"operation": "nccl:all_gather"}, "mismatch")])
def test_the_hang_of_four_ranks_is_found_in_their_dumps(tmp_path, odd, kind):
    dumps = [pickle.dumps(dump(rank, **(odd if rank == 2 else {})), 4) for rank in range(4)]
    files = [reads(FORMAT, tmp_path, each, f"comm_lib_trace_rank_{rank}")[0] for rank, each in enumerate(dumps)]
    hang = located(files)
    assert hang is not None
    assert (hang.kind, hang.ranks, hang.sequence, hang.collective) == (kind, (2,), 6, "nccl:all_reduce")
    if kind == "missing":
        without = located([file for at, file in enumerate(files) if at != 2])
        assert without is not None
        assert (without.kind, without.ranks, without.silent) == ("missing", (2,), (2,))


@pytest.mark.parametrize(("waited_s", "kind"), [(0.2, None), (600.0, "stalled")])
def test_what_ranks_are_in_when_a_dump_is_taken_is_no_hang_before_they_have_waited(tmp_path, waited_s, kind):
    """On demand of a run that goes on: all ranks are in a collective that one of them has just asked for."""
    def found(**odd):
        files = []
        for rank in range(4):
            path = tmp_path / f"rank_{rank}"
            path.write_text(json.dumps(dump(rank, **(odd if rank == 2 else {}))))
            os.utime(path, (0, 1_006e-9 + waited_s))
            files += FORMAT.read(Source(path))
        return located(files), located(files[:1])

    everybody, alone = found()
    assert (everybody and everybody.kind, alone and alone.kind) == (kind, kind and "missing")
    late, _ = found(asked=5)
    assert (late and late.kind) == (kind and "missing")
    odd, _ = found(operation="nccl:all_gather")
    assert odd is not None
    assert odd.kind == "mismatch"


@pytest.mark.parametrize(("name", "rank"), [
    ("comm_lib_trace_rank_17", 17), ("nccl_trace_rank_3.json", 3), ("host5_trace_0.pkl.gz", 0), ("dump.json", None),
    ("/x3/dump", None)])
def test_the_rank_stands_at_the_end_of_the_name(name, rank):
    assert rank_of(name) == rank


def test_what_breaks_off_is_read_as_far_as_it_goes(tmp_path):
    text = json.dumps(dump(1))
    (cut,) = reads(FORMAT, tmp_path, text[: text.index('"record_id": 4')], "rank_1.json")
    assert [each.sequence for each in cut.entries][:3] == [1, 2, 3]
    assert "breaks off" in cut.notes[0]


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), as_json=st.booleans())
def test_scrambled_dumps_are_values_or_one_line(tmp_path, data, as_json):
    content = bytearray(json.dumps(dump(1)).encode() if as_json else pickle.dumps(dump(1), 4))
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = survives(FORMAT, tmp_path, bytes(content[: data.draw(st.integers(0, len(content)))]))
    located(found)


SCALARS = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.booleans()
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=8)


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(sorted(dump(0)["entries"][0])), junk=JUNK,
       top=st.sampled_from(["entries", "pg_config", "pg_status", ""]))
def test_values_of_any_kind_may_stand_anywhere(tmp_path, key, junk, top):
    changed = dump(0)
    changed["entries"][2][key] = junk
    if top:
        changed[top] = junk
    located(survives(FORMAT, tmp_path, json.dumps(changed).encode()))
