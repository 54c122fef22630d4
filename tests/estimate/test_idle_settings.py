"""Settings of a launch without effect: what is said to change nothing changes nothing, and what has nothing to act on is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.domain.idle_settings import without_effect
from meshwright.domain.launch import OFFLOAD_MODULES, SETTINGS, parse_launch
from meshwright.domain.launching import launched
from meshwright.domain.layout import Full, Layout, Selective
from meshwright.estimate import estimate

MODELS = ("llama3-8b", "qwen3-30b-a3b", "gpt-oss-20b", "gemma3-27b")
VALUES = {name: values for name, values in SETTINGS.items() if name != "vision"} | {
    "offload_modules": OFFLOAD_MODULES, "offload_layers": ("4",), "slice_tokens": ("512", "100000"),
}
LAYOUTS = [replace(Layout(data_parallel=16, num_microbatches=4, optimizer_shards=16), recompute=recompute, expert_parallel=experts)
           for recompute in (Layout().recompute, Full(), Selective(modules=("core_attn",))) for experts in (1, 8)]


def case_of(model):
    return make_case(model, cluster_for("h100-sxm", num_devices=16), global_batch_sequences=64, sequence_tokens=4096)


def figures(case, layout):
    found = estimate(case, layout)
    return found.step_s, found.memory_reserved_bytes


@examples(60)
@given(st.data())
def test_what_is_said_to_change_nothing_changes_nothing(data):
    case = case_of(data.draw(st.sampled_from(MODELS)))
    layout = data.draw(st.sampled_from(LAYOUTS if case.model.is_moe else LAYOUTS[::2]))
    name = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(st.sampled_from(VALUES[name]))
    if value in {"attn_proj"}:
        value = "core_attn+attn_proj"
    if name == "offload_layers" and not isinstance(layout.recompute, type(Layout().recompute)):
        return
    asked = launched(case, parse_launch(f"{name}={value}"))
    said = without_effect(asked, layout)
    assert all(str(each).startswith(f"{name}={value} ") for each in said)
    if said:
        assert figures(asked, layout) == figures(case, layout)
    assert not without_effect(case, layout), "what nobody chose goes unsaid"


@pytest.mark.parametrize(("model", "words", "layout", "why"), [
    ("llama3-8b", "routing=natural", LAYOUTS[0], "llama3-8b has no experts"),
    ("llama3-8b", "routing=balanced", LAYOUTS[0], "llama3-8b has no experts"),
    ("llama3-8b", "dispatcher=flex", LAYOUTS[0], "llama3-8b has no experts"),
    ("llama3-8b", "offload_modules=moe_act", LAYOUTS[0], "llama3-8b has no experts"),
    ("qwen3-30b-a3b", "dispatcher=flex", LAYOUTS[0], "no token travels"),
    ("qwen3-30b-a3b", "slice_tokens=512", LAYOUTS[0], "no dense feed-forward block"),
    ("llama3-8b", "slice_tokens=8192", LAYOUTS[0], "4096 tokens"),
    ("llama3-8b", "checkpoints=host", LAYOUTS[0], "none keeps a checkpoint"),
])
def test_each_has_its_reason_in_one_line(model, words, layout, why):
    [said] = without_effect(launched(case_of(model), parse_launch(words)), layout)
    assert str(said).startswith(f"{words} changes nothing here: ")
    assert why in str(said)
    assert "\n" not in str(said)


@pytest.mark.parametrize("words", ["routing=natural", "routing=balanced", "dispatcher=flex deterministic"])
def test_what_acts_goes_unsaid(words):
    assert not without_effect(launched(case_of("qwen3-30b-a3b"), parse_launch(words)), LAYOUTS[1])
