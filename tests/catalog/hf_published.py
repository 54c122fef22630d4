"""Classes of transformers from published configurations, whole or with fewer layers: the oracle of hybrids and sparse attention."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from meshwright.catalog.model_sheet import published_config

CONFIGURATIONS = {
    "Qwen3NextForCausalLM": "Qwen3NextConfig", "Qwen3_5ForCausalLM": "Qwen3_5TextConfig",
    "Qwen3_5MoeForCausalLM": "Qwen3_5MoeTextConfig", "NemotronHForCausalLM": "NemotronHConfig",
    "DeepseekV32ForCausalLM": "DeepseekV32Config", "GlmMoeDsaForCausalLM": "GlmMoeDsaConfig",
    "DeepseekV4ForCausalLM": "DeepseekV4Config", "MiniMaxForCausalLM": "MiniMaxConfig",
    "KimiLinearForCausalLM": "KimiLinearConfig", "GraniteMoeHybridForCausalLM": "GraniteMoeHybridConfig",
    "BambaForCausalLM": "BambaConfig", "FalconH1ForCausalLM": "FalconH1Config", "BailingHybridForCausalLM": "BailingHybridConfig",
    "JambaForCausalLM": "JambaConfig", "Lfm2ForCausalLM": "Lfm2Config", "Lfm2MoeForCausalLM": "Lfm2MoeConfig",
    "OlmoHybridForCausalLM": "OlmoHybridConfig", "Gemma3nForCausalLM": "Gemma3nTextConfig", "Gemma4ForCausalLM": "Gemma4TextConfig",
    "Glm4MoeLiteForCausalLM": "Glm4MoeLiteConfig", "ExaoneMoeForCausalLM": "ExaoneMoeConfig", "HYV4ForCausalLM": "HYV4Config",
    "Dots3NoteForCausalLM": "Dots3NoteTextConfig", "MiniMaxM3VLForCausalLM": "MiniMaxM3VLTextConfig",
    "AXK1ForCausalLM": "AXK1Config", "Kolibri1ForCausalLM": "Kolibri1Config", "FlintForCausalLM": "FlintConfig",
    "LagunaForCausalLM": "LagunaConfig", "AfmoeForCausalLM": "AfmoeConfig", "MellumForCausalLM": "MellumConfig",
    "Lfm3ForCausalLM": "Lfm3Config", "Qwen4ExpForCausalLM": "Qwen4ExpTextConfig",
    "MiMoV2FlashForCausalLM": "MiMoV2FlashConfig", "LongcatFlashForCausalLM": "LongcatFlashConfig",
    "AXK2ForCausalLM": "AXK2Config", "BeamForCausalLM": "BeamConfig", "ZayaForCausalLM": "ZayaConfig",
    "InklingForCausalLM": "InklingTextConfig", "Inkling2ForCausalLM": "Inkling2TextConfig",
    "Glm5NextForConditionalGeneration": "Glm5NextTextConfig", "MistralLarge4ForConditionalGeneration": "MistralLarge4TextConfig",
    "MuseGlimmerForConditionalGeneration": "MuseGlimmerTextConfig", "MuseSparkForConditionalGeneration": "MuseSparkTextConfig",
}
"""Name of the configuration class of each class that is read from published configurations alone."""


def class_configuration(architecture: str, config: Mapping[str, Any]) -> Any:
    """The configuration object of a class of transformers."""
    import transformers

    said = {key: value for key, value in config.items() if key != "architectures"}
    if architecture == "MiniMaxForCausalLM" and "attn_type_list" in said:  # the key of the released code, not of the class
        said["layer_types"] = ["full_attention" if each else "linear_attention" for each in said.pop("attn_type_list")]
    if architecture == "Lfm2MoeForCausalLM":
        said["layer_types"] = ["full_attention" if each == "full_attention" else "conv" for each in said["layer_types"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, CONFIGURATIONS[architecture])(**said)


def class_parameters(architecture: str, config: Mapping[str, Any]) -> int:
    """Trainable parameters of the class on the meta device."""
    import torch
    import transformers

    made = class_configuration(architecture, config)
    if architecture.endswith("ForConditionalGeneration"):  # no class has the language model alone
        made = getattr(transformers, architecture.replace("ForConditionalGeneration", "Config"))(text_config=made.to_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.device("meta"):
            built = getattr(transformers, architecture)(made)
    return language_parameters(built)


_TOWERS = ("embed_tokens_extend.", "vqmodel.")
"""Towers that stand inside of language models: Phi-4-multimodal, Chameleon."""


def language_parameters(built: Any) -> int:
    """Trainable weights of the language model of a class and of its output layer, each once."""
    built = getattr(built, "thinker", built)
    parts = [built]
    if hasattr(built.config, "text_config"):
        parts = [built.get_decoder(), built.get_output_embeddings()]
    weights = {
        id(each): each for part in parts if part is not None for name, each in part.named_parameters()
        if each.requires_grad and not any(tower in name for tower in _TOWERS)
    }
    return sum(each.numel() for each in weights.values()) - _idle(type(built).__name__, built.config)


def _idle(architecture: str, made: Any) -> int:
    """Weights of a class that nothing reads: LongCat's gate and up of experts that pass their input on."""
    if architecture != "LongcatFlashForCausalLM":
        return 0
    return int(made.num_layers * made.zero_expert_num * 2 * made.expert_ffn_hidden_size * made.hidden_size)


def published_parameters_of_class(name: str) -> int | None:
    """The class's count for a catalogued model that holds its published configuration; None where it has no class."""
    config = published_config(name)
    if config is None:
        return None
    architecture = next(iter(config["architectures"]))  # type: ignore[call-overload]
    return class_parameters(architecture, config) if architecture in CONFIGURATIONS else None
