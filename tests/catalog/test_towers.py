"""Vision towers against the classes of transformers: every weight of the tower and of what projects images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.catalog.hf_towers import TEXT, WIDE, of_class, tower_of_class

from meshwright.catalog import load_model, models
from meshwright.perf.parameters import total_parameters
from meshwright.readers.fields import Fields
from meshwright.readers.hf_config import model_from_config
from meshwright.readers.towers import towers

PUBLISHED = {
    "gemma3-4b": 4300079472, "gemma3-12b": 12187325040, "gemma3-27b": 27432406640, "llama4-scout": 108641793536,
    "llama4-maverick": 401583781376, "mistral-small-3.1-24b": 24011361280, "ministral3-3b": 3849090048, "qwen2.5-vl-3b": 3754622976,
    "qwen2.5-vl-7b": 8292166656, "qwen2.5-vl-32b": 33452718336, "qwen2.5-vl-72b": 73410777344, "qwen3-vl-4b": 4437815808,
    "qwen3-vl-8b": 8767123696, "qwen3-vl-30b-a3b": 31070754032,
}
"""Totals of the checkpoints as the hub shows them, tower and model."""
QWEN3 = {"depth": 3, "hidden_size": 64, "intermediate_size": 160, "num_heads": 4, "out_hidden_size": WIDE, "patch_size": 4,
         "num_position_embeddings": 256}
GLM = {"depth": 2, "hidden_size": 64, "intermediate_size": 80, "num_heads": 4, "out_hidden_size": WIDE, "patch_size": 4,
       "image_size": 32}
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl": ("Qwen2VL", {"depth": 3, "embed_dim": 64, "mlp_ratio": 3, "num_heads": 4, "hidden_size": WIDE}),
    "qwen2_5_vl": ("Qwen2_5_VL", {"depth": 3, "hidden_size": 64, "intermediate_size": 160, "num_heads": 4,
                                  "out_hidden_size": WIDE}),
    "qwen3_vl": ("Qwen3VL", QWEN3 | {"deepstack_visual_indexes": [1]}),
    "qwen3_vl_moe": ("Qwen3VLMoe", QWEN3 | {"deepstack_visual_indexes": [0, 1]}),
    "qwen3_5": ("Qwen3_5", QWEN3), "glm4v": ("Glm4v", GLM), "glm4v_moe": ("Glm4vMoe", GLM | {"attention_bias": True}),
    "gemma3": ("Gemma3", {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "image_size": 64, "patch_size": 4, "vision_use_head": False}),
    "llama4": ("Llama4", {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "image_size": 64, "patch_size": 4, "projector_input_dim": 48, "projector_output_dim": 48,
                          "vision_output_dim": 48}),
    "mistral3": ("Mistral3", {"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
                              "num_attention_heads": 4, "head_dim": 16, "image_size": 64, "patch_size": 4}),
}


@pytest.mark.oracle
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.filterwarnings("ignore")
def test_towers_equal_the_class(kind: str) -> None:
    name, vision = MADE[kind]
    wrapper = Fields({"model_type": kind, "vision_config": vision}, "x")
    assert towers[kind](wrapper, wrapper.inner("vision_config"), WIDE).parameters == of_class(name, vision, WIDE)
    assert not wrapper.faults


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in models() if load_model(name).vision])
@pytest.mark.filterwarnings("ignore")
def test_towers_of_the_catalogue_equal_the_class(name: str) -> None:
    tower = load_model(name).vision
    assert tower is not None
    assert tower.parameters == tower_of_class(name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_with_the_tower_are_those_of_the_checkpoints(name: str) -> None:
    model = load_model(name)
    assert model.tower is None
    assert total_parameters(replace(model, tower=model.vision)) == PUBLISHED[name]


def test_every_reader_of_a_tower_is_held_to_its_class() -> None:
    assert set(towers) - set(MADE) == {"qwen3_5_moe", "glm46v"}  # the same readers under another name


FLAT = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", **TEXT,
        "vision_config": {"depth": 2, "hidden_size": 64, "intermediate_size": 160, "num_heads": 4, "out_hidden_size": WIDE}}


def test_a_wrapper_that_keeps_its_model_beside_its_tower_is_read() -> None:
    model = model_from_config(FLAT, where="x")
    assert (model.architecture, model.hidden) == ("Qwen2ForCausalLM", WIDE)
    assert model.vision is not None
    assert model.vision.architecture == "Qwen2_5_VLForConditionalGeneration"
    assert model.beside == ("vision_config (2 layers of 64)",)
