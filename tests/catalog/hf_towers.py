"""Vision towers of transformers, built on the meta device: the oracle of those that are read and of the catalogue's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from meshwright.catalog import load_model
from meshwright.catalog.model_sheet import published_tower

WIDE = 96
TEXT = {"hidden_size": WIDE, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
        "vocab_size": 64}


def of_class(name: str, vision: dict[str, Any], wide: int) -> int:
    """Weights of a class's tower and projection, on the meta device."""
    import torch
    import transformers

    made = getattr(transformers, f"{name}Config")(vision_config=vision)
    text = made.text_config
    for key, value in {**TEXT, "hidden_size": wide, "moe_intermediate_size": 64, "num_experts": 2, "n_routed_experts": 2,
                       "num_local_experts": 2, "first_k_dense_replace": 0}.items():
        if hasattr(text, key):
            setattr(text, key, value)
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:2]
    with torch.device("meta"):
        built = getattr(transformers, f"{name}ForConditionalGeneration")(made)
    parts = ("visual", "vision", "multi_modal")
    return sum(each.numel() for name, each in built.named_parameters() if any(part in name for part in parts))


def tower_of_class(name: str) -> int:
    """The tower of a model of the catalogue, as its class builds it."""
    tower = load_model(name).vision
    assert tower is not None, f"{name} has no tower"
    vision: dict[str, Any] = dict(cast("Mapping[str, Any]", published_tower(name)["vision_config"]))
    if "Qwen" in tower.architecture or "Glm" in tower.architecture:
        vision["out_hidden_size"] = load_model(name).hidden
    if "Mistral" in tower.architecture:
        vision |= {"model_type": "pixtral", "head_dim": 64}
    return of_class(tower.architecture.removesuffix("ForConditionalGeneration"), vision, load_model(name).hidden)
