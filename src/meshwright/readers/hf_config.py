"""A Hugging Face ``config.json`` becomes a model; every fault of the file is reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from meshwright.errors import InputError, Message, did_you_mean
from meshwright.readers.architectures import architectures
from meshwright.readers.architectures.parts import classes_of
from meshwright.readers.architectures.positions import with_rotary
from meshwright.readers.fields import Fields
from meshwright.readers.limits import refuse_giants
from meshwright.readers.names import require_name
from meshwright.readers.safe import load_json, require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.towers import tower_of
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.model import Model


def read_config(path: Path | str) -> Model:
    """The model that a ``config.json`` describes; the name is the configuration's own or its folder's."""
    path = Path(path)
    config = require_mapping(load_json(path, unknown=True), str(path))
    fallback = path.resolve().parent.name if path.name == "config.json" else path.stem
    return model_from_config(config, where=str(path), name=fallback)


_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps")
"""What families call the number that their norms add."""


def model_from_config(config: Mapping[str, object], *, where: str, name: str = "model") -> Model:
    """The model that a configuration describes; of a multi-modal wrapper the text part, and the source says so."""
    fields = Fields(config, where)
    _check_names(fields)
    key = _architecture(fields)
    note = ""
    beside: tuple[str, ...] = ()
    if key is None and isinstance(config.get("thinker_config"), Mapping):  # Qwen-Omni: what speaks stands beside what thinks
        fields = fields.inner("thinker_config")
        config = {**fields.data, "architectures": config.get("architectures")}
        key = _architecture(fields)
    if config.get("is_encoder_decoder") is True:
        raise InputError([*fields.faults, Message(
            "config.encoder-decoder", "{name} is an encoder and a decoder: only models of one stack of layers are known here",
            {"name": shown(next(iter(_names(config)), "this"))}, where,
        )])
    _check_tower(fields)
    wrapper: Fields | None = None
    if key is None and (flat := _flat_text(config)) is not None:
        wrapper, key = fields, flat
        note, beside = f", text part of {_shown_name(config)} only", tuple(_towers(wrapper))
    if isinstance(config.get("text_config"), Mapping) and (key is None or not fields.has("num_hidden_layers")):
        wrapper, fields = fields, fields.inner("text_config")
        note, beside = f", text part of {_shown_name(config)} only", tuple(_towers(wrapper))
        if not fields.has("tie_word_embeddings") and wrapper.has("tie_word_embeddings"):
            fields.data = {**fields.data, "tie_word_embeddings": wrapper.data["tie_word_embeddings"]}
        key = _architecture(fields) or key
    if key is None:
        raise InputError([*fields.faults, _unknown(fields, config)])
    if wrapper is not None and str(config.get("model_type")) in undescribed():  # its text part alone is another model
        raise InputError([*fields.faults, _unknown(wrapper, config)])
    _check_experts(fields)
    try:
        model = with_rotary(architectures[key](fields), fields, key)
        model = replace(model, norm_epsilon=fields.number(*_EPSILONS, default=0.0) or None)
        if wrapper is not None and not fields.faults:
            vision = tower_of(wrapper, model.hidden, next(iter(_names(config)), ""))
            fields.faults += [each for each in wrapper.faults if each not in fields.faults]
            model = replace(model, vision=vision)
    except InputError as error:
        raise InputError(fields.faults or [replace(message, path=where) for message in error.messages]) from None
    if fields.faults:
        raise InputError(fields.faults)
    own_name = config.get("_name_or_path")
    if not isinstance(own_name, str) or not own_name:
        own_name = require_name(name, f"{where}: the name of its folder")
    refuse_giants(model, where)
    return replace(
        model,
        name=own_name,
        architecture=_class_name(fields, key),
        source=f"{where}{note}", beside=beside,
    )


def _flat_text(config: Mapping[str, object]) -> str | None:
    """The registered name of the language model of a wrapper that has its keys beside ``vision_config`` (Qwen2.5-VL)."""
    kind = config.get("model_type")
    if isinstance(config.get("text_config"), Mapping) or config.get("vision_config") is None or not isinstance(kind, str):
        return None
    return f"{kind}_text" if f"{kind}_text" in architectures else None


def _architecture(fields: Fields) -> str | None:
    """The registered name of a configuration: its class first, then its model type."""
    return next((name for name in _names(fields.data) if name in architectures), None)


def _names(config: Mapping[str, object]) -> list[str]:
    classes = config.get("architectures")
    listed = classes if isinstance(classes, list) else []
    return [name for name in (*listed, config.get("model_type")) if isinstance(name, str)]


def _check_names(fields: Fields) -> None:
    """Remember the names of a configuration, and of the text part of a wrapper, that are none."""
    for key in ("_name_or_path", "model_type"):
        fields.check_name(key, fields.data.get(key))
    classes = fields.data.get("architectures")
    for place, name in enumerate(classes if isinstance(classes, list) else []):
        fields.check_name(f"architectures[{place}]", name)
    if isinstance(fields.data.get("text_config"), Mapping):
        _check_names(fields.inner("text_config"))


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""What families call the number of routed experts."""
_TOWERS = ("vision_config", "audio_config")
_SIZES = (("depth", "num_hidden_layers", "layers", "encoder_layers"), ("embed_dim", "hidden_size", "width", "d_model"))
_TOWER = (
    "depth", "num_hidden_layers", "hidden_size", "layers", "width", "embed_dim", "encoder_layers", "d_model", "text_hidden_size",
    "encoder_config", "asr_config",
)
"""Keys one of which every tower's description has; the last ones those of audio, and of towers of several parts."""


def _check_experts(fields: Fields) -> None:
    """Remember numbers of experts that contradict each other; a number on its own is the reader's business."""
    said = {name: fields.data[name] for name in _EXPERTS if fields.has(name)}
    if len(set(map(str, said.values()))) > 1:
        told = " and ".join(f"{name}={shown(value)}" for name, value in said.items())
        fields.fault(next(iter(said)), "config.contradiction", "{told} contradict each other", told=told)


def _check_tower(fields: Fields) -> None:
    """Remember a tower in front of the language model of which nothing is said."""
    for name in _TOWERS:
        if not fields.has(name):
            continue
        tower = fields.inner(name)
        if not any(tower.has(key) for key in _TOWER):
            fields.fault(
                name, "config.tower",
                "says nothing of its tower ({known}); without the key the language model is planned alone, and a tower that is "
                "trained is described in YAML by its size (tower: docs/adding-a-model.md)", known=" or ".join(_TOWER[:3]),
            )


def _towers(fields: Fields) -> Iterator[str]:
    """Towers of a multi-modal wrapper, which are not read: the key, and how many layers of which width it has, where it says so."""
    for name in _TOWERS:
        if fields.has(name):
            tower = fields.inner(name).data
            layers, width = (next((each for key in keys if isinstance(each := tower.get(key), int)), None) for keys in _SIZES)
            yield f"{name} ({layers} layers of {width:,})" if layers is not None and width is not None else name


def _class_name(fields: Fields, key: str) -> str:
    """The class that reads this text part, where the configuration or the registry names one."""
    if key[:1].isupper():
        return key
    classes = classes_of(key)
    own = f"{key.removesuffix('_text').replace('_', '').replace('-', '')}for"
    usual = classes[0] if classes else key
    return next((name for name in classes if name.lower().replace("_", "").startswith(own)), usual)


def _shown_name(config: Mapping[str, object]) -> str:
    names = _names(config)
    return names[0] if names else "a wrapper"


def _unknown(fields: Fields, config: Mapping[str, object]) -> Message:
    names = _names(fields.data) or _names(config)
    known = [name for name in architectures if name[:1].isupper()]
    if not names:
        given = shown(fields.data.get("architectures", fields.data.get("model_type")))
        return Message(
            "config.architecture", "names no architecture (architectures or model_type is {given}); known: {known}",
            {"given": given, "known": known}, fields.path,
        )
    why = next((why for each in (fields.data, config) if (why := undescribed().get(str(each.get("model_type"))))), None)
    if why is not None:
        return Message(
            "config.undescribed", "architecture {name} is not described: {why}; what is like it can be described in YAML "
            "(docs/adding-a-model.md)", {"name": shown(names[0]), "why": why}, fields.path,
        )
    return Message(
        "config.architecture",
        "architecture {name} is not described{hint}{near}; or describe it in YAML (docs/adding-a-model.md); known: {known}",
        {"name": shown(names[0]), "hint": did_you_mean(names[0], architectures), "near": _by_keys(fields.data), "known": known},
        fields.path,
    )


@cache
def undescribed() -> Mapping[str, str]:
    """Why no reader is for model types of transformers that have none (``undescribed.yaml``)."""
    listed = cast("Mapping[str, list[str]]", load_shipped(Path(__file__).with_name("undescribed.yaml")))
    return {kind: why for why, kinds in listed.items() for kind in kinds}


_SIGNS = (
    (("index_topk", "compress_ratios"), "DeepseekV4ForCausalLM"), (("index_topk", "kv_lora_rank"), "DeepseekV32ForCausalLM"),
    (("hybrid_override_pattern",), "NemotronHForCausalLM"), (("linear_attn_config",), "KimiLinearForCausalLM"),
    (("linear_num_value_heads", "num_experts"), "Qwen3NextForCausalLM"), (("linear_num_value_heads",), "Qwen3_5ForCausalLM"),
    (("attn_type_list",), "MiniMaxForCausalLM"), (("mamba_d_ssm",), "FalconH1ForCausalLM"),
    (("mamba_n_heads", "shared_intermediate_size"), "GraniteMoeHybridForCausalLM"), (("mamba_n_heads",), "BambaForCausalLM"),
    (("mamba_dt_rank",), "JambaForCausalLM"), (("altup_num_inputs",), "Gemma3nForCausalLM"),
    (("hidden_size_per_layer_input",), "Gemma4ForCausalLM"), (("conv_L_cache",), "Lfm2ForCausalLM"),
    (("kv_lora_rank", "n_routed_experts"), "DeepseekV3ForCausalLM"), (("kv_lora_rank",), "DeepseekV3ForCausalLM"),
    (("shared_expert_intermediate_size",), "Qwen2MoeForCausalLM"), (("num_local_experts",), "MixtralForCausalLM"),
    (("num_experts", "moe_intermediate_size"), "Qwen3MoeForCausalLM"),
    (("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), "LlamaForCausalLM"),
)
"""Keys that a family alone has, in the order in which they are looked for, and its class."""


def _by_keys(data: Mapping[str, object]) -> str:
    """The class whose keys a configuration of an unknown one has, and how to read it so; empty where no keys are telling."""
    near = next((name for keys, name in _SIGNS if all(data.get(key) is not None for key in keys)), None)
    return "" if near is None else f"; by its keys it is nearest to {near}: write that under architectures to read it so"
