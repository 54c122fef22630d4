"""JSON of ``reading``: the document of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import layout_view
from meshwright.api.views.findings import simple
from meshwright.check import likely_models
from meshwright.check.messages import placed

if TYPE_CHECKING:


    from meshwright.errors import Message
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading


_SAID = {
    "devices": "devices", "global_batch_sequences": "sequences a step", "sequence_tokens": "tokens of a sequence",
    "precision": "precision", "gradient_dtype": "gradients in", "optimizer": "optimizer", "task": "task",
    "launch": "launched with",
}


def reading_view(framework: Framework, reading: Reading, why: str, label: str | None) -> dict[str, Any]:
    """``import --json``."""
    layout, source = reading.layout, reading.source
    groups = own_keys(framework, reading)
    return {
        "framework": framework.name, "version": reading.version, "version_source": why,
        "label": label,
        "layout": None if layout is None else layout_view(layout),
        "said": {name: simple(getattr(reading.said, name)) for name in _SAID} | {"figures": simple(reading.said.figures)},
        "likely_models": list(likely_models(reading)),
        "launch": {"nodes": source.nodes, "devices_per_node": source.devices_per_node, "program": source.program},
        "messages": [_message_view(each) for each in unmapped(reading)],
        "remarks": [_message_view(each) for each in remarks(reading)],
        "own_keys": {"count": sum(map(len, groups.values())), "groups": {name: list(keys) for name, keys in groups.items()}},
    }


def unmapped(reading: Reading) -> tuple[Message, ...]:
    """What could not be mapped, without what the files' own language already left open."""
    known = {str(each) for each in reading.source.remarks}
    return tuple(placed(each) for each in reading.messages if str(each) not in known)


def remarks(reading: Reading) -> tuple[Message, ...]:
    """What the files' own language leaves open, at its line."""
    return tuple(placed(each) for each in reading.source.remarks)


def _message_view(message: Message) -> dict[str, Any]:
    """One message with its place."""
    return {"id": message.id, "message": str(message), "place": message.path}


def own_keys(framework: Framework, reading: Reading) -> Mapping[str, tuple[str, ...]]:
    """Keys that express no layout and stay as they are, by section; flags together, unknown ones apart."""
    surface = framework.surface() if framework.surface is not None else None
    knobs = surface.knobs() if surface is not None else {}
    groups: dict[str, list[str]] = {}
    for key in reading.source.settings:
        if key in knobs:
            continue
        known = surface is None or surface.find(key, reading.version) is not None or surface.inside(key, reading.version)
        section = "flags" if key.startswith("-") else key.partition(".")[0] if "." in key else "top level"
        groups.setdefault(section if known else "unknown to the framework", []).append(key)
    return {name: tuple(keys) for name, keys in groups.items()}
