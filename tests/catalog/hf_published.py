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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.device("meta"):
            built = getattr(transformers, architecture)(made)
    return sum(each.numel() for each in built.parameters() if each.requires_grad) - idle_weights(architecture, made)


def idle_weights(architecture: str, made: Any) -> int:
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
