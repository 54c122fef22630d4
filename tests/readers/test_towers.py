"""Towers of multi-modal wrappers: the language model is planned alone, and every answer says what stands beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.readers.hf_config import model_from_config
from meshwright.report.headline import case_header

TEXT: dict[str, Any] = {
    "model_type": "qwen3_vl_text", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
}
WRAPPER: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"], "text_config": TEXT,
    "vision_config": {"depth": 27, "hidden_size": 1152},
}


@pytest.mark.parametrize(("towers", "beside"), [
    ({"vision_config": {"depth": 27, "hidden_size": 1152}}, ("vision_config (27 layers of 1,152)",)),
    ({"vision_config": {"num_hidden_layers": 4, "embed_dim": 64}, "audio_config": {"hidden_size": 8}},
     ("vision_config (4 layers of 64)", "audio_config")),
])
def test_towers_are_named_with_their_size(towers: dict[str, Any], beside: tuple[str, ...]) -> None:
    config = {key: value for key, value in WRAPPER.items() if key != "vision_config"} | towers
    assert model_from_config(config, where="x").beside == beside


@pytest.mark.parametrize(("kind", "name"), [
    ("qwen3_vl_text", "Qwen3ForCausalLM"), ("qwen2_5_vl_text", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM"),
])
def test_text_parts_of_wrappers_have_the_shapes_of_their_family(kind: str, name: str) -> None:
    model = model_from_config(WRAPPER | {"text_config": TEXT | {"model_type": kind}}, where="x")
    assert model.architecture == name
    assert model_from_config(TEXT | {"model_type": kind}, where="x").beside == ()


def test_the_head_of_an_answer_says_that_the_tower_is_left_out() -> None:
    case = make_case("llama3-8b", cluster_for("h100-sxm", num_devices=8), global_batch_sequences=8, sequence_tokens=512)
    for beside, said in (((), False), (("vision_config (27 layers of 1,152)",), True)):
        console = Console(width=200)
        with console.capture() as found:
            for line in case_header(replace(case, model=replace(case.model, beside=beside))):
                console.print(line)
        assert ("vision_config (27 layers of 1,152) is in no figure here" in found.get()) == said
