"""What a file is to ``balance``, which numbers of chunks are tried, and what ``catalog`` answers to which question."""

from __future__ import annotations

import json

import pytest
import yaml

import meshwright as mw
from meshwright.api.balancing.questions import chunk_numbers, source_of
from meshwright.api.request_file import PLAN_KEY
from meshwright.api.verbs import catalog as verb
from meshwright.errors import InputError, fault

LAYERS = {"name": "x", "layers_description": []}


@pytest.mark.parametrize(
    ("name", "document", "source"),
    [
        ("a.json", LAYERS, "layers"),
        ("a.json", {"model_type": "llama"}, "model"),
        ("a.json", {"hidden_size": 8, **LAYERS}, "model"),
        ("a.JSON", {"n_embd": 8}, "model"),
        ("a.yaml", {"pipeline_config": {}}, "dry runs"),
        ("a.yml", {"memory_usage": 1, "x": 2}, "dry runs"),
        ("a.yaml", {"models": {}}, "model"),
        ("a.yaml", {PLAN_KEY: 1}, "model"),
        ("a.yaml", {"hidden_size": 8}, "model"),
        ("a.yaml", {}, "holds no keys"),
        ("a.yaml", [1], "holds no keys"),
        ("a.json", {}, "holds no keys"),
        ("a.json", [{}], "holds no keys"),
        ("a.txt", {}, "is expected"),
        ("a", {}, "model"),
        ("./a", None, "no such file"),
        ("./a.json", None, "no such file"),
        ("a.yaml", None, "no such file"),
        ("llama3-8b", None, "model"),
        ("llama3.1-8b", None, "model"),
    ],
)
def test_a_file_is_known_by_its_keys(tmp_path, monkeypatch, name, document, source):
    monkeypatch.chdir(tmp_path)
    if document is not None:
        text = json.dumps(document) if name.lower().endswith("json") else yaml.safe_dump(document)
        (tmp_path / name).write_text(text)
    try:
        found = source_of({"model": name} if name else {})
    except InputError as error:
        found = str(error)
    assert found == source if source in ("layers", "dry runs", "model") else source in found


@pytest.mark.parametrize("file", [None, "plan.yaml", "config.json"])
def test_a_folder_is_a_model_where_it_holds_a_plan_or_a_configuration(tmp_path, file):
    if file:
        (tmp_path / file).write_text("")
        assert source_of({"model": str(tmp_path)}) == "model"
    else:
        with pytest.raises(InputError, match=r"is a directory without plan.yaml and config.json"):
            source_of({"model": str(tmp_path)})


@pytest.mark.parametrize(
    ("given", "stages", "layers", "tried"),
    [
        (None, 4, 32, (3,)),
        ((1, 2, 9), 4, 32, (1, 2, 9)),
        ((), 4, 32, (1, 2, 3, 4)),
        ((), 4, 15, (1, 2, 3)),
        ((), 4, 16, (1, 2, 3, 4)),
        ((), 4, 7, (1,)),
        ((), 4, 3, (1,)),
    ],
)
def test_as_many_chunks_are_tried_as_leave_each_a_layer(given, stages, layers, tried):
    assert chunk_numbers(given, 3, stages, layers) == tried
    assert chunk_numbers((), 3, 1, 9, most=2) == (1, 2)


def ids(**asked):
    with pytest.raises(InputError) as error:
        mw.catalog(mw.CatalogRequest(**asked))
    return sorted(message.id for message in error.value.messages)


def test_what_catalog_answers_to_which_question(monkeypatch):
    monkeypatch.setattr(verb.published_runs, "every", lambda: ["a", "b"])
    monkeypatch.setattr(verb.published_runs, "in_full", lambda name: (name.upper(), {"is": "full"}, {}))
    monkeypatch.setattr(verb, "_nearest", lambda values, faults: sorted(values))
    assert isinstance(mw.catalog(mw.CatalogRequest(kind="devices")), verb.EntriesAnswer)
    one = mw.catalog(mw.CatalogRequest(kind="clusters", name="dgx-h100"))
    assert isinstance(one, verb.EntryAnswer) and (one.kind, one.name) == ("clusters", "dgx-h100")
    run = mw.catalog(mw.CatalogRequest(kind="runs", name="row"))
    assert isinstance(run, verb.EntryAnswer) and (run.name, run.facts) == ("ROW", {"is": "full"})
    every = mw.catalog(mw.CatalogRequest(kind="runs", limit=3))
    assert isinstance(every, verb.RunsAnswer) and (every.limit, every.cells) == (3, ["a", "b"])
    assert mw.catalog(mw.CatalogRequest(kind="runs", device="h100-sxm", nodes=1, limit=2)) == ["device", "kind", "limit", "nodes"]
    with pytest.raises(InputError, match="--nodes belongs"):
        mw.catalog(mw.CatalogRequest(kind="runs", name="row", nodes=1))


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ({}, ["catalog.kind"]),
        ({"kind": "devices", "limit": 3}, ["catalog.option"]),
        ({"kind": "devices", "near": "8B", "nodes": 1}, ["catalog.option", "catalog.option"]),
        ({"kind": "runs", "name": "playbook-1128", "near": "8B"}, ["catalog.option"]),
        ({"kind": "runs", "name": "playbook-0", "near": "8B"}, ["catalog.option", "catalog.run"]),
        ({"kind": "devices", "name": "h10O", "limit": 3}, ["catalog.option", "catalog.unknown"]),
        ({"kind": "devices", "name": "h10O"}, ["catalog.unknown"]),
        ({"kind": "runs", "name": "playbook-0"}, ["catalog.run"]),
        ({"kind": "runs", "nodes": 2}, ["catalog.nodes"]),
        ({"kind": "runs", "nodes": 2, "precision": "bf17"}, ["catalog.nodes", "catalog.unknown"]),
        ({"kind": "runs", "device": "h10O", "near": "nomodel"}, ["catalog.unknown", "near.model"]),
        ({"kind": "runs", "limit": "x", "framework": "megatrn"}, ["framework.unknown", "number.form"]),
    ],
)
def test_every_fault_of_a_question_to_the_catalogue(monkeypatch, asked, wrong):
    def in_full(name):
        if name == "playbook-0":
            raise fault("catalog.run", "no published run has the id {name!r}", name=name)
        return name, {}, {}

    monkeypatch.setattr(verb.published_runs, "in_full", in_full)
    found = ids(**asked)
    assert found == wrong
