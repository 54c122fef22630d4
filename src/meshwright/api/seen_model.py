"""The model that a framework's files, or a log's dump of its arguments, describe by figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from meshwright.domain.model import Model
    from meshwright.frameworks.settings import Reading

CONFIG = "model_config"
"""Settings that are a configuration as Hugging Face's Transformers print it."""
NOTHING: Mapping[str, str] = MappingProxyType({})
NAME = "of the log"
"""What a model is called that nobody named."""
FILES_NAME = "of the files"
"""The same, where a framework's files describe it."""


_NEEDED: Mapping[str, tuple[str, ...]] = {
    "the layers": ("layers",), "the hidden size": ("hidden",), "the heads": ("heads",),
    "the width of the feed-forward blocks": ("ffn", "expert_ffn"), "the vocabulary": ("vocabulary",),
}
"""What no model can be without -> the figures that say it."""


def model_of_files(reading: Reading) -> tuple[Model | None, tuple[Message, ...]]:
    """The model that a framework's files describe by figures alone, and in words which; or None, and why."""
    from meshwright.perf.parameters import total_parameters
    from meshwright.words import count

    model, why = model_said(reading, source="files")
    if model is None:  # of files without figures, or with those of several models, enough is said elsewhere
        figures = reading.said.figures
        return None, tuple(each for each in why if each.id != "diagnose.models" and {"layers", "hidden"} <= set(figures))
    if model.name != NAME:
        return model, (Message("import.model-known", "no model is named: the figures are those of {name}", {"name": model.name}),)
    built_of = Message("import.model-built", "no model is named: it is built of the files' own figures, {parameters} parameters",
                       {"parameters": count(total_parameters(model))})
    return replace(model, name=FILES_NAME), (built_of,)


def model_said(
    reading: Reading, settings: Mapping[str, str] = NOTHING, file: str = "", source: str = "log"
) -> tuple[Model | None, tuple[Message, ...]]:
    """The model whose configuration the log prints, else the catalogue's with exactly the figures, else one that is built of them;
    or None, and why.

    Of several models of the catalogue the first stands for all where they differ in nothing but names; where they differ, or the
    log has no vocabulary, and no model can be built of the figures either, their names are said.
    """
    from meshwright.catalog import load_model
    from meshwright.check.figures import figures_of, likely_models
    from meshwright.readers.hf_config import model_from_config
    from meshwright.readers.logs.config_dump import document_of

    if (config := document_of(settings, CONFIG)) is not None:
        try:
            return model_from_config(config, where=file, name=NAME), ()
        except InputError as error:
            return None, error.messages
    names = likely_models(reading)
    if "vocabulary" in reading.said.figures and names and len({repr(figures_of(load_model(name))) for name in names}) == 1:
        known = Message("diagnose.model-known", "the figures of the {source} are those of {names}",
                        {"source": source, "names": " and of ".join(names)})
        return load_model(names[0]), (known,)
    found = built(reading, source)
    if not names or not isinstance(found, Message):
        return (None, (found,)) if isinstance(found, Message) else (found, ())
    message = Message(
        "diagnose.models", "the figures are those of {names}: --model says that it is", {"names": " or ".join(names)}
    )
    return None, (message,)


def built(reading: Reading, source: str = "log") -> Model | Message:
    """A model with the figures, or what they lack: nothing that they do not say is made up.

    Latent attention has widths that no figure has. Layers are dense first and mixtures behind them, shared experts as wide as the
    routed ones: what is otherwise is refused.
    """
    from meshwright.evidence.rows.refused import UnreadableError
    from meshwright.evidence.rows.row import Row, Shape
    from meshwright.evidence.rows.row_model import model_of
    from meshwright.evidence.rows.said import Said

    figures: Mapping[str, Any] = reading.said.figures
    heads, groups = figures.get("heads"), figures.get("key_value_heads")
    mixtures, width = figures.get("mixtures", ()), figures.get("expert_ffn")
    if lacking := [words for words, names in _NEEDED.items() if not any(figures.get(name) for name in names)]:
        template = "the figures of the {source} lack {what}: --model names the model"
        return Message("diagnose.model", template, {"source": source, "what": " and ".join(lacking)})
    if (strange := _strange(figures, source)) is not None:
        return strange
    shape = Shape(
        attention="mha" if heads == groups else "gqa", gated=figures["gated"], num_layers=figures.get("layers"),
        hidden=figures.get("hidden"), num_heads=heads, num_key_value_heads=groups, head_dim=figures.get("head_dim"),
        ffn_width=figures.get("ffn", width), vocabulary=figures.get("vocabulary"), num_experts=figures.get("experts") or None,
        experts_per_token=figures.get("experts_per_token"), expert_width=width,
        num_shared_experts=figures.get("shared_ffn", 0) // width if width else None,
        num_dense_layers=mixtures.index(True) if True in mixtures else None,
    )
    passes = figures.get("mtp_layers") or 0
    said = Said(tied_embeddings=figures.get("tied_embeddings"), mtp_layers=min(passes, 1) if figures.get("mtp_shared") else passes)
    try:
        model = model_of(Row(model=NAME, shape=shape, sequence_tokens=reading.said.sequence_tokens, said=said))
    except UnreadableError as refused:
        why = refused.detail
    except InputError as error:
        why = "; ".join(each.words for each in error.messages)
    else:
        return replace(model, num_mtp_passes=passes)
    return Message("diagnose.model", "the figures of the {source} make no model: {why}", {"source": source, "why": why})


def _strange(figures: Mapping[str, Any], source: str) -> Message | None:
    """What a model of figures alone would get wrong."""
    experts, mixtures = figures.get("experts"), figures.get("mixtures", ())
    shared, width = figures.get("shared_ffn") or 0, figures.get("expert_ffn") or 0
    first = mixtures.index(True) if True in mixtures else 0
    reasons = {
        "latent attention, whose widths no figure has": figures.get("latent_attention"),
        "attention to a window": figures.get("windowed"),
        "layers of Mamba or of single blocks": figures.get("blocks"),
        "nothing of whether its feed-forward blocks are gated": "gated" not in figures,
        "mixtures that are not all behind the dense layers": experts and not all(mixtures[first:]),
        "no word of which layers are mixtures": experts and not mixtures,
        "shared experts of another width than the routed ones": experts and shared and (not width or shared % width),
    }
    found = [words for words, holds in reasons.items() if holds]
    if not found:
        return None
    template = "the figures of the {source} have {what}: --model names the model"
    return Message("diagnose.model", template, {"source": source, "what": ", ".join(found)})
