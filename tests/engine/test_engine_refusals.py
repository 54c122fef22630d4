"""What the reference step refuses, and that what it does not refuse is what the parity matrix runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parity import MODELS, QUICK, SEQUENCE_TOKENS, SLOW, case

from meshwright.domain.layout import Full, Layout, Mixed, Overlap, Selective
from meshwright.domain.mixers import Lightning
from meshwright.domain.model import Side
from meshwright.engine.refusals import refused
from meshwright.engine.request import Options, Request

PIPE = Layout(pipeline_parallel=2, num_microbatches=4)


def ids(
    model: str, layout: Layout, *, tokens: int = SEQUENCE_TOKENS, options: Options | None = None, world: int | None = None
) -> set[str]:
    request = Request(model=MODELS[model], layout=layout, sequence_tokens=tokens, options=options or Options())
    return {message.id.removeprefix("engine.") for message in refused(request, world=world, devices=1)}


@pytest.mark.parametrize("ranks", (2, 4))
def test_every_case_of_the_matrix_is_accepted(ranks: int) -> None:
    for text in (*QUICK[ranks], *SLOW[ranks]):
        _, request = case(text, ranks)
        assert refused(request, world=ranks) == (), text


@pytest.mark.parametrize(
    ("model", "layout", "expected"),
    (
        ("dense", Layout(tensor_parallel=3), {"tensor"}),
        ("dense", Layout(tensor_parallel=8), {"tensor"}),  # four key-value heads
        ("moe", Layout(tensor_parallel=2), {"tensor-experts"}),
        ("moe", Layout(tensor_parallel=2, sequence_parallel=True, expert_tensor_parallel=2), {"expert-tensor"}),
        ("dense", Layout(context_parallel=2), {"context"}),
        ("dense", Layout(context_parallel=2, context_kind="all-gather"), {"context"}),
        ("dense", Layout(context_parallel=8, context_kind="ulysses"), {"context-heads"}),
        ("dense", Layout(data_parallel=2, expert_parallel=2), {"experts"}),
        ("moe", Layout(data_parallel=2, expert_parallel=4), {"expert-ranks"}),
        ("moe", Layout(data_parallel=3, expert_parallel=3), {"expert-count"}),
        ("dense", Layout(virtual_stages=2), {"chunks"}),
        ("dense", replace(PIPE, schedule="interleaved"), {"schedule"}),
        ("dense", replace(PIPE, schedule="zb1p", virtual_stages=2), {"schedule"}),
        ("dense", replace(PIPE, schedule="dualpipev", virtual_stages=3), {"schedule"}),
        ("dense", replace(PIPE, num_microbatches=1), {"microbatches"}),
        ("dense", replace(PIPE, schedule="dualpipev", virtual_stages=2, num_microbatches=3), {"microbatches"}),
        ("dense", replace(PIPE, schedule="zb1p", num_microbatches=5), {"rounds"}),
        ("dense", replace(PIPE, virtual_stages=2, num_microbatches=5), {"rounds"}),
        ("dense", replace(PIPE, stage_layers=((1, 2),)), {"split"}),
        ("dense", replace(PIPE, stage_layers=((1, 2, 1),)), {"split-shape"}),
        ("dense", replace(PIPE, virtual_stages=2, stage_layers=((2, 0), (1, 1))), {"empty-stage"}),
        ("dense", Layout(data_parallel=4, optimizer_shards=4, gradient_shards=2), {"shards"}),
        ("dense", Layout(data_parallel=4, optimizer_shards=3), {"shards"}),
        ("dense", Layout(data_parallel=4, gradient_shards=2), {"shards"}),
        ("dense", Layout(offload=("optimizer",)), {"offload"}),
        ("dense", Layout(overlap=Overlap(tensor=True, expert=True)), {"overlap"}),
        ("dense", Layout(recompute=Selective(modules=("core_attn", "layernorm"))), {"recompute"}),
        ("delta", Layout(tensor_parallel=8, sequence_parallel=True), {"tensor"}),  # four key heads
        ("mamba", Layout(context_parallel=2, context_kind="ulysses"), {"mixer-layout"}),
        ("mamba", replace(PIPE, schedule="zb1p"), {"mixer-layout"}),
        ("dense", replace(PIPE, recompute=Full(layers=((1,),))), {"recompute-shape"}),
        ("dense", replace(PIPE, recompute=Mixed(parts=((Full(), ((1, 0),)), (Selective(), ((0, 1),))))), {"recompute-mixed"}),
    ),
)
def test_what_cannot_run_is_refused_by_name(model: str, layout: Layout, expected: set[str]) -> None:
    assert ids(model, layout) == expected


def test_neighbours_of_refusals_are_accepted() -> None:
    assert ids("dense", Layout(overlap=Overlap(gradient_reduce=False, parameter_gather=False, point_to_point=False))) == set()
    assert ids("dense", replace(PIPE, stage_layers=((0, 4),))) == set()  # an end may hold the embedding alone
    assert ids("dense", replace(PIPE, schedule="zb1p", num_microbatches=6)) == set()
    assert ids("dense", replace(PIPE, num_microbatches=2)) == set()
    assert ids("mla", Layout(context_parallel=8, context_kind="ulysses")) == set()  # a latent gives every head its keys


def test_expert_replicas_must_divide_by_the_shards() -> None:
    layout = Layout(data_parallel=6, expert_parallel=2, optimizer_shards=2)
    assert ids("moe", layout) == {"expert-shards"}
    assert ids("moe", replace(layout, optimizer_shards=3)) == set()


def test_figures_of_the_run_are_judged() -> None:
    assert ids("dense", Layout(data_parallel=2), world=3) == {"world"}
    assert ids("dense", Layout(data_parallel=2), options=Options(backend="cuda")) == {"devices"}
    assert ids("dense", Layout(), tokens=33) == set()
    assert ids("learned", Layout(), tokens=64) == {"positions"}
    assert ids("dense", Layout(), options=Options(steps=0)) == {"steps"}
    compiled = Options(compiled=True)
    assert ids("dense", replace(PIPE, schedule="zb1p"), options=compiled) == {"compiled"}
    assert ids("dense", PIPE, options=compiled) == set()
    assert ids("dense", Layout(tensor_parallel=2), options=compiled) == {"compiled-tensor"}


def test_packed_samples_and_compiled_layers_are_not_for_linear_mixers() -> None:
    for options in (Options(packed=True), Options(compiled=True)):
        assert ids("delta", Layout(), options=options) == {"mixer-layout"}
    assert ids("delta", Layout(tensor_parallel=2, sequence_parallel=True)) == set()


@pytest.mark.parametrize(("change", "said"), [
    ({"mixer": Lightning(num_heads=4, head_dim=16), "attention": None},
     "dense has lightning attention, and the reference step has gated delta net and Mamba-2"),
    ({"attention": replace(MODELS["dense"].attention, selected_tokens=16)},
     "dense has sparse attention, which the reference step has not"),
    ({"attention": replace(MODELS["dense"].attention, shared_key_value=True)}, "keys and values that layers share"),
    ({"sides": (Side(name="side", inputs=64, outputs=8),)}, "projections beside its layers"),
    ({"streams": 4}, "several residual streams"),
])
def test_parts_without_a_module_are_refused_by_name(change: dict[str, object], said: str) -> None:
    kind = replace(MODELS["dense"].kinds[0], **change)  # type: ignore[arg-type]
    request = Request(model=replace(MODELS["dense"], kinds=(kind,)), layout=Layout(), sequence_tokens=SEQUENCE_TOKENS)
    (message,) = refused(request)
    assert said in str(message)


def test_models_without_an_equal_are_refused() -> None:
    full = replace(MODELS["dense"].kinds[0], attention=replace(MODELS["dense"].attention, query_key_norm="full"))
    for model, expected in ((replace(MODELS["dense"], kinds=(full,)), {"engine.tensor-norm"}),
                            (replace(MODELS["dense"], num_mtp_layers=1), {"engine.mtp"})):
        request = Request(model=model, layout=Layout(tensor_parallel=2), sequence_tokens=SEQUENCE_TOKENS)
        assert {message.id for message in refused(request)} == expected
        for message in refused(request):
            assert "{" not in str(message), "every brace is filled"
