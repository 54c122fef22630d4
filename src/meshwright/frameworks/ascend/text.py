"""YAML as people write it: sections as blocks, lists on one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshwright.documents.tree import flow_words


def yaml_text(document: Mapping[str, object]) -> str:
    """A document; empty sections stand as ``{}``."""
    return "\n".join(_lines(document, 0)) + "\n"


def nested(settings: Mapping[str, object]) -> dict[str, object]:
    """``{a: {b: value}}`` for ``{"a.b": value}``."""
    document: dict[str, object] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        section = document
        for part in path:
            section = section.setdefault(part, {})  # type: ignore[assignment]
        section[name] = value
    return document


def _lines(section: Mapping[str, object], depth: int) -> Iterator[str]:
    """The lines of a section."""
    for key, value in section.items():
        head = f"{'  ' * depth}{flow_words(key)}:"
        if isinstance(value, Mapping) and value:
            yield head
            yield from _lines(value, depth + 1)
        else:
            yield f"{head} {flow_words(value)}"
