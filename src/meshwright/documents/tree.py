"""YAML and JSON in place: values are spliced into the text where the parser says that they stand.

A dumper would rewrite quotes, indentation and line breaks; here every byte that is no changed value stays. Mappings are
flattened to dotted keys (``parallelism.tp``); lists are values. A key that itself holds a dot makes its mapping a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

import yaml

from meshwright.documents.quoting import flow, yaml_scalar
from meshwright.documents.source import NOTHING, Setting
from meshwright.errors import InputError, fault
from meshwright.readers.safe import parse_json, require_mapping
from meshwright.readers.safe_yaml import Twice, parse_yaml
from meshwright.value import Value

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+[ \t]+")
_ODD = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What may stand in a string of JSON, but in none of YAML or as a line break there."""
_SURROGATE = re.compile(r"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class TreeDocument(Value, frozen=True, kw_only=True):
    """A YAML or JSON file."""

    path: str
    text: str
    values: Mapping[str, object]
    """The document as plain values."""
    is_json: bool = False
    blanked: str = ""
    """The text with blanks for its ``//`` comments, where it has any."""
    followers: frozenset[str] = frozenset()
    """Keys that may change together with the one that they are an alias of."""

    def settings(self) -> Mapping[str, Setting]:
        """Leaves by dotted key, with their lines (0: a JSON that YAML cannot place)."""
        root = self._root()
        if root is None:
            return {key: Setting(key=key, value=value, file=self.path) for key, value in _flat(self.values)}
        return {
            key: Setting(key=key, value=value, file=self.path, line=node.start_mark.line + 1)
            for key, value, node in _leaves(self.values, root)
        }

    def changed(self, edits: Mapping[str, object]) -> str:
        """The text with the edits; keys are set one after the other, so that each sees the text before it.

        Errors: ``InputError`` also where an alias or a merge would change another key with it.
        """
        if "\r\n" in self.text and self.text.count("\n") == self.text.count("\r\n"):
            return self._again(self.text.replace("\r\n", "\n")).changed(edits).replace("\n", "\r\n")
        document, may_change = self, self.followers | set(edits)
        for key, value in edits.items():
            there = document.settings().get(key)
            if value is not None and there is not None and there.value == value and type(there.value) is type(value):
                continue  # it has followed an alias
            text = document._removed(key) if value is None else document._set(key.split("."), value)
            before, document = document, self._again(text)
            before._require_same_beside(key, document, may_change, gone=value is None)
        return document.text

    def _again(self, text: str) -> TreeDocument:
        """Another text read in the same way."""
        if self.blanked:
            return parse_json_with_comments(text, path=self.path)[0]
        return replace(parse_tree(text, path=self.path, is_json=self.is_json), followers=self.followers)

    def _require_same_beside(self, key: str, after: TreeDocument, may_change: Set[str], *, gone: bool) -> None:
        """Refuses a change by which another key than this one has changed, or by which it is still there."""
        old, new = (
            {name: setting.value for name, setting in each.settings().items()
             if not _related(name, key) and not any(_related(name, other) for other in may_change)}
            for each in (self, after)
        )
        other = next((name for name in (*old, *new) if name not in old or name not in new or old[name] != new[name]), None)
        if other is None and gone and any(name == key or name.startswith(f"{key}.") for name in after.settings()):
            other = key
        if other is not None:
            raise fault("edit.alias", "{key} shares its value with {other} through an alias or a merge: write it out first",
                        path=self.path, key=key, other=other)

    def _root(self) -> yaml.MappingNode | None:
        """The syntax tree; of JSON, what YAML would not take is exchanged so that every position stays."""
        if not self.is_json:
            node = yaml.compose(self.text, Loader=_Loader)
            return node if isinstance(node, yaml.MappingNode) else None
        plain = _ODD.sub(lambda found: " " if found[0] == "\t" else "x", self.blanked or self.text)
        plain = _SURROGATE.sub(lambda found: found[1] + "x" * (len(found[0]) - len(found[1])), plain)
        try:
            node = yaml.compose(plain, Loader=_Loader)
        except (yaml.YAMLError, RecursionError):
            return None
        return node if isinstance(node, yaml.MappingNode) else None

    def _set(self, keys: list[str], value: object) -> str:
        """The text with one key set, added where it is missing."""
        value = None if value is NOTHING else value
        node, depth = self._deepest(keys)
        if node is None and self.values:
            raise fault("edit.json", "{key} cannot be set in place: the file is written in a way that hides where values stand",
                        path=self.path, key=".".join(keys))
        if node is None:
            body = _block(keys, value, 0)
            return json.dumps(_nested(keys, value), indent=2) + "\n" if self.is_json else _joined(self.text, body)
        if depth == len(keys):
            pair = _pair(node, keys[-1])
            assert pair is not None, "the walk ends at a key that is there"
            return self._replaced(pair, self._words(value))
        return self._added(node, keys[depth:], value)

    def _deepest(self, keys: list[str]) -> tuple[yaml.MappingNode | None, int]:
        """The mapping that holds the key, or the nearest one above it, and how many keys of the path exist."""
        node = self._root()
        if node is None:
            return None, 0
        for depth, key in enumerate(keys):
            pair = _pair(node, key)
            if pair is None:
                return node, depth
            if depth == len(keys) - 1:
                return node, len(keys)
            below = pair[1]
            if _is_alias(pair):
                raise fault("edit.alias", "{key} comes through an alias of line {line}: write it out before {whole} is set in it",
                            path=self.path, key=".".join(keys[: depth + 1]), line=below.start_mark.line + 1,
                            whole=".".join(keys))
            if isinstance(below, yaml.MappingNode):
                node = below
                continue
            if isinstance(below, yaml.ScalarNode) and below.value in {"", "null", "~"}:
                return node, depth  # an empty section: written anew below its own key
            raise fault(
                "edit.section", "{key} is no section (line {line}), so {whole} cannot be set in it",
                path=self.path, key=".".join(keys[: depth + 1]), line=below.start_mark.line + 1, whole=".".join(keys),
            )
        return node, len(keys)

    def _replaced(self, pair: tuple[yaml.Node, yaml.Node], words: str) -> str:
        """The text with another value of a key."""
        name, node = pair
        behind = name.end_mark.index
        if _is_alias(pair):
            found = re.compile(r"(\s*:\s*)\*[^\s,\]}]+").match(self.text, behind)
            assert found is not None, "an alias stands behind its key"
            return self.text[: found.end(1)] + words + self.text[found.end() :]
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.start_mark.line > name.end_mark.line:
            colon = self.text.index(":", behind) + 1  # a block below its key: the words go behind the key
            start = self.text.rfind("\n", 0, node.start_mark.index) + 1
            end = self._end_of_line(_content_end(self.text, node))
            return self.text[:colon] + f" {words}" + self.text[colon:start] + self.text[end:]
        return self._spliced(node, words)

    def _spliced(self, node: yaml.Node, words: str) -> str:
        """The text with a node's own characters exchanged."""
        start, end = node.start_mark.index, node.end_mark.index
        while end > start and self.text[end - 1].isspace():
            end -= 1  # the mark of a block stands behind the blank lines after it
        if anchor := _ANCHOR.match(self.text, start, end):
            start = anchor.end()  # aliases of it follow
        gap = " " if start and self.text[start - 1] == ":" else ""
        return self.text[:start] + gap + words + self.text[end:]

    def _added(self, node: yaml.MappingNode, keys: list[str], value: object) -> str:
        """The text with a new key at the end of a mapping, in the mapping's own style."""
        pair = _pair(node, keys[0])
        if pair is not None:  # an empty section
            return self._spliced(pair[1], self._words(_nested(keys[1:], value)))
        if node.flow_style or self.is_json:
            return self._added_flow(node, keys, value)
        indent = node.value[0][0].start_mark.column if node.value else node.start_mark.column
        last = node.value[-1][1] if node.value else node
        end = self._end_of_line(max(node.value[-1][0].end_mark.index, _content_end(self.text, last)))
        block = _block(keys, value, indent)
        before, after = self.text[:end], self.text[end:]
        return before + ("" if before.endswith("\n") or not before else "\n") + block + after

    def _end_of_line(self, index: int) -> int:
        """Behind the line break that ends the line of an index."""
        found = self.text.find("\n", index)
        return len(self.text) if found < 0 else found + 1

    def _added_flow(self, node: yaml.MappingNode, keys: list[str], value: object) -> str:
        """A new member of ``{...}``: on a line of its own where the others are."""
        words = f"{self._key(keys[0])}: {self._words(_nested(keys[1:], value))}"
        if not node.value:
            inner = self.text[node.start_mark.index + 1 : node.end_mark.index - 1]
            return self.text[: node.start_mark.index + 1] + words + inner.strip() + self.text[node.end_mark.index - 1 :]
        first, last = node.value[0], node.value[-1]
        end = _content_end(self.text, last[1])
        own_line = first[0].start_mark.line > node.start_mark.line
        gap = "\n" + " " * first[0].start_mark.column if own_line else " "
        if own_line:
            line_start = self.text.rfind("\n", 0, first[0].start_mark.index) + 1
            gap = "\n" + self.text[line_start : first[0].start_mark.index]
            behind = self.text.find("\n", end)
            if self.blanked and behind >= 0 and not self.blanked[end:behind].strip():  # a comment stays with its value
                return self.text[:end] + "," + self.text[end:behind] + gap + words + self.text[behind:]
        return self.text[:end] + "," + gap + words + self.text[end:]

    def _removed(self, key: str) -> str:
        """The text without a key: its whole line where it stands alone; an absent key changes nothing."""
        keys = key.split(".")
        node, depth = self._deepest(keys)
        if node is None or depth < len(keys):
            return self.text
        index = next(i for i, (name, _) in enumerate(node.value) if name.value == keys[-1])
        name, value = node.value[index]
        if self.blanked and (cut := self._line_cut(node, index)) is not None:
            return cut
        if node.flow_style or self.is_json:
            start, end = name.start_mark.index, _content_end(self.text, value)
            if index + 1 < len(node.value):
                end = node.value[index + 1][0].start_mark.index
            elif index:
                start = _content_end(self.text, node.value[index - 1][1])
            return self.text[:start] + self.text[end:]
        if len(node.value) == 1:
            first, last = name.start_mark.index, _content_end(self.text, value)
            return self.text[:first] + ("{}" if len(keys) > 1 else "") + self.text[last:]
        start = self.text.rfind("\n", 0, name.start_mark.index) + 1
        return self.text[:start] + self.text[self._end_of_line(_content_end(self.text, value)) :]

    def _line_cut(self, node: yaml.MappingNode, index: int) -> str | None:
        """The text without the lines of a member, so that comments on other lines stay; None where it shares its line."""
        name, value = node.value[index]
        end = _content_end(self.text, value)
        start = self.blanked.rfind("\n", 0, name.start_mark.index) + 1
        last = self._end_of_line(end)
        if self.blanked[start : name.start_mark.index].strip() or self.blanked[end:last].strip() not in {"", ","}:
            return None
        if index + 1 < len(node.value) or not index:
            return self.text[:start] + self.text[last:]
        comma = self.blanked.index(",", _content_end(self.text, node.value[index - 1][1]))
        return self.text[:comma] + self.text[comma + 1 : start] + self.text[last:]

    def _key(self, key: str) -> str:
        """A key as the language writes it."""
        return json.dumps(key) if self.is_json else yaml_scalar(key)

    def _words(self, value: object) -> str:
        """A value as the language writes it, on one line."""
        return json.dumps(value) if self.is_json else flow(value)


def parse_tree(text: str, *, path: str = "", is_json: bool = False, twice: Twice | None = None) -> TreeDocument:
    """A YAML or JSON document, parsed strictly (``readers.safe``); of a key of YAML that stands twice the last one counts, and
    ``twice`` takes note of it.
    """
    document = parse_json(text, where=path) if is_json else parse_yaml(text, where=path, twice=[] if twice is None else twice)
    values = {} if document is None else require_mapping(document, path)
    return TreeDocument(path=path, text=text, values=values, is_json=is_json)


def parse_json_with_comments(text: str, *, path: str = "") -> tuple[TreeDocument, int | None]:
    """A JSON document whose ``//`` comments are taken for blanks, and the first line that has one (None: it is JSON).

    Comments are no JSON, and a framework refuses them; reading on all the same shows what else is wrong. Where a
    comment has swallowed the line break behind it, it ends where the next key or closing brace begins.
    """
    try:
        return parse_tree(text, path=path, is_json=True), None
    except InputError as error:
        found = _comment(text)
        if found is None:
            raise
        for pattern in (r"[^\n]*", r"[^\n\"{}\[\]]*"):
            blank = _without_comments(text, re.compile("//" + pattern))
            try:
                tree = replace(parse_tree(blank, path=path, is_json=True), text=text, blanked=blank)
                return tree, text.count("\n", 0, found) + 1
            except InputError:
                continue
        raise error from None


def _comment(text: str) -> int | None:
    """Where the first ``//`` outside a string stands."""
    outside = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda found: " " * len(found[0]), text)
    place = outside.find("//")
    return None if place < 0 else place


def _without_comments(text: str, comment: re.Pattern[str]) -> str:
    """The text with comments outside strings as blanks, so that positions stay."""
    token = re.compile(rf'"(?:[^"\\\n]|\\.)*"|{comment.pattern}')
    return token.sub(lambda found: found[0] if found[0].startswith('"') else " " * len(found[0]), text)


def _related(name: str, key: str) -> bool:
    """Whether one of two dotted keys holds the other."""
    return name == key or name.startswith(f"{key}.") or key.startswith(f"{name}.")


def _is_alias(pair: tuple[yaml.Node, yaml.Node]) -> bool:
    """Whether a key's value is an alias: its node stands at the anchor, before the key."""
    return bool(pair[1].start_mark.index < pair[0].end_mark.index)


def _nested(keys: list[str], value: object) -> Any:
    """``a: {b: value}`` for a path of keys."""
    for key in reversed(keys):
        value = {key: value}
    return value


def _block(keys: list[str], value: object, indent: int) -> str:
    """Lines of YAML for a path of keys."""
    lines = [f"{' ' * (indent + 2 * depth)}{yaml_scalar(key)}:" for depth, key in enumerate(keys)]
    return "\n".join(lines) + f" {flow(value)}\n"


def _joined(text: str, body: str) -> str:
    """A body behind what a file without values holds (comments)."""
    return text + ("" if not text or text.endswith("\n") else "\n") + body


def _pair(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value nodes of a key; the last ones, which count where it stands twice."""
    return next((pair for pair in reversed(node.value) if pair[0].value == key), None)


def _content_end(text: str, node: yaml.Node) -> int:
    """Behind the last character of a node that is no blank: the mark of a block stands behind the lines after it."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _content_end(text, node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _content_end(text, node.value[-1])
    end, start = node.end_mark.index, node.start_mark.index
    while end > start and text[end - 1].isspace():
        end -= 1
    return int(end)


def _leaves(value: object, node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, object, yaml.Node]]:
    """Leaves of nested mappings with the nodes that hold them; a merge (``<<``) is already resolved in the values."""
    if not isinstance(value, Mapping) or not isinstance(node, yaml.MappingNode):
        return
    nodes = {name.value: below for name, below in node.value}
    for key, item in value.items():
        below = nodes.get(str(key), node)
        dotted = f"{prefix}{key}"
        if isinstance(item, Mapping) and item and not any("." in str(name) for name in item):
            inner = below if isinstance(below, yaml.MappingNode) and below is not node else None
            if inner is None:
                yield from ((f"{dotted}.{rest}", leaf, below) for rest, leaf in _flat(item))
            else:
                yield from _leaves(item, inner, f"{dotted}.")
        else:
            yield dotted, item, below


def _flat(value: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Leaves of a mapping that has no nodes of its own (it came through an alias or a merge)."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item and not any("." in str(name) for name in item):
            yield from ((f"{key}.{rest}", leaf) for rest, leaf in _flat(item))
        else:
            yield str(key), item
