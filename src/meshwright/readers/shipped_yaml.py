"""The YAML files of this package, read without what is done against hostile ones."""

from __future__ import annotations

import yaml

from meshwright.readers.safe_yaml import Loader

_TEXT, _MERGED = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG, "tag:yaml.org,2002:merge"
_DEFAULTS = {
    yaml.ScalarNode: _TEXT, yaml.SequenceNode: yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG,
    yaml.MappingNode: yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
}


def parsed(content: bytes) -> object:
    """The one document of a YAML file of this package: its own are held to what ``load_yaml`` refuses by a test."""
    document: object = yaml.load(content, Loader=_Shipped)
    return document


class _Shipped(Loader):  # type: ignore[misc, valid-type]
    """PyYAML's loader without what files of this package do not ask for: tags by path, tags of their own, mappings that hold
    themselves. That is a third of the time."""

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        """No tag hangs on where a node stands."""

    def ascend_resolver(self) -> None:
        """Back from there."""

    def resolve(self, kind: type, value: str, implicit: tuple[bool, bool]) -> str:
        """The tag of a node that names none."""
        if kind is yaml.ScalarNode and implicit[0]:
            for tag, form in self.yaml_implicit_resolvers.get(value[:1], ()):
                if form.match(value):
                    return str(tag)
        return _DEFAULTS[kind]

    def construct_document(self, node: yaml.Node) -> object:
        """The value of a document."""
        return self._value(node, {})

    def _value(self, node: yaml.Node, known: dict[int, object]) -> object:
        """The value of a node; an alias is the very value that it stands for."""
        if node.__class__ is yaml.ScalarNode:
            return node.value if node.tag == _TEXT else self.construct_object(node)
        if id(node) in known:
            return known[id(node)]
        if node.__class__ is yaml.SequenceNode:
            items: object = [self._value(each, known) for each in node.value]
        else:
            if any(key.tag == _MERGED for key, _ in node.value):
                self.flatten_mapping(node)
            items = {self._value(key, known): self._value(value, known) for key, value in node.value}
        known[id(node)] = items
        return items
