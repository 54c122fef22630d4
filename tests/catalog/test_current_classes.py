"""Families without an entry of the catalogue, read from the defaults of their class and held to what it builds."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.perf.parameters import total_parameters
from meshwright.readers.hf_config import model_from_config

CLASSES = {
    "apertus": ("Apertus", {}), "cwm": ("Cwm", {}), "glm": ("Glm", {}), "granitemoe": ("GraniteMoe", {}),
    "granitemoeshared": ("GraniteMoeShared", {"shared_intermediate_size": 512}), "granite_swa": ("GraniteSWA", {}),
    "helium": ("Helium", {}), "jais2": ("Jais2", {}), "vaultgemma": ("VaultGemma", {}), "youtu": ("Youtu", {}),
    "cohere2_moe": ("Cohere2Moe", {"num_shared_experts": 2}), "hyperclovax": ("HyperCLOVAX", {}), "mistral4": ("Mistral4", {}),
    "nanochat": ("NanoChat", {}),
}


@pytest.mark.oracle
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.filterwarnings("ignore")
def test_defaults_of_a_class_are_read_as_it_builds_them(kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family, said = CLASSES[kind]
    if not hasattr(transformers, f"{family}ForCausalLM"):
        pytest.skip(f"this transformers has no {family}")
    made = getattr(transformers, f"{family}Config")(**said)
    with torch.device("meta"):
        built = getattr(transformers, f"{family}ForCausalLM")(made)
    trained = sum(each.numel() for each in built.parameters() if each.requires_grad)
    config: dict[str, Any] = made.to_dict()
    for name in ([f"{family}ForCausalLM"], None):  # by its class, and by its model type alone
        model = model_from_config({**config, "architectures": name}, where="x")
        assert total_parameters(model) == trained
        assert model.architecture == f"{family}ForCausalLM"
        types = config.get("layer_types")
        if types and made.sliding_window and made.sliding_window < made.max_position_embeddings:
            slides = [model.kinds[index].attention.window_tokens is not None for index in model.pattern]  # type: ignore[union-attr]
            assert slides == [each == "sliding_attention" for each in types]
        unsaid = {key: value for key, value in config.items() if key != "layer_types"}
        assert model_from_config(unsaid, where="x").pattern == model.pattern


def test_what_is_missing_is_said_once() -> None:
    config: dict[str, Any] = {
        "model_type": "cohere2_moe", "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96, "vocab_size": 128,
        "num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2,
    }
    assert model_from_config(config | {"num_attention_heads": 4}, where="x", name="x").is_moe
    with pytest.raises(InputError) as refused:
        model_from_config(config, where="x", name="x")
    assert str(refused.value) == "x: num_attention_heads: is missing"
