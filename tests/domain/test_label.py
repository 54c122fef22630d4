"""The label is read and written without loss, and every fault of it is said at once."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.attention import Attention
from meshwright.domain.label import MODULES, label, parse_layout, parse_recompute, recompute_word
from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Overlap, Selective, ordered_parts, overlapping
from meshwright.domain.model import LayerKind, Mlp, Model
from meshwright.errors import InputError

CONTRACT = (
    "tp8 cp1 pp4 vp2 ep1 etp1 dp16 mb1 sp zero1 shard16 recompute=selective:core_attn schedule=1f1b "
    "offload=optimizer overlap=grad,param,tp,p2p layers=[20,20,21,19]"
)
FACTORS = st.sampled_from([1, 2, 3, 4, 8])


def read(text: str, **more: object) -> Layout:
    given_world = {"num_devices": 512, "global_batch_sequences": 1024, **more}
    return parse_layout(text, **given_world)  # type: ignore[arg-type]


def faults(text: str, **more: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text, **more)
    return [str(message) for message in caught.value.messages]


def llama(layers: int) -> Model:
    kind = LayerKind(attention=Attention(num_heads=8, num_key_value_heads=8, head_dim=64), feed_forward=Mlp(width=1024))
    return Model(name="small", hidden=512, vocabulary=1000, kinds=(kind,), pattern=(0,) * layers)


treatments = st.one_of(
    st.just(Full()),
    st.sets(st.sampled_from(MODULES), min_size=1).map(lambda names: Selective(modules=tuple(sorted(names)))),
)


def mixture(parts: list) -> NoRecompute | Mixed:
    """Parts in their normal form; a single whole one is not a mixture."""
    some = ordered_parts(parts)
    return Mixed(parts=some) if some and (len(some) > 1 or some[0][0] != Full()) else NoRecompute()


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, int, int]:
    tp, cp, pp, dp, mb = (draw(FACTORS) for _ in range(5))
    vp = draw(st.sampled_from([1, 1, 2, 3]))
    ranks, world = tp * cp * dp, dp * cp
    ep = gcd(draw(FACTORS), ranks)
    etp = gcd(draw(FACTORS), ranks // ep)
    divisors = [n for n in range(1, world + 1) if world % n == 0]
    stage = draw(st.integers(0, 3))
    size = draw(st.sampled_from(divisors))
    shards = [size if stage > knob else 1 for knob in range(3)]
    if draw(st.booleans()):
        shards = [draw(st.sampled_from(divisors)) for _ in range(3)]
    counts = st.tuples(*[st.tuples(*[st.integers(0, 99)] * pp)] * vp)
    recompute = draw(st.one_of(
        st.just(NoRecompute()),
        st.lists(st.tuples(treatments, counts), min_size=2, max_size=5, unique_by=lambda part: part[0]).map(mixture),
        st.lists(st.sampled_from(MODULES), min_size=1, unique=True).map(lambda names: Selective(modules=tuple(names))),
        st.one_of(st.none(), st.integers(0, 99), counts).map(lambda layers: Full(layers=layers)),
    ))
    micro = draw(st.integers(1, 64))
    stage_layers = draw(st.one_of(st.none(), counts))
    if stage_layers and isinstance(recompute, Mixed):
        stage_layers = tuple(tuple(map(add, *rows)) for rows in zip(stage_layers, recompute.counts, strict=True))
    layout = Layout(
        tensor_parallel=tp, sequence_parallel=draw(st.booleans()), context_parallel=cp,
        context_kind=draw(st.sampled_from(["ring", "all-gather", "ulysses", "hybrid"])), pipeline_parallel=pp,
        virtual_stages=vp, expert_parallel=ep, expert_tensor_parallel=etp, data_parallel=dp,
        optimizer_shards=shards[0], gradient_shards=shards[1], parameter_shards=shards[2],
        microbatch_sequences=mb, num_microbatches=micro, recompute=recompute,
        schedule=draw(st.sampled_from(["interleaved" if vp > 1 else "1f1b", "gpipe", "zb1p", "dualpipev"])),
        stage_layers=stage_layers, offload=draw(st.sampled_from([(), ("optimizer",)])),
        attention=draw(st.sampled_from([None, "flash", "fused", "math"])), compiled=draw(st.sampled_from([None, True, False])),
    )
    said = {name: draw(st.booleans()) for name in sorted(overlapping(layout))}
    layout = replace(layout, overlap=replace(Overlap(), **said))
    return layout, layout.world, micro * dp * mb


@given(layouts(), st.randoms(use_true_random=False))
def test_a_layout_survives_its_label_whatever_the_order_of_the_words(drawn, shuffler):
    layout, world, batch = drawn
    words = label(layout).split()
    shuffler.shuffle(words)
    assert parse_layout(" ".join(words), num_devices=world, global_batch_sequences=batch) == layout


@given(layouts())
def test_dp_follows_from_the_world_when_it_is_left_out(drawn):
    layout, world, batch = drawn
    words = [word for word in label(layout).split() if not word.startswith("dp")]
    assert parse_layout(" ".join(words), num_devices=world, global_batch_sequences=batch) == layout


@given(st.text(alphabet="tpcepvdmbszerohard=[];,:0123456789 ful-", max_size=40) | st.text(max_size=20))
def test_any_text_is_a_layout_or_an_input_error(text):
    try:
        assert read(text).world == 512
    except InputError as error:
        assert error.messages
        assert all("\n" not in str(message) for message in error.messages)


def test_the_example_of_the_contract():
    layout = read(CONTRACT, model=llama(80))
    assert (layout.tensor_parallel, layout.pipeline_parallel) == (8, 4)
    assert (layout.virtual_stages, layout.data_parallel) == (2, 16)
    assert layout.num_microbatches == 64
    assert layout.sequence_parallel
    assert layout.optimizer_shards == 16
    assert layout.gradient_shards == layout.parameter_shards == 1
    assert layout.schedule == "interleaved"
    assert layout.offload == ("optimizer",)
    assert layout.overlap == Overlap(tensor=True)
    assert layout.stage_layers == ((10, 10, 11, 10), (10, 10, 10, 9))


@pytest.mark.parametrize(
    ("text", "over_context", "expected"),
    [
        ("tp2 cp4 zero0", True, (1, 1, 1)),
        ("tp2 cp4 zero1", True, (256, 1, 1)),
        ("tp2 cp4 zero1", False, (64, 1, 1)),
        ("tp2 cp4 zero2 shard8", True, (8, 8, 1)),
        ("tp2 cp4 zero3", False, (64, 64, 64)),
        ("tp2 zero3 shardnode", True, (4, 4, 4)),
        ("tp1 zero1 shard=node", True, (8, 1, 1)),
        ("tp2 cp4 shards=256,16,4", True, (256, 16, 4)),
    ],
)
def test_shard_groups(text, over_context, expected):
    layout = read(text, shards_over_context=over_context)
    assert (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards) == expected


@pytest.mark.parametrize("text", ["none", "selective:core_attn", "selective:moe_act,layernorm", "full", "full:3", "full:[3,2;1,0]",
                                  "full:[3,2,1,0]+selective:mlp_act:[1,1,1,1]", "selective:core_attn:[1,0]",
                                  "full:[1,0;0,1]+selective:comm,mlp_act:[1,0;0,1]+selective:comm:[0,1;2,0]"])
def test_recompute_words_survive(text):
    assert recompute_word(parse_recompute(text)) == text


def test_recompute_per_stage_holds_for_every_chunk():
    assert read("pp4 vp2 recompute=full:[3,2,1,0]").recompute == Full(layers=((3, 2, 1, 0), (3, 2, 1, 0)))
    several = read("pp2 vp2 recompute=selective:comm:[1, 0]+full:[0, 1]").recompute
    assert several == Mixed(parts=((Full(), ((0, 1), (0, 1))), (Selective(modules=("comm",)), ((1, 0), (1, 0)))))


def test_lists_of_another_shape_are_one_fault():
    assert len(faults("pp4 recompute=full:[1,1,1]+selective:comm:[1,1,1]")) == 1


def test_parts_that_count_nothing_are_left_out():
    assert parse_recompute("full:[1,0]+selective:comm:[0,0]") == Full(layers=((1, 0),))
    assert parse_recompute("selective:comm:[0,0]") == NoRecompute()


def test_spaces_capitals_and_equal_signs_are_forgiven():
    assert read("TP=8 PP4 layers=[1, 2, 3, 4] SP=on") == read("tp8 pp4 sp layers=[1,2,3,4]")


def test_the_overlap_of_the_framework_goes_unsaid():
    framework = Overlap(gradient_reduce=False)
    layout = read("tp8 pp2", overlap=framework)
    assert layout.overlap == framework
    assert "overlap" not in label(layout, overlap=framework)
    assert "overlap=p2p" in label(layout)


@given(layouts())
def test_overlap_of_what_is_not_communicated_is_no_part_of_the_name(drawn):
    layout, *_ = drawn
    moot = {name: not getattr(layout.overlap, name) for name in set(Overlap.__slots__) - overlapping(layout)}
    assert label(replace(layout, overlap=replace(layout.overlap, **moot))) == label(layout)


@given(layouts())
def test_a_split_that_the_framework_makes_by_itself_goes_unsaid(drawn):
    layout, *_ = drawn
    assert "layers=" not in label(layout, stage_layers=layout.stage_layers)


def test_idle_devices_are_allowed_only_on_request():
    assert read("tp8 dp63 mb1", global_batch_sequences=63, max_idle_devices=8).world == 504
    assert faults("tp8 dp63 mb1", global_batch_sequences=63) == [
        "layout: tp x cp x pp x dp = 8 x 63 = 504 devices, but the world is 512: dp64 fills it"
    ]


def test_all_faults_of_a_label_are_reported_at_once():
    label_text = "tp8 pp3 dp100 zero5 recompt=full mb0 sp=maybe recompute=selectiv layers=[1,2] overlap=gard"
    lines = faults(label_text, model=llama(80))
    assert len(lines) == 10
    text = "\n".join(lines)
    for expected in (
        "zero5: ZeRO stages are 0 to 3", "did you mean recompute?", "mb0: must be at least 1", "'sp=maybe'",
        "24 x 100 = 2400 devices", "global batch 1024", "did you mean selective?", "layers needs 1 list(s) of 3",
        "layers= places 3 layers, small has 80", "did you mean grad?",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp4 tp8", "tp is given twice: 4 and 8"),
        ("shard8", "shard8 needs zero1, zero2 or zero3"),
        ("zero1 shard1", "shard1 does not split the 512 data-parallel ranks"),
        ("zero1 shard3", "shard3 does not split"),
        ("zero1 shards=8,8,8", "in place of zero and shard"),
        ("schedule=interleaved", "needs at least two chunks"),
        ("tp8 ep3", "ep x etp = 3 x 1 does not divide the 512 devices of a stage"),
        ("mb3", "global batch 1024 is no multiple of dp x mb = 512 x 3 = 1536"),
        ("tp9999999999", "'tp9999999999' has no valid value"),
        ("recompute=selective:corn_attn", "did you mean core_attn?"),
        ("recompute=full+selective:mlp_act", "'full' in recompute= needs layers by stage"),
        ("recompute=full:2+selective:mlp_act:[1]", "'2' is not a list of counts"),
        ("recompute=none:[1]+full:[1]", "'none:[1]' in recompute= needs layers by stage"),
        ("recompute=full:[1]+", "'' in recompute= needs layers by stage"),
        ("recompute=full:[1]+full:[2]", "counts full twice"),
        ("recompute=selective:comm,mlp_act:[1]+selective:mlp_act,comm:[2]", "counts selective:comm,mlp_act twice"),
        ("recompute=full:[1,2]+selective:comm:[1]", "the lists have not the same shape"),
        ("recompute=full:[1]+selective:com:[1]", "did you mean comm?"),
        ("pp2 recompute=full:[1]+selective:comm:[1]", "recompute needs 1 list(s) of 2 counts"),
        ("pp2 layers=[2,2] recompute=full:[1,2]+selective:comm:[1,1]", "counts 3 layers of a chunk that has 2"),
        ("layers=20,20", "is not a list of counts"),
        ("pp8=4", "unknown word 'pp8=4'; did you mean pp"),
        ("tp8 zero1 shardnode", "shard1 does not split"),
    ],
)
def test_one_line_says_what_is_wrong(text, expected):
    assert any(expected in line for line in faults(text))
