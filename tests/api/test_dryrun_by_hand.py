"""Which ranks of which model ``dryrun`` runs, with all layers or from fewer; nothing is run here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Some

import pytest

from meshwright.api.fields import Faults
from meshwright.api.verbs import dryrun as verb
from meshwright.catalog import load_model
from meshwright.domain.layout import Full, Layout
from meshwright.engine import dry_run as engine
from meshwright.errors import InputError

MODEL = load_model("llama3-8b")  # 32 layers of one kind


def layers(count, kinds=1):
    return replace(MODEL, pattern=tuple(place % kinds for place in range(count)), kinds=MODEL.kinds * kinds)


@pytest.fixture
def asked(monkeypatch):
    """Every job is found as its number of layers and its rank."""
    jobs = []

    def dry_run(every, *, workers):
        jobs.append((len(every), workers))
        return [(each.model.num_layers, each.rank) for each in every]

    monkeypatch.setattr(engine, "dry_run", dry_run)
    monkeypatch.setattr(engine, "extrapolated", lambda two, four, **how: (two, four, how))
    monkeypatch.setattr(verb.os, "cpu_count", lambda: 3)
    return jobs


def found(count, *, chunks=1, stages=1, ranks=(0,), extrapolate=True, **more):
    given = Some(case=Some(model=layers(count), batch=Some(sequence_tokens=128)))
    layout = Layout(pipeline_parallel=stages, virtual_stages=chunks, num_microbatches=8, **more)
    return verb._found(given, layout, ranks, "reference", extrapolate=extrapolate)


def test_all_layers_are_run_where_they_are_few_or_nobody_asked_for_fewer(asked):
    more = verb.MORE
    assert found(32, extrapolate=False) == [(32, 0)]
    assert found(more) == [(more, 0)]
    assert found(4 * more, stages=2, chunks=2, ranks=(0, 1)) == [(4 * more, 0), (4 * more, 1)]
    assert asked == [(1, 1), (1, 1), (2, 2)]


def test_fewer_layers_of_every_chunk_are_run_twice(asked):
    how = {"fewer": verb.FEWER, "more": verb.MORE, "layers": 8}
    assert found(32, stages=2, chunks=2, ranks=(0, 1)) == [((4 * verb.FEWER, rank), (4 * verb.MORE, rank), how) for rank in (0, 1)]
    assert asked == [(4, 3)]
    assert found(verb.MORE + 1)[0][2]["layers"] == verb.MORE + 1


@pytest.mark.parametrize(
    ("model", "layout", "reason"),
    [
        (layers(32, kinds=2), Layout(num_microbatches=1), "several kinds"),
        (layers(31), Layout(pipeline_parallel=2, num_microbatches=2), "31 layers do not spread evenly over 2 chunks"),
        (layers(32), Layout(pipeline_parallel=2, num_microbatches=2, stage_layers=((16, 16),)), "places its layers itself"),
        (layers(32), Layout(num_microbatches=1, recompute=Full(layers=1)), "recomputes some layers only"),
    ],
)
def test_layers_that_are_not_alike_are_not_extrapolated(model, layout, reason):
    chunks = layout.pipeline_parallel * layout.virtual_stages
    with pytest.raises(InputError, match=reason):
        verb._check_line(model, layout, chunks)
    verb._check_line(layers(32), Layout(num_microbatches=1, recompute=Full()), 1)


def ranks(world, stages, asked=()):
    faults = Faults()
    found = verb._ranks(asked, Layout(data_parallel=world // stages, pipeline_parallel=stages, num_microbatches=8), faults)
    return found, [each.id for each in faults.messages]


def test_the_first_the_middle_and_the_last_stage_are_run():
    assert ranks(8, 1) == ([0], [])
    assert ranks(8, 2) == ([0, 4], [])
    assert ranks(8, 4) == ([0, 4, 6], [])
    assert ranks(16, 8) == ([0, 8, 14], [])
    assert ranks(8, 2, (7, 3)) == ([7, 3], [])
    assert ranks(8, 2, (7, 8, 9))[1] == ["dryrun.rank", "dryrun.rank"]
    assert ranks(verb.WORLD, 1)[1] == []
    assert ranks(2 * verb.WORLD, 1)[1] == ["dryrun.size"]


@pytest.mark.parametrize(
    ("values", "devices", "node"),
    [
        ({"layout": "tp2 pp3 dp4 mb7 zero3"}, 24, 8),
        ({"layout": "cp2 dp3"}, 6, 6),
        ({"layout": "mb4"}, 1, 1),
        ({"layout": "tp0 dp02 xdp4"}, 1, 1),
        ({"devices": 12, "layout": "tp2"}, 12, 6),
        ({}, 1, 1),
        ({"devices": 7}, 7, 7),
        ({"devices": 11}, 11, 1),
    ],
)
def test_without_a_cluster_the_degrees_make_the_world(values, devices, node):
    found = verb._somewhere(values)
    assert (found["devices"], found["devices_per_node"]) == (devices, node)
    assert verb._somewhere({**values, "nodes": 2}) == {**values, "nodes": 2}
    assert verb._somewhere({**values, "cluster": "x"}) == {**values, "cluster": "x"}
