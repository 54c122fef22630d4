"""Any model of the catalogue can be cut down to what a processor runs, and stays a model of its sort."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.draws import together

from meshwright.catalog import load_model, models
from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.domain.model import LayerKind
from meshwright.engine.smaller import smaller
from meshwright.errors import InputError


@together("name", sorted(models()))
def test_every_model_shrinks(name: str) -> None:
    model = load_model(name)
    hidden = min(256, model.hidden)
    experts = min(8, model.experts.num_experts) if model.experts else None
    small = smaller(model, layers=min(4, model.num_layers), hidden=hidden, experts=experts, vocabulary=500)
    assert (small.hidden, small.vocabulary, small.num_mtp_layers) == (hidden, 500, 0)
    assert small.num_layers == min(4, model.num_layers)
    assert {type(kind.feed_forward) for kind in small.kinds} <= {type(kind.feed_forward) for kind in model.kinds}
    for kind in small.kinds:
        if kind.attention is None:
            continue
        assert kind.attention.num_heads % kind.attention.num_key_value_heads == 0
        assert (
            kind.attention.query_width
            <= max(2 * hidden * max(each.query_width / model.hidden for each in model.attentions), 64) + 256
        )
        if kind.experts:
            assert kind.experts.num_experts == experts
            assert kind.experts.experts_per_token <= kind.experts.num_experts


def test_heads_and_widths_shrink_in_proportion() -> None:
    small = smaller(load_model("llama3-8b"), layers=2, hidden=1024, vocabulary=32000)
    (kind,) = small.kinds
    assert (kind.attention.num_heads, kind.attention.num_key_value_heads, kind.attention.head_dim) == (8, 2, 128)
    assert kind.feed_forward.width == 14336 // 4  # type: ignore[union-attr]


def test_groups_of_heads_of_a_mixer_shrink_in_proportion() -> None:
    model = load_model("llama3-8b")
    for mixer, expected in (
        (GatedDelta(key_heads=16, value_heads=32, key_dim=128, value_dim=128), (4, 8)),
        (Mamba2(num_heads=128, head_dim=64, state_dim=128, num_groups=8), (2, 32)),
        (Mamba2(num_heads=20, head_dim=64, state_dim=128, num_groups=1), (1, 5)),
    ):
        kind = LayerKind(mixer=mixer, norms=1)
        (small,) = smaller(replace(model, kinds=(kind,)), hidden=1024).kinds
        found = small.mixer
        assert isinstance(found, GatedDelta | Mamba2)
        assert (found.groups, found.heads) == expected


def test_nothing_given_changes_nothing() -> None:
    model = load_model("llama3-8b")
    assert smaller(model) == model


def test_sizes_out_of_range_are_refused() -> None:
    model = load_model("llama3-8b")
    for wrong in ({"hidden": 8}, {"hidden": 8192}, {"vocabulary": 0}, {"layers": 33}):
        with pytest.raises(InputError, match="is not within"):
            smaller(model, **wrong)
    with pytest.raises(InputError, match="experts=4: llama3-8b has no experts"):
        smaller(model, experts=4)
