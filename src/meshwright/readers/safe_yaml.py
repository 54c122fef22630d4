"""YAML of strangers: depth and aliases come before anything recursive touches a document, its keys before any value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from meshwright.errors import InputError, fault
from meshwright.readers.safe import MAX_DEPTH, one_line, read_text, refuse_long_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_ALIASES = 200
MAX_NODES = 1_000_000
"""Nodes after aliases are expanded, so that a document of a few lines cannot become gigabytes."""

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""What makes plain values of YAML, in C where PyYAML was built with it."""


Twice = list[tuple[str, int, int]]
"""Keys that stand twice in one place: the key, the line that does not count and the line that does."""


def load_yaml(path: Path | str) -> object:
    """The one document of a YAML file, as plain dictionaries, lists and scalars."""
    return parse_yaml(read_text(path), where=str(path))


def parse_yaml(text: str, where: str = "", *, twice: Twice | None = None) -> object:
    """One YAML document; refuses alias bombs, deep nesting, several documents and language tags.

    Keys that stand twice in one place are refused as well; where ``twice`` is given they are noted there instead, and the last one
    counts, as PyYAML has it.
    """
    refuse_long_numbers(text, where)
    try:
        _check_events(yaml.parse(text, Loader=Loader), where)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_nodes(node, where, twice)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):  # libyaml's own limit: it reads a line ahead before it says what it opened
            raise _too_deep(where) from None
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        reason = one_line(error.problem or error.context or "malformed")
        raise fault("yaml.malformed", "not YAML: {reason}{place}", path=where, reason=reason, place=place) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise fault("yaml.malformed", "not YAML: {reason}", path=where, reason=one_line(str(error))) from None


def _too_deep(where: str) -> InputError:
    return fault("yaml.depth", "nested deeper than {limit} levels", path=where, limit=MAX_DEPTH)


def _check_events(events: Iterable[yaml.Event], where: str) -> None:
    """Depth and number of aliases, before anything recursive touches the document."""
    depth = aliases = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > MAX_ALIASES:
                raise fault("yaml.aliases", "more than {limit} aliases (*name)", path=where, limit=MAX_ALIASES)


def _check_nodes(root: yaml.Node, where: str, twice: Twice | None) -> None:
    """Expanded size, cycles and duplicate keys of a document of bounded depth."""
    sizes: dict[int, int] = {}
    active: set[int] = set()

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in active:
            raise fault("yaml.cycle", "an alias contains itself (line {line})", path=where, line=_line(node))
        active.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, where, twice)
            total = 1 + sum(size(key) + size(value) for key, value in node.value)
        else:
            total = 1 + sum(size(item) for item in node.value)
        active.discard(id(node))
        if total > MAX_NODES:
            raise fault("yaml.bomb", "expands to more than {limit} values", path=where, limit=MAX_NODES)
        sizes[id(node)] = total
        return total

    size(root)


def _check_keys(node: yaml.MappingNode, where: str, twice: Twice | None) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise fault("yaml.key", "a key must be a word (line {line})", path=where, line=_line(key))
        if key.value in seen and twice is not None:
            twice.append((key.value, seen[key.value], _line(key)))
        elif key.value in seen:
            raise fault(
                "yaml.duplicate", "key {key!r} stands twice in one place (line {line})",
                path=where, key=key.value, line=_line(key),
            )
        seen[key.value] = _line(key)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
