"""Hostile files: every one is an ``InputError`` with one line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.readers import safe
from meshwright.readers.safe import load_json, parse_json
from meshwright.readers.safe_yaml import load_yaml, parse_yaml

LEVELS = zip("abcdefgh", "bcdefghi", strict=True)
BOMB = "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in LEVELS)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "not YAML"),
        ("a: 1\na: 2", "key 'a' stands twice in one place (line 2)"),
        ("x:\n  b: 1\n  b: 2", "key 'b' stands twice in one place (line 3)"),
        ("a: &x [1]\nb: [" + "*x, " * 201 + "]", "more than 200 aliases"),
        (BOMB, "expands to more than"),
        ("a: &x [*x]", "an alias contains itself"),
        ("[" * 2000 + "]" * 2000, "nested deeper than 60"),
        ("- " * 2000, "nested deeper than 60"),
        ("a: !!python/object/apply:os.system [echo]", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("? [1, 2]\n: 3", "a key must be a word"),
        ("a: *missing", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: 2026-99-99", "not YAML"),
        ("a: !!int x", "not YAML"),
    ],
)
def test_bad_yaml_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, where="f.yaml")
    line = str(caught.value)
    assert line.startswith("f.yaml: ")
    assert expected in line
    assert "\n" not in line


def test_the_bomb_is_refused_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(InputError):
        parse_yaml(BOMB)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ('{"a": 1', "is it truncated?"),
        ('{"a": "b', "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1, "a": 2}', "key 'a' stands twice in one place"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5,000 characters (line 1)"),
        ("\x00", "not JSON"),
    ],
)
def test_bad_json_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text, where="f.json")
    line = str(caught.value)
    assert line.startswith("f.json: ")
    assert expected in line
    assert "\n" not in line


def test_files_that_are_not_files(tmp_path: Path) -> None:
    for path, expected in [(tmp_path / "absent", "no such file"), (tmp_path, "not a regular file"), ("a\0b", "file")]:
        with pytest.raises(InputError, match=expected):
            load_json(path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="not a regular file"):
        load_yaml(fifo)
    with pytest.raises(InputError, match="cannot be read"):
        load_yaml("x" * 5000)


def test_large_and_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe, "MAX_BYTES", 1000)
    path = tmp_path / "large.json"
    path.write_bytes(b"[" + b"1," * (safe.MAX_BYTES // 2 + 10_000_000 // 2))
    with pytest.raises(InputError, match="larger than"):
        load_json(path)
    path.write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 7\)"):
        load_json(path)
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert load_json(path) == {"a": 1}


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_no_text_escapes_as_another_exception(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        try:
            parse(text)
        except InputError as error:
            assert "\n" not in str(error)


WORDS = st.text("ab", max_size=3)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_good_json_is_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
