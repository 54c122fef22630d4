"""Models that Megatron-Bridge builds from the files of their class (``AutoBridge``), for no field of its GPT provider says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import python
from meshwright.frameworks.hub import hub_name
from meshwright.frameworks.megatron.hybrid import letters_of_a_layer
from meshwright.frameworks.parts import class_of, takes_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.model import Model

RELEASES = ("0.3", "main")
"""0.3: tag v0.3.1; main: 067f987 of 2026-08-22."""


def is_automatic(model: Model, release: str) -> bool:
    """Whether a release builds the model through AutoBridge."""
    return takes_class("bridge", release, RELEASES, model)


def blocks_of(model: Model, release: str) -> int:
    """How many of Bridge's layers each layer is: the blocks of a hybrid's pattern, one of a class that counts whole layers."""
    return 1 if is_automatic(model, release) else letters_of_a_layer(model) or 1


def imports() -> Iterator[str]:
    """What these lines name."""
    yield "from megatron.bridge import AutoBridge"
    yield "from transformers import AutoConfig"


def built(model: Model) -> Iterator[str]:
    """The lines of a program that set ``config.model``: the language model of the hub's file, with as many layers as are planned.

    Of a wrapper whose tower is not planned (Gemma 3 from 4 B on) the text part is taken; with a tower its whole class, the tower
    and what projects its output frozen or trained as planned.
    """
    whole = "" if model.tower is not None else ".get_text_config()"
    yield f"    shape = AutoConfig.from_pretrained({python(hub_name(model))}){whole}"
    yield f"    shape.architectures = [{python(class_of(model))}]"
    yield "    config.model = AutoBridge.from_hf_config(shape).to_megatron_provider(load_weights=False)"
    yield f"    config.model.num_layers = {model.num_layers}"
    if model.tower is not None:
        yield f"    config.model.freeze_vision_model = {not model.tower.trained}"
        yield f"    config.model.freeze_vision_projection = {not model.tower.trained}"
