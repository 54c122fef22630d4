"""A Hugging Face ``config.json`` becomes a model; every fault of the file is reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, did_you_mean
from meshwright.readers.architectures import architectures
from meshwright.readers.architectures.positions import with_rotary
from meshwright.readers.fields import Fields
from meshwright.readers.limits import refuse_giants
from meshwright.readers.names import require_name
from meshwright.readers.safe import load_json, require_mapping
from meshwright.text import shown

if TYPE_CHECKING:
    from meshwright.domain.model import Model


def read_config(path: Path | str) -> Model:
    """The model that a ``config.json`` describes; the name is the configuration's own or its folder's."""
    path = Path(path)
    config = require_mapping(load_json(path), str(path))
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
    if config.get("is_encoder_decoder") is True:
        raise InputError([*fields.faults, Message(
            "config.encoder-decoder", "{name} is an encoder and a decoder: only models of one stack of layers are known here",
            {"name": shown(next(iter(_names(config)), "this"))}, where,
        )])
    if key is None and isinstance(config.get("text_config"), Mapping):
        wrapper, fields = fields, fields.inner("text_config")
        note = f", text part of {_shown_name(config)} only"
        if not fields.has("tie_word_embeddings") and wrapper.has("tie_word_embeddings"):
            fields.data = {**fields.data, "tie_word_embeddings": wrapper.data["tie_word_embeddings"]}
        key = _architecture(fields)
    if key is None:
        raise InputError([*fields.faults, _unknown(fields, config)])
    try:
        model = with_rotary(architectures[key](fields), fields, key)
        model = replace(model, norm_epsilon=fields.number(*_EPSILONS, default=0.0) or None)
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
        source=f"{where}{note}",
    )


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


def _class_name(fields: Fields, key: str) -> str:
    """The class that reads this text part, where the configuration or the registry names one."""
    if key[:1].isupper():
        return key
    function = architectures[key]
    return next((name for name in architectures if name[:1].isupper() and architectures[name] is function), key)


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
    return Message(
        "config.architecture", "architecture {name} is not described{hint}; known: {known}",
        {"name": shown(names[0]), "hint": did_you_mean(names[0], architectures), "known": known}, fields.path,
    )
