"""The trace: valid for Chrome's format, one event for each operation, nothing over each other."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from pipeline_samples import view_of

from meshwright.api.views.balance import SECONDS_AND_BYTES
from meshwright.report.perfetto import MOST_ARROWS, perfetto


def events_of(view):
    document = json.loads(perfetto(view))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    by_kind = {}
    for event in document["traceEvents"]:
        by_kind.setdefault(event["ph"], []).append(event)
    return document, by_kind


@pytest.mark.parametrize(
    ("schedule", "chunks", "splits"),
    [
        ("1f1b", 1, 1),
        ("interleaved", 3, 1),
        ("zb1p", 1, 1),
        ("dualpipev", 2, 1),
        ("interleaved-less-memory", 2, 1),
        ("seq1f1b", 1, 2),
    ],
)
def test_events_are_complete_and_never_overlap(schedule, chunks, splits):
    view = view_of(schedule=schedule, chunks=chunks, splits=splits, microbatches=12)
    _, events = events_of(view)
    lanes = {}
    for event in events["X"]:
        assert set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert event["dur"] >= 0.0
        lanes.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sorted(lanes) == [1, 2, 3, 4]
    for spans in lanes.values():
        spans.sort()
        assert all(first[1] <= second[0] + 1e-3 for first, second in pairwise(spans))
    assert len(events["X"]) == view.timeline.kind.size
    kinds = Counter(event["cat"] for event in events["X"])
    assert kinds["forward"] == 4 * chunks * 12
    assert kinds["backward"] + kinds["backward_input"] == 4 * chunks * 12
    assert kinds["weight"] == kinds["backward_input"]
    last = max(event["ts"] + event["dur"] for event in events["X"])
    assert last == pytest.approx(view.simulated_time * 1000.0)  # one unit as a millisecond


def test_operations_say_what_they_are():
    _, events = events_of(view_of(schedule="seq1f1b", chunks=1, splits=2, microbatches=8))
    first = events["X"][0]
    assert first["name"] == "F0"
    assert first["args"] == {"microbatch": 0, "chunk": 0, "layers": 2, "piece": 0, "full layers": 1}
    assert {event["args"]["microbatch"] for event in events["X"]} == {0, 1, 2, 3}
    names = {event["args"]["name"] for event in events["M"] if event["name"] == "thread_name"}
    assert names == {f"stage {stage}" for stage in range(4)}


def test_memory_counters_peak_at_the_stage_memory():
    view = view_of()
    document, events = events_of(view)
    for stage in range(4):
        values = [event["args"]["MB"] for event in events["C"] if event["name"] == f"stage {stage}"]
        assert max(values) == pytest.approx(view.peaks[stage], abs=1e-3)
        assert values[-1] == pytest.approx(view.base[stage], abs=1e-3)
        assert all(first != second for first, second in pairwise(values))
    assert document["otherData"]["memory_bounds"] == [90_000.0] * 4
    assert document["otherData"]["shown_until"] is None


def test_arrows_go_from_ends_to_beginnings_on_other_stages():
    view = view_of()
    _, events = events_of(view)
    starts = {event["id"]: event for event in events["s"]}
    ends = {event["id"]: event for event in events["f"]}
    assert set(starts) == set(ends)
    assert len(starts) == 2 * 8 * (4 * 2 - 1)  # each micro-batch crosses every border of chunks forth and back
    edges = {(event["tid"], event["ts"]) for event in events["X"]} | {
        (event["tid"], round(event["ts"] + event["dur"], 3)) for event in events["X"]
    }
    for number, start in starts.items():
        end = ends[number]
        assert start["tid"] != end["tid"]
        assert end["ts"] >= start["ts"] + 5_000.0 - 1e-3  # the hop
        assert {(start["tid"], start["ts"]), (end["tid"], end["ts"])} <= edges


def test_units_of_a_layout_are_seconds_and_gib():
    view = view_of(units=SECONDS_AND_BYTES)
    document, events = events_of(view)
    assert document["otherData"]["time_unit"] == "s"
    assert all("GiB" in event["args"] for event in events["C"])
    assert max(event["ts"] + event["dur"] for event in events["X"]) == pytest.approx(view.simulated_time * 1e6)


def test_long_traces_are_bounded_and_say_so():
    sizes = []
    for microbatches in (4096, 65_536):
        view = view_of(microbatches=microbatches)
        text = perfetto(view)
        document = json.loads(text)
        sizes.append(len(text))
        assert document["otherData"]["microbatches"] == microbatches
        assert document["otherData"]["shown_microbatches"] == view.shown_microbatches < 100
    assert max(sizes) < 300_000
    wide = view_of(stages=16, chunks=3, microbatches=96)
    assert (wide.awaits >= 0).sum() > MOST_ARROWS
    _, events = events_of(wide)
    assert "s" not in events


def test_what_begins_too_late_for_the_file_is_left_out(monkeypatch):
    monkeypatch.setattr("meshwright.report.perfetto.MOST_EVENTS", 50)
    view = view_of()
    document, events = events_of(view)
    assert len(events["X"]) <= 50
    until = document["otherData"]["shown_until"]
    assert max(event["ts"] for event in events["X"] + events["C"] + events["f"]) < until * 1000.0
    assert (view.timeline.start_s < until).sum() == len(events["X"])


def test_no_bound_is_null():
    document, _ = events_of(view_of(bound=float("inf")))
    assert document["otherData"]["memory_bounds"] == [None] * 4


def test_as_many_arrows_as_may_be_are_drawn_and_none_where_there_are_more(monkeypatch):
    _, events = events_of(view_of())
    drawn = len(events["s"])
    for most, left in ((drawn, drawn), (drawn - 1, 0)):
        monkeypatch.setattr("meshwright.report.perfetto.MOST_ARROWS", most)
        _, events = events_of(view_of())
        assert len(events.get("s", [])) == len(events.get("f", [])) == left
