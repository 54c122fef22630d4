"""Kernels that a layout names: a score matrix costs what Korthikanti et al. count, torch.compile what its rows say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.catalog import implementation, implementations
from meshwright.domain.kernels import own_unsaid, running, unpriced, with_kernels
from meshwright.domain.layout import Layout, NoRecompute
from meshwright.estimate import estimate
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import evaluate_many
from strategies import EVERYTHING, cases, examples, layouts, small_case

KERNELS = ("flash", "fused", "math", None)
ABLE = ("flash", "math")


def priced(case, layout):
    """Step and reserved bytes of the fullest stage by the closed form."""
    found = evaluate(case, layout)
    return float(found.time.step_s), float(np.max(found.memory.reserved_bytes))


@examples(20)
@given(st.data())
def test_choosing_again_changes_nothing_and_columns_say_what_one_layout_says(data):
    case = data.draw(cases())
    layout = data.draw(layouts(case, EVERYTHING))
    named = [replace(layout, attention=kernel, compiled=on) for kernel in KERNELS for on in (True, False, None)]
    alone = [priced(case, each) for each in named]
    step_s, reserved = evaluate_many(case, named)
    np.testing.assert_allclose(step_s, [step for step, _ in alone], rtol=1e-9)
    np.testing.assert_allclose(reserved, [held for _, held in alone], rtol=1e-9)
    for each, known in zip(named, alone, strict=True):
        chosen = running(case, each)
        assert running(chosen, each) == chosen
        assert priced(chosen, each) == known
    assert running(case, layout) is case


@examples(75)
@given(st.data())
def test_a_score_matrix_never_costs_less_memory_or_time(data):
    case = data.draw(cases())
    layout = replace(data.draw(layouts(case, EVERYTHING)), compiled=None)
    assume(case.implementation.flash_attention and case.batch.sequence_tokens >= 512)
    flash_s, flash_bytes = priced(case, layout)
    math_s, math_bytes = priced(case, replace(layout, attention="math"))
    assert math_bytes >= flash_bytes * (1 - 1e-12)
    assert math_s >= flash_s * (1 - 1e-12)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_scores_are_kept_as_korthikanti_counts_them_without_dropout(tp):
    """Per layer 2 a s^2 b / t bytes: the softmax's output alone, as attention has no dropout."""
    case = small_case("llama3-8b", layers=4, devices=4, batch=8, sequence=1024)
    layout = Layout(tensor_parallel=tp, sequence_parallel=tp > 1, data_parallel=4 // tp, num_microbatches=2 * tp)
    kept = [evaluate(case, replace(layout, attention=kernel)).costs.kinds[0].saved_bytes[0] for kernel in (None, "math")]
    heads, tokens = case.model.attention.num_heads, case.batch.sequence_tokens
    assert float(kept[1] - kept[0]) == pytest.approx(2 * heads * tokens**2 / tp, rel=1e-9)


def test_what_was_two_implementations_is_one_and_its_kernel():
    for fused, unfused in (("mindspeed", "mindspeed-unfused"), ("mindspore", "mindspore-unfused"),
                           ("mindspore-cells", "mindspore-cells-unfused")):
        case = small_case(device="ascend-910b", implementation=fused)
        chosen = with_kernels(case, compiled=None, attention="math").implementation
        known = implementation(unfused)
        assert (set(chosen.saved), set(chosen.passes)) == (set(known.saved), set(known.passes))
        assert (len(chosen.saved), len(chosen.passes)) == (len(known.saved), len(known.passes))
        assert not chosen.flash_attention


def test_compilation_is_the_other_implementation_and_back():
    for name, other in (("torchtitan", "torchtitan-eager"), ("torchtitan-eager", "torchtitan")):
        case, known = small_case(implementation=name), implementation(other)
        chosen = with_kernels(case, compiled=not case.implementation.compiled, attention=None).implementation
        same = {"name": known.name, "description": known.description, "source": known.source, "switched": known.switched}
        assert replace(chosen, **same) == known


def test_eager_layers_keep_and_move_more():
    case = small_case(implementation="torchtitan", devices=8)
    layout = Layout(data_parallel=8, num_microbatches=2, recompute=NoRecompute())
    on, off = priced(case, layout), priced(case, replace(layout, compiled=False))
    assert off[0] > on[0]
    assert off[1] > on[1]


def test_a_fused_kernel_leaves_nothing_of_the_core_behind():
    for name in implementations():
        case = small_case(implementation=name)
        chosen = with_kernels(case, compiled=None, attention="flash").implementation
        assert chosen.flash_attention
        assert not [row for row in (*chosen.saved, *chosen.passes) if row.width == "scores"]


def test_what_is_not_known_is_said():
    case = small_case()
    assert [str(each) for each in unpriced(case, Layout(attention="fused"))] == [
        "attention=fused: what it changes under megatron-te is not known; time and memory are given as without it"
    ]
    assert [each.values["word"] for each in unpriced(case, Layout(compiled=True))] == ["compile=on"]
    assert not unpriced(case, Layout(attention="math"))
    assert not unpriced(small_case(implementation="torchtitan"), Layout(compiled=False))
    assert not unpriced(case, Layout())


def test_what_a_framework_has_by_itself_goes_unsaid():
    titan = small_case(implementation="torchtitan")
    assert own_unsaid(titan, (), compiled=True, attention="flash") == (None, None)
    assert own_unsaid(titan, (), compiled=False, attention="math") == (False, "math")
    assert own_unsaid(small_case(), ("flash", "fused", "math"), compiled=False, attention="flash") == (None, "flash")
    unfused = small_case(implementation="megatron-deepspeed")
    assert own_unsaid(unfused, ABLE, compiled=None, attention="math") == (None, None)
    assert own_unsaid(unfused, ABLE, compiled=None, attention="flash") == (None, "flash")


def test_the_name_says_the_kernels():
    case = small_case(implementation="torchtitan")
    layout = Layout(data_parallel=8, num_microbatches=2)
    assert estimate(case, replace(layout, compiled=False, attention="math")).label.endswith("attention=math compile=off")
    assert "=" not in estimate(case, layout).label
