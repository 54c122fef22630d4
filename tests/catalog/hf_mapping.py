"""Every class of transformers' mappings of language models, built on the meta device and read from its configuration."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.catalog.hf_published import language_parameters

from meshwright.errors import InputError
from meshwright.frameworks.accelerate.writing import layer_class
from meshwright.perf.parameters import total_parameters
from meshwright.readers.hf_config import model_from_config, undescribed
from meshwright.readers.safe_yaml import load_yaml

TABLE = Path(__file__).with_name("hf_mapping.yaml")
"""What configurations say beside their defaults (``said``), and which classes cannot be built."""
Outcome = Literal["equal", "unequal", "refused", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one model type: parameters of the language model that its class builds and that are read of its file."""

    kind: str
    outcome: Outcome
    built: int
    read: int | None = None
    words: tuple[str, ...] = ()
    unknown_layers: tuple[str, ...] = ()
    """Names that accelerate's files have for its layers and that no module of the class has."""


@cache
def table() -> Mapping[str, Any]:
    """``hf_mapping.yaml``, with the reason of each model type whose class is not built, or that is not read."""
    data: Any = load_yaml(TABLE)
    unbuilt = {kind: why for why, kinds in data["unbuilt"].items() for kind in kinds}
    return {"said": data["said"], "unbuilt": unbuilt, "unread": undescribed()}


@cache
def classes() -> dict[str, str]:
    """The class of each model type of the mappings of causal and of multi-modal language models."""
    from transformers.models.auto import modeling_auto as auto

    named = {**auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
             **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    return {kind: name if isinstance(name, str) else name[0] for kind, name in sorted(named.items())}


@contextmanager
def _without_values() -> Iterator[None]:
    """Layers are made without initial values, which the meta device has not: asking for them is half the time of a class."""
    from torch import nn

    with pytest.MonkeyPatch.context() as patch:
        for layer in (nn.Linear, nn.Embedding, nn.LayerNorm, nn.Conv1d, nn.Conv2d, nn.Conv3d):
            patch.setattr(layer, "reset_parameters", lambda self: None)
        yield


def build(kind: str, said: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
    """The file of a model type's configuration as transformers writes it, and its class on the meta device.

    ``said``: what it says beside the defaults, in place of the table's.
    """
    import torch
    import transformers

    family = getattr(transformers, classes()[kind])
    own = made = _configuration(kind, said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if family.config_class is not type(made) and family.config_class is type(made.get_text_config()):  # as AutoModel does
            own = made.get_text_config()
        with torch.device("meta"), _without_values():
            built = family(own)
    return _file_of(kind, made), built


def _configuration(kind: str, said: Mapping[str, Any] | None) -> Any:
    from transformers import CONFIG_MAPPING

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CONFIG_MAPPING[kind](**json.loads(json.dumps(table()["said"].get(kind, {}) if said is None else said)))


def _file_of(kind: str, made: Any) -> dict[str, Any]:
    return json.loads(made.to_json_string(use_diff=False)) | {"architectures": [classes()[kind]]}


def refusal(kind: str) -> tuple[str, ...] | None:
    """What is said of a model type's configuration that is not read, one line a message; nothing of one that is.

    No class is built. None where there is no configuration of the defaults.
    """
    try:
        config = _file_of(kind, _configuration(kind, None))
    except Exception:  # whatever transformers says of them
        return None
    try:
        model_from_config(config, where=kind)
    except InputError as error:
        return tuple(map(str, error.messages))
    return ()


def walk(kind: str, said: Mapping[str, Any] | None = None) -> Found:
    """What comes of reading the configuration of a model type."""
    config, built = build(kind, said)
    count = language_parameters(built)
    try:
        model = model_from_config(config, where=kind)
        read = total_parameters(model)
    except InputError as error:
        return Found(kind=kind, outcome="refused", built=count, words=tuple(map(str, error.messages)))
    except Exception as error:  # what must never happen, and what a walk is for
        return Found(kind=kind, outcome="crashed", built=count, words=(repr(error),))
    wanted = (layer_class(model) or "").split(",") if model.architecture == type(built).__name__ else []
    there = {type(module).__name__ for module in built.modules()}
    return Found(
        kind=kind, outcome="equal" if read == count else "unequal", built=count, read=read,
        unknown_layers=tuple(name for name in wanted if name not in there),
    )
