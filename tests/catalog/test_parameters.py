"""Parameters per rank: the published table of megatron-core, sums over ranks, and published totals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.catalog import load_model
from meshwright.domain.attention import Attention, LatentAttention
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.perf.parameters import (
    ParameterCounts,
    active_parameters,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    mtp_parameters,
    padded_vocabulary,
    total_parameters,
)


def stage(model: Model, layers: int, *, first: bool = False, last: bool = False, **degrees: int) -> ParameterCounts:
    counts = layer_parameters(model, model.kinds[0], **degrees).times(layers)
    tp = degrees.get("tp", 1)
    if first:
        counts += embedding_parameters(model, tp=tp)
    if last:
        counts += head_parameters(model, tp=tp) + final_norm_parameters(model)
    return counts


@pytest.mark.parametrize(
    ("first", "last", "parameters"),
    [(True, False, 2_270_756_864), (False, False, 2_139_422_720), (False, True, 2_270_765_056)],
)
def test_llama3_70b_tp8_pp4_equals_megatron_core(first: bool, last: bool, parameters: int) -> None:
    """Source: docs/sources.md#parameters-of-a-rank (megatron-core 0.16.1 GPTModel)."""
    counts = stage(load_model("llama3-70b"), 20, first=first, last=last, tp=8)
    assert counts.total == parameters
    assert counts.routed == 0


@pytest.mark.parametrize(("first", "last", "parameters"), [(True, False, 7_523_596_032), (False, True, 7_523_600_128)])
def test_qwen3_235b_tp4_pp4_ep8_equals_megatron_core(first: bool, last: bool, parameters: int) -> None:
    """Source: docs/sources.md#parameters-of-a-rank; stages of 23, 24, 24, 23 layers."""
    counts = stage(load_model("qwen3-235b-a22b"), 23, first=first, last=last, tp=4, ep=8, etp=1)
    assert counts.total == parameters
    assert counts.routed == 6_945_767_424


def test_stages_of_qwen3_235b_add_up() -> None:
    model = load_model("qwen3-235b-a22b")
    whole = stage(model, 23, first=True) + stage(model, 24) + stage(model, 24) + stage(model, 23, last=True)
    assert whole.total == total_parameters(model) == 235_093_634_560


@st.composite
def layers(draw: st.DrawFn) -> tuple[Model, LayerKind, int, int, int]:
    """A model and degrees that divide what they split."""
    tp, ep, etp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2]))
    flags = st.booleans()
    heads = 4 * draw(st.integers(1, 4))
    if draw(flags):
        latent = LatentAttention(
            query_rank=draw(st.sampled_from([None, 24])), key_value_rank=16, nope_dim=8, rope_dim=4, value_dim=8
        )
        attention = Attention(num_heads=heads, num_key_value_heads=heads, head_dim=12, latent=latent)
    else:
        attention = Attention(
            num_heads=heads,
            num_key_value_heads=draw(st.sampled_from([4, heads])),
            head_dim=8,
            query_key_norm=draw(st.sampled_from(["none", "head", "full"])),
            query_bias=draw(flags),
            key_value_bias=draw(flags),
            output_bias=draw(flags),
            sinks=draw(flags),
        )
    width = 8 * draw(st.integers(1, 20))
    block: Mlp | MixtureOfExperts = Mlp(width=width, gated=draw(flags), bias=draw(flags))
    if draw(flags):
        block = MixtureOfExperts(
            num_experts=8 * draw(st.integers(1, 4)), experts_per_token=2, expert_width=width, gated=draw(flags),
            shared_width=draw(st.sampled_from([0, 16])), shared_gate=draw(flags), router_bias=draw(flags),
            expert_bias=draw(flags),
        )
    kind = LayerKind(attention=attention, feed_forward=block, norms=draw(st.sampled_from([1, 2, 4])))
    model = Model(
        name="drawn", hidden=8 * draw(st.integers(1, 16)), vocabulary=64, kinds=(kind,), pattern=(0, 0),
        norm=draw(st.sampled_from(["rms", "layer", "layer-no-bias", "none"])), tied_embeddings=draw(flags),
        head_bias=draw(flags), embedding_norm=draw(flags), position_table=draw(st.sampled_from([0, 32])),
        num_mtp_layers=draw(st.sampled_from([0, 1])),
    )
    return model, kind, tp, ep, etp


@examples(200)
@given(layers())
def test_ranks_add_up_to_the_layer(drawn: tuple[Model, LayerKind, int, int, int]) -> None:
    model, kind, tp, ep, etp = drawn
    whole, rank = layer_parameters(model, kind), layer_parameters(model, kind, tp=tp, ep=ep, etp=etp)
    assert rank.sharded * tp == whole.sharded
    assert rank.replicated == whole.replicated
    experts = kind.experts
    copied = (etp - 1) * experts.num_experts * model.hidden if experts and experts.expert_bias else 0
    assert rank.routed * ep * etp == whole.routed + copied


@examples(100)
@given(layers())
def test_the_model_is_the_sum_of_its_parts(drawn: tuple[Model, LayerKind, int, int, int]) -> None:
    model, kind, _, _, _ = drawn
    ends = embedding_parameters(model) + head_parameters(model) + final_norm_parameters(model)
    assert total_parameters(model) == ends.total + 2 * layer_parameters(model, kind).total
    assert total_parameters(model, mtp=True) == total_parameters(model) + mtp_parameters(model).total
    assert active_parameters(model) <= total_parameters(model)


@examples(100)
@given(layers())
def test_columns_agree_with_scalars(drawn: tuple[Model, LayerKind, int, int, int]) -> None:
    model, kind, *_ = drawn
    tp, ep, etp = np.array([1, 2, 4, 1]), np.array([1, 2, 8, 8]), np.array([1, 1, 2, 2])
    column = layer_parameters(model, kind, tp=tp, ep=ep, etp=etp)
    for index in range(4):
        one = layer_parameters(model, kind, tp=int(tp[index]), ep=int(ep[index]), etp=int(etp[index]))
        for bucket in ("sharded", "replicated", "routed"):
            value = getattr(column, bucket)
            assert np.broadcast_to(value, (4,))[index] == getattr(one, bucket)
    extra = mtp_parameters(model, tp=tp, ep=ep, etp=etp)
    assert np.broadcast_to(extra.total, (4,))[0] == mtp_parameters(model).total


def test_key_value_heads_fewer_than_ranks_are_copied() -> None:
    model = load_model("llama3-70b")
    kind = model.kinds[0]
    eight, sixteen = (layer_parameters(model, kind, tp=tp).sharded for tp in (8, 16))
    one_head = 2 * model.hidden * kind.attention.head_dim
    assert sixteen == (eight - one_head) // 2 + one_head


def test_a_tied_head_on_another_stage_is_a_copy() -> None:
    model = load_model("llama3.2-1b")
    assert head_parameters(model, tp=2).total == 0
    assert head_parameters(model, tp=2, copied=True).total == model.vocabulary * model.hidden // 2
    column = head_parameters(model, tp=2, copied=np.array([False, True]))
    assert list(np.asarray(column.total)) == [0, model.vocabulary * model.hidden // 2]


def test_latent_down_projections_are_replicated() -> None:
    """Megatron with Transformer Engine builds them with parallel_mode='duplicated'."""
    model = load_model("deepseek-v3")
    counts = layer_parameters(model, model.kinds[0], tp=8)
    latent = model.attention.latent
    assert latent is not None
    down = model.hidden * (1536 + 512 + 64) + 1536 + 512
    assert counts.replicated == down + 2 * model.hidden


def test_multi_token_prediction_of_deepseek_v3() -> None:
    """Source: deepseek-ai/DeepSeek-V3 README: 14 B, of which embedding and head are the main model's."""
    model = load_model("deepseek-v3")
    own = int(mtp_parameters(model).total)
    shared = 2 * model.vocabulary * model.hidden
    assert 11.5e9 < own < 11.7e9
    assert round((own + shared) / 1e9) in (13, 14)


@pytest.mark.parametrize(
    ("vocabulary", "tp", "padded"), [(50257, 1, 50304), (50257, 8, 51200), (128256, 8, 129024), (51200, 8, 51200)]
)
def test_vocabulary_is_padded_as_megatron_does(vocabulary: int, tp: int, padded: int) -> None:
    assert padded_vocabulary(vocabulary, tp=tp) == padded


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-235b-a22b", 22.2), ("deepseek-v3", 37.6), ("mixtral-8x7b", 12.9), ("gpt-oss-120b", 5.7)],
)
def test_active_parameters(name: str, billions: float) -> None:
    assert active_parameters(load_model(name)) / 1e9 == pytest.approx(billions, abs=0.06)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt-1.7b", 1.7), ("gpt-3.6b", 3.6), ("gpt-7.5b", 7.5), ("gpt-18.4b", 18.4), ("gpt-39.1b", 39.1),
     ("gpt-76.1b", 76.1), ("gpt-145.6b", 145.6), ("gpt-310.1b", 310.1), ("gpt-529.6b", 529.6), ("gpt-1008b", 1008.0)],
)
def test_narayanan_table_1(name: str, billions: float) -> None:
    """Source: arXiv 2104.04473 table 1, which rounds to 0.1 B."""
    assert total_parameters(load_model(name)) / 1e9 == pytest.approx(billions, abs=0.051)
