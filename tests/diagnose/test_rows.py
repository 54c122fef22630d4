"""A run as a row of measured runs: read back it is the same case, or it is no row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.draws import examples, together
from tests.strategies import planned, small_case

from meshwright.catalog import load_model, models, shrink
from meshwright.domain.label import label, parse_layout
from meshwright.domain.layout import Layout
from meshwright.domain.model import Model
from meshwright.errors import InputError
from meshwright.evidence.rows.columns import SCHEMA
from meshwright.evidence.rows.reading import Refused, read_row
from meshwright.evidence.rows.row import row_of
from meshwright.evidence.rows.run import Run
from meshwright.evidence.rows.written import cells_of, check_read_back

CASE = small_case(devices=16, batch=64)
LAYOUTS = [
    "tp2 pp2 vp2 mb1 sp zero1 shard2 recompute=full:1 overlap=none", "tp1 mb2 zero3 recompute=selective:core_attn,mlp_act",
    "pp4 mb1 zero2 layers=[9,9,9,5] schedule=zb1p", "tp2 cp2 mb1 context=ulysses zero1 attention=fused offload=optimizer",
    "pp2 mb1 recompute=full:[3,1]+selective:core_attn:[13,15]",
]


def cells(case, layout) -> dict[str, str]:
    told = {"id": "run-1", "source": "diagnosed from run.log", "status": "ok", "framework": "megatron", **cells_of(case, layout)}
    return {name: str(told.get(name, "")) for name in SCHEMA}


def read(row: dict[str, str]) -> Run | Refused:
    return read_row(row_of({name: cell for name, cell in row.items() if cell}))


def plain(model: Model) -> Layout:
    return parse_layout("tp2 mb1", num_devices=16, global_batch_sequences=64, model=model)


@together("name", models())
def test_every_model_of_the_catalogue_is_said_by_its_name(name):
    """Dense first layers, shared experts, latent attention, windows: the last layer's figures alone lost them."""
    case = replace(CASE, model=load_model(name))
    row = cells(case, plain(case.model))
    found = read(row)
    if isinstance(found, Refused):
        assert found.kind in {"not a transformer"} or found.kind.startswith("functional runs of sparse attention")
        return
    assert found.case.model == case.model
    assert (row["hidden"], row["n_layers"]) == ("", "")


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-70b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2.5-7b"])
def test_another_model_is_said_by_its_shapes(name):
    """Without the form of attention a model of plain heads lost its learned positions and biases."""
    known = load_model(name)
    model = replace(shrink(known, 4), name="of somebody")
    found = read(cells(replace(CASE, model=model), plain(model)))
    assert isinstance(found, Run)
    (kind,), (other,) = found.case.model.kinds, model.kinds
    seen = found.case.model
    assert (seen.hidden, seen.vocabulary, seen.num_layers) == (model.hidden, model.vocabulary, 4)
    assert (kind.attention.num_heads, kind.attention.num_key_value_heads, kind.attention.head_dim) == (
        other.attention.num_heads, other.attention.num_key_value_heads, other.attention.head_dim)
    assert found.case.model.position == model.position
    assert found.case.model.tied_embeddings == model.tied_embeddings


def test_dense_first_layers_and_shared_experts_are_said():
    model = replace(shrink(load_model("deepseek-v3"), 6), name="of somebody", num_mtp_layers=0)
    attention = replace(model.attention, latent=None, head_dim=128)
    model = replace(model, kinds=tuple(replace(kind, attention=attention) for kind in model.kinds))
    row = cells(replace(CASE, model=model), plain(model))
    assert (row["n_dense_layers"], row["n_shared_experts"], row["ffn_hidden"], row["moe_ffn_hidden"]) == ("3", "1", "18432", "2048")
    found = read(row)
    seen = found.case.model
    assert [seen.kinds[kind].experts is not None for kind in seen.pattern] == [False] * 3 + [True] * 3
    check_read_back(row, replace(CASE, model=model), plain(model))


def test_what_no_column_says_is_refused():
    """Latent attention of a model that nobody knows, and an optimizer that rows do not have."""
    latent = replace(shrink(load_model("deepseek-v3"), 6), name="of somebody")
    for case, what in (
        (replace(CASE, model=latent), "model"),
        (replace(CASE, training=replace(CASE.training, optimizer=replace(CASE.training.optimizer, name="muon"))), "optimizer"),
    ):
        with pytest.raises(InputError, match=what):
            check_read_back(cells(case, plain(case.model)), case, plain(case.model))


@pytest.mark.parametrize("words", LAYOUTS)
def test_layouts_are_read_back_with_every_knob(words):
    """Overlap, groups of shards, layers of stages, schedules: no column has them."""
    layout = parse_layout(words, num_devices=16, global_batch_sequences=64, model=CASE.model)
    found = read(cells(CASE, layout))
    assert isinstance(found, Run)
    assert label(found.layout) == label(layout)
    assert found.layout == layout


@examples(40)
@given(planned())
def test_what_is_written_is_read_back(drawn):
    case, layout = drawn
    row = cells(case, layout)
    try:
        check_read_back(row, case, layout)
    except InputError:
        return
    found = read(row)
    assert isinstance(found, Run)
    assert (label(found.layout), found.case.cluster.device, found.case.batch.tokens) == (
        label(layout), case.cluster.device, case.batch.tokens)


def test_a_label_that_contradicts_its_columns_is_refused():
    row = cells(CASE, plain(CASE.model)) | {"tp": "4", "dp": "4"}
    found = read(row)
    assert isinstance(found, Refused)
    assert "tensor_parallel 4" in found.reason


def test_the_implementation_is_the_one_that_ran():
    case = small_case(devices=16, batch=64, implementation="torchtitan")
    assert read(cells(case, plain(case.model))).case.implementation.name == "torchtitan"
