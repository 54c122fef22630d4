"""Sparse attention as Megatron-LM builds it: which releases, which kernels, what context parallelism and stages must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from megatron_cases import case_of, layout_of

from meshwright import PlanRequest, plan
from meshwright.catalog import load_model
from meshwright.domain.model import Model
from meshwright.errors import InputError
from meshwright.estimate.split import default_split, joined_split
from meshwright.frameworks import framework
from meshwright.frameworks.divisibility import mixed_otherwise
from meshwright.frameworks.megatron.arguments import groups
from meshwright.frameworks.megatron.flags import parse_version
from meshwright.frameworks.megatron.sparse import shared_choice

DEEPSEEK, GLM = "deepseek-v3.2", "glm-5.2"


def takes_over(layer: int, offset: int, every: int) -> bool:
    """``is_dsa_skip_topk_layer`` of core 0.19: layers are counted from 1."""
    return max(layer - max(offset, 1), 0) % every != 0


def sharing(own: list[bool]) -> Model:
    """GLM-5.2 with other layers that make their own choice."""
    model = load_model(GLM)
    has = next(index for index in model.pattern if model.kinds[index].attention.indexer)
    has_not = next(index for index in model.pattern if not model.kinds[index].attention.indexer)
    return replace(model, pattern=tuple(has if each else has_not for each in own), num_mtp_layers=0, mtp_pattern=())


@given(st.integers(1, 6), st.integers(0, 6), st.integers(2, 40))
def test_two_numbers_say_which_layers_take_over_a_choice(every: int, offset: int, layers: int) -> None:
    own = [not takes_over(layer, offset, every) for layer in range(1, layers + 1)]
    found = shared_choice(sharing(own))
    assert found is not None
    assert [not takes_over(layer, found[1], found[0]) for layer in range(1, layers + 1)] == own


def test_choices_that_follow_no_rule_are_refused() -> None:
    model = sharing([True, False, True, True, False, False, True, False])
    assert shared_choice(model) is None
    case = replace(case_of(GLM), model=model)
    messages = framework("megatron@0.19").check(case, layout_of(case, expert_parallel=8))
    assert any("taken over otherwise than every so many layers" in str(each) for each in messages)


@pytest.mark.parametrize(("model", "knobs", "rule"), [
    (DEEPSEEK, {"context_parallel": 2}, "megatron.sparse-context"),
    (DEEPSEEK, {"context_parallel": 2, "context_kind": "ulysses"}, "megatron.sparse-context"),
    (DEEPSEEK, {"context_parallel": 2, "context_kind": "all-gather"}, ""),
    (GLM, {"pipeline_parallel": 2, "stage_layers": ((39, 39),)}, "megatron.sparse-stage"),
    (GLM, {"pipeline_parallel": 2, "stage_layers": ((38, 40),)}, ""), (GLM, {"pipeline_parallel": 2}, ""),
    (DEEPSEEK, {"pipeline_parallel": 2, "stage_layers": ((30, 31),)}, ""),
])
def test_what_sparse_attention_runs_with(model: str, knobs: dict[str, object], rule: str) -> None:
    case = case_of(model, sequence=4096)
    layout = layout_of(case, expert_parallel=8, **knobs)
    for name in ("megatron@0.19", "megatron@main"):
        assert [each.id for each in framework(name).check(case, layout)] == [rule] * bool(rule)
    if rule:
        with pytest.raises(InputError):
            framework("megatron").write(case, layout, version="0.19")


def test_releases_before_the_fused_kernels_are_refused() -> None:
    case = case_of(DEEPSEEK)
    for release in ("0.16", "0.17", "0.18"):
        assert [each.id for each in framework(f"megatron@{release}").check(case, layout_of(case))] == ["framework.parts"]


def test_kernels_and_the_indexer_s_loss_are_written() -> None:
    case = case_of(GLM)
    layout = layout_of(case, expert_parallel=8)
    said = {key: value for group in groups(case, layout, parse_version("0.19")).values() for key, value in group.items.items()}
    told = ("--dsa-kernel-backend", "--dsa-indexer-topk-freq", "--dsa-indexer-skip-topk-offset")
    assert [said[each] for each in told] == ["cudnn", 4, 3]
    assert "--dsa-indexer-use-sparse-loss" in said
    script = next(file.text for file in framework("megatron").write(case, layout, version="0.19") if file.path == "train.sh")
    assert '--dsa-indexer-loss-coeff "$INDEXER_LOSS_COEFFICIENT"' in script
    assert 'INDEXER_LOSS_COEFFICIENT="${INDEXER_LOSS_COEFFICIENT:-1e-3}"' in script


def test_plans_of_sparse_attention_gather_keys_and_cut_at_choices() -> None:
    request = PlanRequest(model=GLM, device="h100", nodes=128, global_batch=1024, sequence=4096, framework="megatron@0.19",
                          pin=["cp=2"], top=20, no_balance=True)
    labels = [each["label"] for each in plan(request).to_json()["plans"]]
    assert labels
    assert all(" cp2 " in each and "context=all-gather" in each for each in labels)


@given(st.lists(st.booleans(), min_size=8, max_size=60), st.sampled_from([2, 3, 4]), st.sampled_from([1, 2]))
def test_chunks_begin_where_a_choice_is_made(own: list[bool], stages: int, chunks: int) -> None:
    model = sharing([True, *own])
    case = replace(case_of(GLM), model=model)
    split = default_split(case, stages, chunks)
    assert sum(count for chunk in split for count in chunk) == model.num_layers
    begins, at = [], 0
    for count in (count for chunk in split for count in chunk):
        begins.append(at)
        at += count
    if sum(own) >= stages * chunks - 1:
        assert all([True, *own][begin] for begin in begins)
        assert len(set(begins)) == len(begins)
    assert joined_split(model, split) == split


@pytest.mark.parametrize(("name", "word"), [
    ("kimi-linear-48b-a3b", "Kimi delta attention"), ("minimax-m1", "lightning attention"), (DEEPSEEK, "sparse attention"),
    ("deepseek-v4-flash", "compressed attention"), ("llama3-8b", ""), ("gemma3-27b", ""), ("deepseek-v3", ""),
])
def test_what_cannot_see_a_cut_sequence(name: str, word: str) -> None:
    """accelerate and DeepSpeed cut sequences for attention functions; what mixes otherwise would see its rank's part alone."""
    assert mixed_otherwise(load_model(name)) == word
    for program in ("accelerate", "deepspeed"):
        case = case_of(name, implementation_name="torch-eager")
        assert framework(program).for_case(case).features.context_parallel is not bool(word)


@pytest.mark.parametrize(("name", "model", "lost"), [
    ("megatron", "nemotron-3-nano-30b-a3b", {"schedules", "recompute"}),
    ("megatron@0.17", "nemotron-3-nano-30b-a3b", {"recompute"}),
    ("megatron@0.18", "nemotron-3-nano-30b-a3b", set()), ("bridge@main", "nemotron-3-nano-30b-a3b", {"schedules"}),
    ("megatron", "qwen3-next-80b-a3b", {"context_parallel"}), ("megatron@0.17", "qwen3-next-80b-a3b", set()),
    ("megatron@0.19", DEEPSEEK, {"context_kinds"}), ("megatron", "deepseek-v3", set()),
])
def test_features_are_those_that_some_layout_of_the_model_may_have(name: str, model: str, lost: set[str]) -> None:
    there = framework(name)
    plain, left = there.features, there.for_case(case_of(model)).features
    assert {each for each in plain.__slots__ if getattr(plain, each) != getattr(left, each)} == lost
