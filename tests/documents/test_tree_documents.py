"""YAML, JSON and TOML in place: one key changes, every other byte stays."""

from __future__ import annotations

import copy
import difflib
import json

import pytest
import tomlkit
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.documents.quoting import flow
from meshwright.documents.toml import parse_toml
from meshwright.documents.tree import parse_tree
from meshwright.errors import InputError

COMMON = examples(200)
KEYS = st.sampled_from(["tp", "pp", "lr", "name", "model_config", "Seq-Length", "x1", "_under", "on_", "a b", "1", "true"])
TEXTS = st.one_of(
    st.sampled_from(["plain", "with space", "yes", "null", "1e-5", "0x10", "12", "", " ",
                     "a: b", "# no", "*star", "&and", "[x]", "ü€", "'", '"', "-", "~"]),
    st.text(alphabet="abc:#'\"{}[],&*!|>%@`-_ .0189\\é", max_size=12),
)
SCALARS = st.one_of(
    st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False, width=32), TEXTS
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


def trees(leaves):
    return st.recursive(leaves, lambda below: st.dictionaries(KEYS, below, max_size=4), max_leaves=12)


MAPPINGS = st.dictionaries(KEYS, trees(st.one_of(VALUES, st.none())), min_size=1, max_size=5)
MAPPINGS_WITHOUT_NULL = st.dictionaries(KEYS, trees(VALUES), min_size=1, max_size=5)
STYLES = st.sampled_from([
    {"default_flow_style": False}, {"default_flow_style": False, "indent": 4}, {"default_flow_style": None},
    {"default_flow_style": True},
    {"default_flow_style": False, "explicit_start": True}, {"default_flow_style": False, "default_style": '"'},
])
INDENTS = st.sampled_from([None, 0, 2, 4, "\t"])


def paths(tree, prefix=()):
    """Every path of a nested mapping, sections included."""
    for key, value in tree.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))


def sections(tree, prefix=()):
    """Every path that leads to a mapping, or to nothing."""
    for key, value in tree.items():
        if isinstance(value, dict) or value is None:
            yield (*prefix, key)
        if isinstance(value, dict):
            yield from sections(value, (*prefix, key))


def put(tree, path, value):
    """The nested mapping with one key set, or taken out (None)."""
    result = copy.deepcopy(tree)
    *before, last = path
    section = result
    for key in before:
        if section.get(key) is None:
            section[key] = {}
        section = section[key]
    if value is None:
        section.pop(last, None)
    else:
        section[last] = value
    return result


def commented(draw, text):
    """Comments and blank lines between lines, and behind plain values."""
    lines = []
    for line in text.splitlines():
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(st.sampled_from(["# a note", "", "    # indented: note", "#x: 1"])))
        noted = line.split(" ")[-1].isalnum() and line.startswith(" ") and draw(st.integers(0, 3)) == 0
        lines.append(f"{line}  # behind" if noted else line)
    return "\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n# end\n"]))


@st.composite
def yaml_documents(draw):
    mapping, style = draw(MAPPINGS), draw(STYLES)
    text = yaml.safe_dump(mapping, allow_unicode=True, width=10**6, sort_keys=False, **style)
    if style["default_flow_style"] is False:
        text = commented(draw, text)
    assume(yaml.safe_load(text) == mapping)
    return text, mapping


def kept(before, after):
    """Lines of the text that are not in the new one."""
    diff = difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
    return [line for line in diff if line.startswith("- ")]


def span(text, path):
    """First and last line of a key with its value."""
    node = yaml.compose(text)
    for key in path:
        name, node = next(pair for pair in node.value if pair[0].value == key)
    return name.start_mark.line, node.end_mark.line


@COMMON
@given(yaml_documents(), VALUES, st.data())
def test_a_yaml_key_is_set_and_the_rest_stays(document, value, data):
    text, mapping = document
    path = data.draw(st.sampled_from(sorted(paths(mapping))))
    changed = parse_tree(text).changed({".".join(path): value})
    assert yaml.safe_load(changed) == put(mapping, path, value)
    first, last = span(text, path)
    lines = text.splitlines(keepends=True)
    assert changed.startswith("".join(lines[:first])), "what stands before the key has changed"
    assert changed.endswith("".join(lines[last + 1 :])), "what stands behind the value has changed"


@COMMON
@given(yaml_documents(), VALUES, st.data())
def test_a_yaml_key_is_added_to_any_section(document, value, data):
    text, mapping = document
    where = data.draw(st.sampled_from([(), *sorted(sections(mapping))]))
    path = (*where, "added")
    changed = parse_tree(text).changed({".".join(path): value})
    assert yaml.safe_load(changed) == put(mapping, path, value)
    assert len(kept(text, changed)) <= 1, (
        "an addition rewrites one line at most (an empty section, a flow mapping, an unended line)"
    )


@COMMON
@given(yaml_documents(), st.data())
def test_a_yaml_key_is_taken_out(document, data):
    text, mapping = document
    path = data.draw(st.sampled_from(sorted(paths(mapping))))
    changed = parse_tree(text).changed({".".join(path): None})
    found = yaml.safe_load(changed)
    assert (found or {}) == put(mapping, path, None)
    gone = parse_tree(changed).changed({".".join(path): None})
    assert gone == changed, "an absent key changes nothing"


@COMMON
@given(MAPPINGS, INDENTS, VALUES, st.data())
def test_json_is_changed_in_place(mapping, indent, value, data):
    text = json.dumps(mapping, indent=indent, ensure_ascii=data.draw(st.booleans())) + "\n"
    here = sorted(paths(mapping))
    path = data.draw(st.sampled_from([*here, ("added",), *((*where, "added") for where in sorted(sections(mapping)))]))
    changed = parse_tree(text, is_json=True).changed({".".join(path): value})
    assert json.loads(changed) == put(mapping, path, value)
    gone = parse_tree(changed, is_json=True).changed({".".join(path): None})
    assert json.loads(gone) == put(put(mapping, path, value), path, None)


@COMMON
@given(MAPPINGS_WITHOUT_NULL, VALUES, st.data())
def test_toml_is_changed_in_place(mapping, value, data):
    text = tomlkit.dumps(mapping)
    if data.draw(st.booleans()):
        text = "# first\n" + text.replace("\n[", "\n# between\n[") + "# last\n"
    assume(tomlkit.parse(text).unwrap() == mapping)
    here = sorted(paths(mapping))
    where = sorted(sections(mapping))
    path = data.draw(st.sampled_from([*here, ("added",), ("new", "added"), *((*each, "added") for each in where)]))
    inner = mapping
    for key in path:
        inner = inner.get(key) if isinstance(inner, dict) else None
    assume(not isinstance(inner, dict))
    changed = parse_toml(text).changed({".".join(path): value})
    assert tomlkit.parse(changed).unwrap() == put(mapping, path, value)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in changed.splitlines() if line.startswith("#")
    ]
    gone = parse_toml(changed).changed({".".join(path): None})
    assert tomlkit.parse(gone).unwrap() == put(put(mapping, path, value), path, None)


@COMMON
@given(VALUES)
def test_a_value_reads_back_from_its_words(value):
    assert yaml.safe_load(f"key: {flow(value)}") == {"key": value}


def test_no_edit_is_byte_identical():
    text = "# note\na:   1\nb: {c: 2,   d: [1,2]}\n\n...\n"
    assert parse_tree(text).changed({}) == text
    toml = '# note\n[a]\nb   =  1 # here\n\n[[c]]\nd = "x"\n'
    assert parse_toml(toml).changed({}) == toml


def test_the_comment_behind_a_value_stays():
    assert parse_tree("a:\n  tp: 8  # ways\n  pp: 2\n").changed({"a.tp": 4}) == "a:\n  tp: 4  # ways\n  pp: 2\n"
    assert parse_toml("[a]\ntp = 8  # ways\npp = 2\n").changed({"a.tp": 4}) == "[a]\ntp = 4  # ways\npp = 2\n"


SHARED = "base: &b\n  x: 1\n  y: 2\nuse: *b\nmerged:\n  <<: *b\n  z: 3\n"


@pytest.mark.parametrize("key", ["base.x", "use.x", "base.new", "use.new"])
def test_what_an_alias_shares_is_not_changed_for_its_other_users(key):
    with pytest.raises(InputError, match="alias"):
        parse_tree(SHARED).changed({key: 7})


def test_an_alias_itself_can_be_replaced():
    changed = parse_tree(SHARED).changed({"use": 7})
    assert changed == SHARED.replace("use: *b", "use: 7")


def test_a_merged_key_is_overridden_where_it_is_used():
    changed = parse_tree(SHARED).changed({"merged.x": 9})
    assert yaml.safe_load(changed) == {"base": {"x": 1, "y": 2}, "use": {"x": 1, "y": 2}, "merged": {"x": 9, "y": 2, "z": 3}}
    assert changed.startswith(SHARED.rstrip("\n"))


def test_a_merged_key_cannot_be_taken_out():
    with pytest.raises(InputError, match="alias"):
        parse_tree(SHARED).changed({"merged.x": None})


def test_an_alias_of_a_scalar_is_replaced_at_its_place():
    text = "a: &n 8\nb: *n   # as a\nc: {d: *n}\n"
    assert parse_tree(text).changed({"b": 4}) == "a: &n 8\nb: 4   # as a\nc: {d: *n}\n"
    assert parse_tree(text).changed({"c.d": 4}) == "a: &n 8\nb: *n   # as a\nc: {d: 4}\n"
    with pytest.raises(InputError, match="alias"):
        parse_tree(text).changed({"a": 4})


@pytest.mark.parametrize(("text", "key"), [("a: 1\n", "a.b"), ("a: [1]\n", "a.b"), ("a: {b: x}\n", "a.b.c")])
def test_a_value_is_no_section(text, key):
    with pytest.raises(InputError, match="no section"):
        parse_tree(text).changed({key: 1})


def test_a_toml_value_is_no_table():
    with pytest.raises(InputError, match="no table"):
        parse_toml("a = 1\n").changed({"a.b": 1})


def test_lines_of_settings():
    toml = parse_toml('top = 1\n[a]\n# x = 1\nx = 2\n[a.b]\n"y" = [\n 1,\n]\n').settings()
    assert {key: setting.line for key, setting in toml.items()} == {"top": 1, "a.x": 4, "a.b.y": 6}
    tree = parse_tree("top: 1\na:\n  # no\n  x: 2\n  b: {y: 3}\n").settings()
    assert {key: setting.line for key, setting in tree.items()} == {"top": 1, "a.x": 4, "a.b.y": 5}
