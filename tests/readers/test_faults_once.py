"""A fault of one key, or of what many layers share, is said once, whatever reads the key layer by layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.catalog import load_model
from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp
from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config

KINDS = ("inkling_text", "inkling2_text", "gemma4_text", "gemma3n_text", "gemma3_text", "gpt_oss", "llama4_text", "qwen3_next",
         "deepseek_v3", "falcon_h1", "zaya", "llama")
"""Of layers that are read one by one, of several kinds, and all alike."""
pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def published(kind: str) -> dict[str, Any]:
    """The defaults of a class of transformers."""
    transformers = pytest.importorskip("transformers")
    return dict(transformers.CONFIG_MAPPING[kind]().to_dict())


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_no_fault_is_said_twice(kind: str, data: Any) -> None:
    config = published(kind)
    numbers = sorted(name for name, value in config.items() if isinstance(value, (int, list)) and not isinstance(value, bool))
    for name in data.draw(st.sets(st.sampled_from(numbers), min_size=1, max_size=2)):
        config = {**config, name: data.draw(st.sampled_from([7, 0, -3, "x", 1.5, [7]]))}
    try:
        model_from_config(config, where="config.json")
    except InputError as refused:
        said = Counter(map(str, refused.messages))
        assert max(said.values()) == 1
        assert len(said) <= 12


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ["x", -3])
def test_a_bad_count_of_heads_is_one_line(kind: str, value: object) -> None:
    with pytest.raises(InputError) as refused:
        model_from_config({**published(kind), "num_attention_heads": value}, where="config.json")
    heads = [str(each) for each in refused.value.messages if "num_attention_heads:" in str(each)]
    assert len(heads) == 1


@examples(60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.lists(st.sampled_from([1, 2, 3, 5]), min_size=4, max_size=4))
def test_what_is_wrong_with_layers_is_said_with_their_number(pattern: list[int], groups: list[int]) -> None:
    model = load_model("llama3-8b")
    kinds = tuple(
        LayerKind(attention=Attention(num_heads=8, num_key_value_heads=group, head_dim=64, window_tokens=64 + place),
                  feed_forward=Mlp(width=256))
        for place, group in enumerate(groups)
    )
    layers = Counter(groups[place] for place in pattern)
    wrong = {group for group in groups if 8 % group}
    if not wrong:
        assert replace(model, kinds=kinds, pattern=tuple(pattern)).num_layers == len(pattern)
        return
    with pytest.raises(InputError) as refused:
        replace(model, kinds=kinds, pattern=tuple(pattern))
    said = sorted(each.words for each in refused.value.messages)
    assert said == sorted(
        f"num_key_value_heads={group} does not divide num_heads=8"
        + (f" in {layers[group]} of {len(pattern)} layers" if 0 < layers[group] < len(pattern) else "")
        for group in wrong
    )
